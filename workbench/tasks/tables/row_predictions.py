"""The predictions for the tested rows of a table, as a CSV file from which scikit-learn computes the same metrics.

A line has the row's texts, what is right (`gold`), what was predicted, and a column for each output: of a
classification the probability of each label, else the output itself, which a regression has from 0 to 1. Numbers are
32-bit floats, written so that reading them gives the same floats, and in a regression the same doubles. Several labels
of a row are separated by `|`, or are a JSON list if that is part of a label.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

from workbench.tasks.task import Examples, Task

SEPARATOR = "|"  # of the labels of a row that has several
MOST = 1_000_000  # outputs in a file, beyond which it has only what was predicted


def table_files(task: Task, part: str, rows: Examples, outputs: Any, folds: Sequence[int] = ()) -> dict[str, str]:
    """Return {ending: content} of the predictions of a user's table, from outputs (N, labels); {} for other tasks.

    `folds` are the numbers of the folds in which the rows were tested, if they were.
    """
    if task.suite != "table":
        return {}
    target = io.StringIO(newline="")
    writer = csv.writer(target, lineterminator="\n")
    columns = _columns(task, rows, outputs, folds)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return {f".{part}.csv": target.getvalue()}


def _columns(task: Task, rows: Examples, outputs: Any, folds: Sequence[int]) -> dict[str, Sequence[Any]]:
    """Return the columns of the file by their names."""
    import numpy as np
    from scipy.special import softmax

    columns: dict[str, Sequence[Any]] = {"text": rows.first}
    if rows.second is not None:
        columns["pair"] = rows.second
    if rows.groups is not None:
        columns["question"] = rows.groups
    if folds:
        columns["fold"] = folds
    columns |= {"gold": _named(task, rows.targets), "predicted": _named(task, _predicted(task, outputs))}
    if outputs.size > MOST:
        return columns
    if task.kind == "classification":
        names, scores = [f"probability of {label}" for label in task.labels], softmax(outputs, axis=1)
    else:
        names, scores = [f"output for {label}" for label in task.labels], outputs
    named = zip(names if len(names) == scores.shape[1] else ["output"], scores.T, strict=True)
    number = float if task.kind == "regression" else np.float32
    return columns | {name: [str(number(score)) for score in column] for name, column in named}


def _predicted(task: Task, outputs: Any) -> list[Any]:
    """Return the prediction for each row, in the form of `Examples.targets`.

    It is None for the rows of a choice, since they are answers to one question, of which only one can be right.
    """
    if task.kind == "choice":
        return [None] * len(outputs)
    if task.kind == "regression":
        low, high = task.span
        return [low + (high - low) * output for output in outputs[:, 0].tolist()]
    if task.kind == "multilabel":
        return [row.nonzero()[0].tolist() for row in outputs > 0]
    targets: list[Any] = outputs.argmax(1).tolist()
    return targets


def _named(task: Task, targets: Sequence[Any]) -> list[Any]:
    """Return targets as a table has them: the names of labels, or numbers."""
    if task.kind in ("regression", "choice"):
        return ["" if target is None else target for target in targets]
    if task.kind == "multilabel":
        join: Callable[[list[str]], str] = (
            json.dumps if any(SEPARATOR in label for label in task.labels) else SEPARATOR.join
        )
        return [join([task.labels[label] for label in target]) for target in targets]
    return [task.labels[target] for target in targets]
