"""Does a generator need weights? Samples by frequency, by the neighbours of a token, or of a masked language model.

The generators of CodeBERT are n-gram models (Feng et al. 2020, section 3.3), and cost nothing beside a small
transformer. `--corpus python-code` asks for source code, the domain of that paper.
"""

QUESTION = "At equal compute, does a generator need weights?"
AXES = {"generator.kind": ("unigram", "ngram", "transformer"), "objective": ("rtd",)}
CONTRASTS = {
    "generator.kind": [
        ("ngram", "transformer", "neighbours, or a masked language model"),
        ("ngram", "unigram", "neighbours, or frequencies alone"),
    ]
}
