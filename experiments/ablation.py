"""The paper's efficiency analysis (section 3.4, Table 5), each run with the same budget."""

QUESTION = "At equal compute, what does each step from BERT to ELECTRA buy?"
AXES = {"objective": ("bert-mlm", "replace-mlm", "electra-15", "all-tokens-mlm", "rtd")}
