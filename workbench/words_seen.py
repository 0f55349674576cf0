"""Words seen in training, as BabyLM counts them: whitespace-separated words, counted again in every epoch.

A row of training holds `length` tokens, of which [CLS] and [SEP] are no text. The words in the others follow from the
ratio of words and tokens of the whole corpus, which is counted when it is prepared.
"""

from __future__ import annotations

from fractions import Fraction

from workbench.errors import InputError
from workbench.parts import DataSpec

MILLION = 1_000_000
MOST_EPOCHS = 10  # of an entry to BabyLM's challenge


def words_per_token(data: DataSpec) -> Fraction:
    """Return the words of text for each token of a training row. Raises InputError where they are not counted."""
    if not (data.words and data.tokens):
        raise InputError(
            f"how many words of {', '.join(data.corpus)} a training step sees is known once the text is prepared; "
            f"give the amount as --budget words=N or use another unit"
        )
    return Fraction(data.length - 2, data.length) * Fraction(data.words, data.tokens)


def words_of_tokens(tokens: float, data: DataSpec) -> float:
    """Return the words seen in so many tokens of training rows."""
    return float(Fraction(tokens) * words_per_token(data))


def steps_of_words(words: float | Fraction, data: DataSpec, rows: int) -> int:
    """Return the last step by which no more than `words` words were seen, with so many `rows` in a step."""
    return int(Fraction(words) // (rows * data.length * words_per_token(data)))


def epochs_of_words(words: float, data: DataSpec) -> float:
    """Return how many times that is the whole text."""
    return words / data.words
