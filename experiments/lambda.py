"""How much should the detection loss weigh? Clark et al. 2020 searched over these values and settled on 50."""

QUESTION = "At equal compute, how much should the detection loss weigh against the generator's?"
AXES = {"options.weight": (1.0, 10.0, 20.0, 50.0, 100.0), "objective": ("rtd",)}
