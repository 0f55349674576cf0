"""What runs leave behind, laid out as BabyLM's evaluation pipeline has it: models by words seen, and predictions."""
