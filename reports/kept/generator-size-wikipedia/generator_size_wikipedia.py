"""How large should the generator be? Clark et al. 2020, section 3.2, figure 3: width varies, depth stays.

Beside the widths a generator that draws words by how often they occur (`unigram`), which costs next to nothing.
"""

QUESTION = "At equal compute, how large should the generator be?"
AXES = {"generator.width": (0.125, 0.25, 0.5, 1.0), "objective": ("rtd",)}
VARIANTS = [{"generator.kind": "unigram"}]
CONTRASTS = [
    ({"generator.width": 0.25}, {"generator.width": 1.0}, "a quarter as wide, or as wide as the encoder"),
    ({"generator.width": 0.5}, {"generator.width": 1.0}, "half as wide, or as wide as the encoder"),
    ({"generator.width": 0.25}, {"generator.width": 0.125}, "a quarter as wide, or an eighth"),
    ({"generator.width": 0.25}, {"generator.kind": "unigram"}, "a network, or words by how often they occur"),
]
