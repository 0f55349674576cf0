"""Which cheap measure stands for fine-tuned quality, and from which compute on does an encoder beat a bag of words?

Five objectives, and RTD with a generator of a quarter of the width besides, each with four budgets over two decades.
Every budget is a run of its own, which decays over all of it.
"""

QUESTION = "Which cheap measure stands for fine-tuned quality?"
SHARES = (0.01, 0.05, 0.2, 1.0)
AXES = {"objective": ("bert-mlm", "replace-mlm", "electra-15", "all-tokens-mlm", "rtd"), "budget.share": SHARES}
VARIANTS = [{"objective": "rtd", "generator.width": 0.25, "budget.share": share} for share in SHARES]
