"""Words seen in training, as BabyLM counts them: whitespace-separated words, counted again in every epoch.

A training row has `length` tokens, of which [CLS] and [SEP] are not text, a row of pairs has another [SEP]; padded
rows of pairs are counted as if they were full. The number of words in the other tokens follows from the ratio of words
to tokens in the whole corpus, both of which are counted when it is prepared.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from workbench.errors import InputError
from workbench.spec.parts import DataSpec

MILLION = 1_000_000
MOST_EPOCHS = 10  # allowed in the BabyLM challenge
MOST_SOURCES = 12  # of a text that are listed one by one


def words_per_token(data: DataSpec) -> Fraction:
    """Return the number of words for each token of a training row. Raises InputError if they are not counted yet."""
    if not (data.words and data.tokens):
        raise InputError(
            f"the number of words of {', '.join(data.corpus)} in a training step is not known before the text is "
            f"prepared; give the amount as --budget words=N or use another unit"
        )
    others = 2 if data.pairs is None else 3
    return Fraction(data.length - others, data.length) * Fraction(data.words, data.tokens)


def words_of_tokens(tokens: float, data: DataSpec) -> float:
    """Return the number of words in this number of tokens of training rows."""
    return float(Fraction(tokens) * words_per_token(data))


def steps_of_words(words: float | Fraction, data: DataSpec, rows: int) -> int:
    """Return the largest number of steps, of `rows` rows each, that contain no more than `words` words."""
    return int(Fraction(words) // (rows * data.length * words_per_token(data)))


def by_source(words: Mapping[str, float]) -> str:
    """Return the sources of a text with their words, the largest first; those beyond MOST_SOURCES are added up."""
    ordered = sorted(words.items(), key=lambda pair: -pair[1])
    named, left = ordered[:MOST_SOURCES], ordered[MOST_SOURCES:]
    parts = [f"{name} {count:,.0f}" for name, count in named]
    parts += [f"{len(left)} others {sum(count for _, count in left):,.0f}"] if left else []
    return ", ".join(parts)


def epochs_of_words(words: float, data: DataSpec) -> float:
    """Return the number of epochs of the text in which this number of words is seen."""
    return words / data.words
