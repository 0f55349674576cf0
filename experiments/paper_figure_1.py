"""Figure 1 of Clark et al. 2020: what score do the published encoders reach for the compute that they were given?

The models are those of the figure and of the paper's tables 1 and 2, each with its published sizes, batch and steps,
and with the objective of its own paper; XLNet's compute is a measured constant there, 3.86e21, and counted here.
RoBERTa is BERT MLM over full rows. With `--budget`, all of them are trained at one amount of compute, and the
comparisons are made that the paper makes. All arms read the same text, with the vocabulary of the first
one, and are fine-tuned with its settings. `--dry-run --out FOLDER` draws the published scores, and beside them the
compute of the arms.
"""

QUESTION = "Which of the published objectives and sizes gives the best encoder at equal compute?"
ELECTRA = {size: {"objective": "rtd", "scale": size} for size in ("small", "base", "large")}
OTHERS = {
    "BERT-Small": {"objective": "bert-mlm", "scale": "bert-small"},
    "GPT": {"objective": "causal-lm", "scale": "gpt-1"},
    "BERT-Base": {"objective": "bert", "scale": "bert-base"},
    "BERT-Large": {"objective": "bert", "scale": "bert-large"},
    "RoBERTa": {"objective": "bert-mlm", "scale": "roberta-large"},
    "XLNet": {"objective": "permutation-lm", "scale": "xlnet-large"},
    "ALBERT": {"objective": "albert", "scale": "albert-xxlarge"},
}
AXES = {"objective": ("rtd",), "scale": tuple(ELECTRA)}
VARIANTS = list(OTHERS.values())
PAIRS = [
    *(("small", name) for name in ("BERT-Small", "GPT")),
    ("base", "BERT-Base"),
    *(("large", name) for name in ("BERT-Large", "RoBERTa", "XLNet", "ALBERT")),
]
CONTRASTS = [(ELECTRA[size], OTHERS[name], f"ELECTRA-{size.title()}, or {name}") for size, name in PAIRS]
