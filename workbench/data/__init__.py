"""From text to training rows: sources, tokenizers, packed token shards, and batches as a function of position."""
