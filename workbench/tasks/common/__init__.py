"""What kinds of tasks share: contract, data of texts, fine-tuning, windows, metrics, baselines, cost."""
