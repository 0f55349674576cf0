"""Text to training rows: sources, tokenizer, packed token shards, and batches as a function of position."""
