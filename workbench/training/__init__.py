"""Training: the plan of a run, the loop over its steps, the optimizer, checkpoints to resume from, and kept weights."""
