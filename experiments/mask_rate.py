"""What share of the tokens should be picked? Clark et al. 2020 take 15 %, and 25 % for the large model."""

QUESTION = "At equal compute, what share of the tokens should be picked?"
AXES = {"corruption.rate": (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4), "objective": ("rtd",)}
