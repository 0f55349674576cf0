"""NAME: how many layers should an encoder of this width have?

An experiment is a file with a question and the axes along which its runs differ:

    workbench check FILE
    workbench run FILE --dry-run
    workbench run FILE --seeds 4 --tasks pairs:replace

In a folder `experiments` it is found by its name, NAME_, and listed by `workbench list experiments`.
"""

QUESTION = "At equal compute, how many layers should the encoder have?"

# Every combination is one run for each seed. Keys are what --set takes (`workbench list keys`), and options.KEY.
AXES = {"objective": ("rtd",), "encoder.layers": (1, 2, 4)}

# The comparisons that the experiment is about, declared before anything is measured; without them, all are compared.
CONTRASTS = {"encoder.layers": [(1, 2), (2, 4)]}

# What all runs spend alike: "flops" (the default), "tokens", "words", "steps" or "seconds".
MATCH = "flops"

# Further runs beside AXES, as dicts of keys and values.
# VARIANTS = [{"generator.kind": "unigram"}]
