"""Tagging: fine-tuning on a tag for each word, such as its part of speech or the named entity that it belongs to.

Clark et al. 2020 fine-tune on chunking in this way (released code, `finetune/tagging`); docs/electra.md 5.
"""
