"""Words seen in training, as BabyLM counts them: whitespace-separated words, counted again in every epoch.

A row of training holds `length` tokens, of which [CLS] and [SEP] are no text. The words in the others follow from the
ratio of words and tokens of the whole corpus, which is counted when it is prepared.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from workbench.errors import InputError
from workbench.spec.parts import DataSpec

MILLION = 1_000_000
MOST_EPOCHS = 10  # of an entry to BabyLM's challenge
MOST_SOURCES = 12  # of a text that are named one by one


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


def by_source(words: Mapping[str, float]) -> str:
    """Return the sources of a text with their words, the largest first and the small ones of many together."""
    ordered = sorted(words.items(), key=lambda pair: -pair[1])
    named, left = ordered[:MOST_SOURCES], ordered[MOST_SOURCES:]
    told = [f"{name} {count:,.0f}" for name, count in named]
    told += [f"{len(left)} others {sum(count for _, count in left):,.0f}"] if left else []
    return ", ".join(told)


def epochs_of_words(words: float, data: DataSpec) -> float:
    """Return how many times that is the whole text."""
    return words / data.words
