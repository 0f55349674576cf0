"""The paper's efficiency analysis (section 3.4, Table 5), each run with the same budget."""

QUESTION = "At equal compute, what does each step from BERT to ELECTRA buy?"
AXES = {"objective": ("bert-mlm", "replace-mlm", "electra-15", "all-tokens-mlm", "rtd")}
CONTRASTS = [
    ("rtd", "bert-mlm", "all of ELECTRA"),
    ("electra-15", "bert-mlm", "detection at the picks"),
    ("replace-mlm", "bert-mlm", "no [MASK] in the input"),
    ("all-tokens-mlm", "bert-mlm", "a word for every token"),
    ("rtd", "all-tokens-mlm", "detection in place of words"),
    ("rtd", "electra-15", "a loss on all tokens"),
]
