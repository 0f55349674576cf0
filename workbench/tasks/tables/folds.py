"""Cross-validation: a table without rows to test on, divided into folds, each tested by a model of all others.

The score of one fine-tuning seed is that of all folds together. Metrics of labels are computed on the predictions of
all folds at once, because the mean of the F1 of small folds is biased; metrics of an order (average precision,
correlations) are means over the folds, because the outputs of different models are not on one scale (Forman and Scholz
2010, "Apples-to-apples in cross-validation studies"). The folds depend on the texts alone, so that all seeds, runs and
baselines share them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from workbench.errors import InputError, plural
from workbench.progress import warn_once
from workbench.rng import seed_of
from workbench.tasks.metrics import OF_ORDER, judged
from workbench.tasks.task import Task, fingerprinted

PART = "out-of-fold"


def divided(task: Task, count: int) -> Task:
    """Return a task without tests with `count` folds of its rows as its test.

    Equal first texts are in one fold. The texts of each label are assigned to the folds in turn, in an order by their
    hash, the rarest label first. Texts with a label that no other fold has, above all those that are alone with their
    label, are tested in no fold and trained on in all, which a note says. Raises InputError if a fold remains empty.
    """
    groups: dict[str, list[int]] = {}
    for row, text in enumerate(task.train.first):
        groups.setdefault(text, []).append(row)
    labels_of = {text: {label for row in rows for label in _labels(task, row)} for text, rows in groups.items()}
    fold_of = {text: place % count for place, text in enumerate(_order(labels_of))}
    places: dict[int, set[int]] = {}
    for text, labels in labels_of.items():
        for label in labels:
            places.setdefault(label, set()).add(fold_of[text])
    alone = {text for text, labels in labels_of.items() if any(len(places[label]) == 1 for label in labels)}
    dealt: list[list[int]] = [[] for _ in range(count)]
    for text, fold in fold_of.items():
        dealt[fold] += [] if text in alone else groups[text]
    if not all(dealt):
        raise InputError(
            f"tasks.folds={count} needs {count} different texts, and {task.name} has {len(groups) - len(alone)} that "
            f"can be tested"
        )
    folds = tuple(tuple(sorted(rows)) for rows in dealt)
    tests = {PART: task.train.take([row for rows in folds for row in rows])}
    return fingerprinted(replace(task, tests=tests, folds=folds, notes=(*task.notes, *_left_out(task, groups, alone))))


def _order(labels_of: Mapping[str, set[int]]) -> list[str]:
    """Return the texts that have these labels, those with the rarest label first, within a label by their hash."""
    counts = Counter(label for labels in labels_of.values() for label in labels)

    def key(text: str) -> tuple[int, int, int, str]:
        number, label = min(((counts[label], label) for label in labels_of[text]), default=(len(labels_of), -1))
        return number, label, seed_of(0, "folds", text), text

    return sorted(labels_of, key=key)


def _left_out(task: Task, groups: Mapping[str, list[int]], alone: set[str]) -> list[str]:
    """Return a sentence, also logged, on the rows that are tested in no fold, if there are any."""
    if not alone:
        return []
    rows = plural(sum(len(groups[text]) for text in alone), "row")
    note = f"{rows} with a label of too few texts can be trained on in every fold, and tested in none"
    warn_once(f"{task.name}: {note}")
    return [note]


def _labels(task: Task, row: int) -> list[int]:
    """Return the labels of a training row, none in a regression."""
    target: Any = task.train.targets[row]
    return [] if task.regression else list(target) if task.multilabel else [target]


def of_folds(task: Task) -> Iterator[Task]:
    """Yield the task of each fold: tested on its rows, trained on all others."""
    for number, rows in enumerate(task.folds):
        tested = set(rows)
        others = task.train.take([row for row in range(len(task.train)) if row not in tested])
        fingerprint = f"{task.fingerprint}-{number}"
        yield replace(task, train=others, tests={PART: task.train.take(list(rows))}, folds=(), fingerprint=fingerprint)


def over_folds(task: Task, outputs: Sequence[Any], targets: Sequence[Any]) -> dict[str, float]:
    """Return the metrics, as fractions, of the outputs (N, labels) and the targets of each fold."""
    import numpy as np

    of_labels = [name for name in task.metrics if name not in OF_ORDER]
    of_order = [name for name in task.metrics if name in OF_ORDER]
    pooled = judged(task.kind, of_labels, np.concatenate(outputs), np.concatenate(targets))
    each = [judged(task.kind, of_order, *fold) for fold in zip(outputs, targets, strict=True)]
    means = {name: float(np.mean([values[name] for values in each])) for name in of_order}
    return {name: (pooled | means)[name] for name in task.metrics}


def headline(task: Task, outputs_of: Callable[[Task], Any]) -> float:
    """Return the headline metric, times 100, of the outputs (N, labels) for the first test part, or for all folds."""
    if task.folds:
        parts = list(of_folds(task))
        targets = [part.array(part.tests[PART]) for part in parts]
        return 100 * over_folds(task, [outputs_of(part) for part in parts], targets)[task.metric]
    test = next(iter(task.tests.values()))
    return 100 * judged(task.kind, [task.metric], outputs_of(task), task.array(test), test.groups)[task.metric]
