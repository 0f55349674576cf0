"""The models: encoders, heads, generators, their losses and FLOPs, and the export of an encoder."""
