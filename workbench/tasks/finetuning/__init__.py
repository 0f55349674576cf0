"""Fine-tuning of an encoder with one linear layer on GLUE, BabyLM's tasks, probes or a user's own table."""
