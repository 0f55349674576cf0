"""Embeddings of whole texts by a frozen encoder: how similar two sentences are, and which documents answer a query."""
