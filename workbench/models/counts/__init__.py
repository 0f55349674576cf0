"""Generators without weights, which sample tokens by what was counted in the training text."""
