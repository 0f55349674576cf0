"""Metrics of tagging, its baselines, and its predictions in columns, from which other scorers give the same numbers.

Precision, recall and F1 are computed as seqeval and scikit-learn compute them, to the last digit; 0 stands for an
undefined value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.data.tagged_sentences import spans
from workbench.tasks.baselines import by_word, cached
from workbench.tasks.metrics import measure
from workbench.tasks.tagging.tagging_task import Tagging
from workbench.tasks.task import Tagged

VERSION = 1  # increase it when the computation of a baseline changes

Tags = Sequence[Sequence[str]]  # of the words of each sentence


@dataclass(frozen=True)
class Hits:
    """How many units were predicted right, predicted at all, and are in the gold standard."""

    right: int
    predicted: int
    gold: int

    @property
    def precision(self) -> float:
        """Return the share of predicted units that are right."""
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Return the share of gold units that were predicted."""
        return self.right / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """Return the harmonic mean of precision and recall."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def span_hits(gold: Tags, predicted: Tags) -> dict[str, Hits]:
    """Return the hits of each type of span, right if type and both ends are, in the order of the types' names."""
    of_gold, of_predicted, of_right = Counter[str](), Counter[str](), Counter[str]()
    for true, guess in zip(gold, predicted, strict=True):
        gold_spans, predicted_spans = spans(true), spans(guess)
        of_gold.update(kind for *_, kind in gold_spans)
        of_predicted.update(kind for *_, kind in predicted_spans)
        of_right.update(kind for *_, kind in gold_spans & predicted_spans)
    return {kind: Hits(of_right[kind], of_predicted[kind], of_gold[kind]) for kind in sorted(of_gold | of_predicted)}


def word_hits(gold: Tags, predicted: Tags) -> dict[str, Hits]:
    """Return the hits of each tag of single words, in the order of the tags."""
    true, guess = (Counter(tag for tags in side for tag in tags) for side in (gold, predicted))
    pairs = zip(_flat(gold), _flat(predicted), strict=True)
    right = Counter(tag for tag, other in pairs if tag == other)
    return {tag: Hits(right[tag], guess[tag], true[tag]) for tag in sorted(true | guess)}


def micro(hits: Iterable[Hits]) -> Hits:
    """Return the hits of all types together."""
    each = list(hits)
    return Hits(sum(h.right for h in each), sum(h.predicted for h in each), sum(h.gold for h in each))


def points(task: Tagging, rows: Tagged, predicted: Any) -> dict[str, float]:
    """Return the metrics, times 100, of predicted label numbers (words,); the headline comes first."""
    import numpy as np

    gold, guess = gold_tags(task.labels, rows), tags_of(task.labels, rows, predicted)
    gold_array, predicted_array = np.array(_flat(gold)), np.array(_flat(guess))
    if not task.scheme:
        return {
            name: 100 * value for name, value in measure(("accuracy", "macro_f1"), predicted_array, gold_array).items()
        }
    total = micro(span_hits(gold, guess).values())
    values = {"entity_f1": total.f1, "entity_precision": total.precision, "entity_recall": total.recall}
    return {name: 100 * value for name, value in (values | measure(("accuracy",), predicted_array, gold_array)).items()}


def by_type(task: Tagging, rows: Tagged, predicted: Any) -> dict[str, dict[str, float]]:
    """Return precision, recall and F1, times 100, of each type of span or each tag, with the numbers behind them."""
    gold, guess = gold_tags(task.labels, rows), tags_of(task.labels, rows, predicted)
    hits = span_hits(gold, guess) if task.scheme else word_hits(gold, guess)
    return {
        kind: {"f1": 100 * h.f1, "precision": 100 * h.precision, "recall": 100 * h.recall, "gold": h.gold,
               "predicted": h.predicted}
        for kind, h in hits.items()
    }  # fmt: skip


def columns(task: Tagging, rows: Tagged, predicted: Any) -> str:
    """Return word, gold tag and predicted tag of each word in a line, and a blank line after each sentence.

    Blanks inside a word are written as underscores, since blanks separate the columns.
    """
    lines = []
    guesses = tags_of(task.labels, rows, predicted)
    for words, true, guess in zip(rows.words, gold_tags(task.labels, rows), guesses, strict=True):
        for fields in zip(words, true, guess, strict=True):
            lines.append(" ".join("_".join(field.split()) for field in fields))
        lines.append("")
    return "".join(f"{line}\n" for line in lines)


def gold_tags(labels: Sequence[str], rows: Tagged) -> list[list[str]]:
    """Return the tags of each sentence, whose numbers are places in `labels`."""
    return [[labels[target] for target in targets] for targets in rows.targets]


def tags_of(labels: Sequence[str], rows: Tagged, predicted: Any) -> list[list[str]]:
    """Return the predicted tags of each sentence, from label numbers (words,)."""
    numbers: Iterator[int] = iter(predicted.tolist())
    return [[labels[next(numbers)] for _ in words] for words in rows.words]


def _flat(tags: Tags) -> list[str]:
    return [tag for of_sentence in tags for tag in of_sentence]


def with_baselines(task: Tagging, cache: Path | None = None) -> Mapping[str, float]:
    """Return the headline metric of the most frequent tag, and of the most frequent tag of each word.

    The values come from the cache if they were computed before.
    """

    def compute() -> dict[str, float]:
        rows = next(iter(task.tests.values()))
        guesses = zip(("majority", "word-lookup"), by_word(task.train, rows), strict=True)
        return {name: points(task, rows, predicted)[task.metric] for name, predicted in guesses}

    return cached(f"{task.fingerprint}-tagging-{VERSION}", compute, cache)
