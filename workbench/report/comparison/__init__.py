"""Scores averaged and compared: by task, at equal compute, as declared beforehand, and along training."""
