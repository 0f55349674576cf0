"""Whether a tokenizer keeps capital letters, and whether its vocabulary has them: settings of both may contradict.

The first settings of a published cased model said that texts are put into lower case, and a vocabulary of small letters
beside settings that keep capitals makes words with capitals unknown. Neither gives an error, only lower scores.
"""

from __future__ import annotations

from typing import Any

FEW = 0.01  # the share of words with capital letters in a vocabulary of small letters, such as those of Roman numbers
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def contradiction(tokenizer: Any) -> str:
    """Return a sentence on how a fast tokenizer and its vocabulary differ in casing, "" if they do not.

    It is "" as well for a tokenizer in Python, and for a vocabulary without Latin letters.
    """
    if not getattr(tokenizer, "is_fast", False):
        return ""
    special = set(tokenizer.all_special_tokens)
    words = [word for word in tokenizer.get_vocab() if word not in special]
    capital = sum(not set(word).isdisjoint(LETTERS) for word in words)
    small = sum(not set(word).isdisjoint(LETTERS.lower()) for word in words)
    keeps = _keeps_capitals(tokenizer)
    if not keeps and capital > FEW * len(words):
        return (
            f"texts are put into lower case, and {capital:,} of the {len(words):,} tokens of the vocabulary have "
            f"capital letters; if the model was trained on these, set do_lower_case to false"
        )
    if keeps and not capital and small:
        return (
            "texts keep capital letters, and no token of the vocabulary has one; if the model was trained on small "
            "letters, set do_lower_case to true"
        )
    return ""


def _keeps_capitals(tokenizer: Any) -> bool:
    """Return whether a fast tokenizer leaves capital letters as they are before it splits a text."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    return normalizer is None or not set(normalizer.normalize_str(LETTERS)).isdisjoint(LETTERS)
