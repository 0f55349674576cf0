"""Rows of two segments of text, for objectives and encoders that distinguish them."""
