"""How should generator and discriminator be trained? Clark et al. 2020, section 3.2 and appendix F.

Two-stage: the generator alone for half the budget, then a discriminator that begins with its weights, the generator
frozen. That needs two networks of one size that share nothing, so all runs have such; only the algorithm differs.
"""

QUESTION = "At equal compute, how should generator and discriminator be trained?"
AXES = {"objective": ("rtd", "adversarial"), "generator.width": (1.0,), "tying": ("none",)}
VARIANTS = [
    {
        "objective": "rtd",
        "start.take": "generator",
        "start.freeze_generator": True,
        "start.share": 0.5,
        "start.parent": {"objective": "bert-mlm", "corruption.mask": 1.0, "corruption.random": 0.0},
    }
]
