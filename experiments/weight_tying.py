"""What should generator and discriminator share? Clark et al. 2020, section 3.2, and DeBERTaV3's `gdes`.

Sharing all weights needs a generator of the discriminator's size, so every run here has one, as in the paper.
"""

QUESTION = "At equal compute, what should generator and discriminator share?"
AXES = {
    "tying": ("none", "tokens", "embeddings", "all", "gdes"),
    "generator.width": (1.0,),
    "objective": ("rtd",),
}
CONTRASTS = {
    "tying": [
        ("embeddings", "none", "shared embeddings"),
        ("all", "embeddings", "shared layers as well"),
        ("tokens", "embeddings", "token embeddings alone"),
        ("gdes", "embeddings", "embeddings without the detection loss's gradient"),
    ]
}
