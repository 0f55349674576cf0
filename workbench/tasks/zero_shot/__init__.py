"""Minimal pairs: which of two sentences a pre-trained model finds more plausible, with nothing trained for it."""
