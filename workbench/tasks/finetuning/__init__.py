"""Fine-tuning: an encoder and one linear layer, trained on GLUE, BabyLM's tasks, probes or a user's own table."""
