"""How large should the generator be? Clark et al. 2020, section 3.2, figure 3: width varies, depth stays."""

QUESTION = "At equal compute, how large should the generator be?"
AXES = {"generator.width": (0.125, 0.25, 0.5, 0.75, 1.0), "objective": ("rtd",)}
