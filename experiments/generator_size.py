"""How large should the generator be? Clark et al. 2020, section 3.2, figure 3: width varies, depth stays.

Beside them a generator of full width and half the depth, and the cheap end: words drawn by how often they occur
(`unigram`, the paper's), and any word alike (`uniform`, the released code's).
"""

QUESTION = "At equal compute, how large should the generator be?"
AXES = {"generator.width": (0.125, 0.25, 0.5, 0.75, 1.0), "objective": ("rtd",)}
VARIANTS = [
    {"generator.width": 1.0, "generator.depth": 0.5},
    {"generator.kind": "unigram"},
    {"generator.kind": "uniform"},
]
CONTRASTS = [
    ({"generator.width": 0.25}, {"generator.width": 1.0}, "a quarter as wide, or as wide as the encoder"),
    ({"generator.width": 0.5}, {"generator.width": 1.0}, "half as wide, or as wide as the encoder"),
    ({"generator.width": 0.25}, {"generator.width": 0.125}, "a quarter as wide, or an eighth"),
    ({"generator.width": 0.25}, {"generator.kind": "unigram"}, "a network, or words by how often they occur"),
]
