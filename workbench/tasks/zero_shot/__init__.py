"""Zero-shot evaluation on minimal pairs: which of two sentences a model scores higher, without fine-tuning."""
