"""Corpora made of the Python packages on this machine: their docstrings, and their source code."""
