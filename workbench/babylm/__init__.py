"""Export of runs in the layout of BabyLM's evaluation pipeline: models by words seen, and predictions."""
