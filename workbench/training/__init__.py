"""Training: the plan of a run, the loop over its steps, the optimizer, resuming, and weights kept along the way."""
