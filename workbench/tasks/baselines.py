"""Baselines that need no encoder: the most frequent label, and logistic regression on words.

Reports show them beside every score. Both are values of the task's own metric, times 100, and are cached on disk
under the task's fingerprint.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from workbench.progress import counted
from workbench.store.atomic import cache_root
from workbench.store.cache import read_entry, write_entry
from workbench.tasks.metrics import METRICS
from workbench.tasks.task import Examples, Task

VERSION = 1  # increase it when the computation of a baseline changes
FEATURES = 50_000  # at most, the most frequent ones
ROWS = 20_000  # training rows at most; more would take longer than training the encoders of the demo
WEIGHTS = 2_000_000  # features times labels at most
MOST_STEPS = 200
STRENGTH = 10.0  # scikit-learn's C, the weight of the summed loss against the penalty, for rows of norm 1
WORD = re.compile(r"[^\W_]+|[^\w\s]")


def added(task: Task, cache: Path | None = None) -> Task:
    """Return the task with its baselines, which come from the cache if they were computed before."""
    path = (cache or cache_root()) / "baselines" / f"{task.fingerprint}-{VERSION}.json"
    values = read_entry(path)
    if values is None:
        values = {"majority": majority(task), "bag-of-words": bag_of_words(task)}
        write_entry(path, values)
    return replace(task, baselines=values)


def majority(task: Task) -> float:
    """Return the score of predicting the most frequent training label for every row; 0 in a regression."""
    import numpy as np

    if task.regression:
        return 0.0  # a constant correlates with nothing
    counts = Counter(task.train.targets)
    best = min(counts, key=lambda label: (-counts[label], label))
    true = np.asarray(_headline(task).targets)
    return 100 * METRICS[task.metric](np.full_like(true, best), true)


def bag_of_words(task: Task) -> float:
    """Return the score of a linear model on bags of words.

    Features are single words and pairs of neighbouring words; for two texts, those of each text and those that both
    share. Feature vectors of rows have norm 1. The loss is the cross-entropy of a softmax, or the squared error in
    a regression, with an L2 penalty. At most 20,000 training rows are used.
    """
    import numpy as np

    train, test = task.train, _headline(task)
    if len(train) > ROWS:
        step = len(train) / ROWS
        train = train.take([int(i * step) for i in range(ROWS)])
    outputs = max(1, len(task.labels))
    known = vocabulary(train, max(1000, min(FEATURES, WEIGHTS // outputs)))
    inputs = matrix(train, known)
    if task.regression:
        low, high = task.span
        targets = (np.asarray(train.targets, dtype=np.float64)[:, None] - low) / (high - low)
    else:
        targets = np.eye(outputs)[np.asarray(train.targets)]
    scores = matrix(test, known) @ _fit(inputs, targets, softmax=not task.regression)
    predicted = scores[:, 0] if task.regression else scores.argmax(1)
    return 100 * METRICS[task.metric](predicted, np.asarray(test.targets))


def _headline(task: Task) -> Examples:
    return next(iter(task.tests.values()))


def _features(first: str, second: str | None) -> set[str]:
    one = _grams(first)
    if second is None:
        return one
    two = _grams(second)
    return {"1" + w for w in one} | {"2" + w for w in two} | {"=" + w for w in one & two}


def _grams(text: str) -> set[str]:
    words = WORD.findall(text.lower())
    return {*words, *(" ".join(pair) for pair in pairwise(words))}


def _rows(examples: Examples) -> list[set[str]]:
    second: list[str] | list[None] = examples.second or [None] * len(examples)
    return [_features(a, b) for a, b in zip(examples.first, second, strict=True)]


def vocabulary(examples: Examples, most: int) -> dict[str, int]:
    """Return the column of each feature that occurs in two rows or more, at most `most`; column 0 is the constant."""
    counts: Counter[str] = Counter()
    for row in _rows(examples):
        counts.update(row)
    frequent = sorted((word for word, count in counts.items() if count > 1), key=lambda word: (-counts[word], word))
    return {word: column for column, word in enumerate(frequent[:most], 1)}


def matrix(examples: Examples, known: dict[str, int]) -> Any:
    """Return a sparse matrix (rows, 1 + features): a column of ones, then each row's features, scaled to norm 1."""
    import numpy as np
    from scipy.sparse import csr_matrix

    columns = [sorted(known[word] for word in row if word in known) for row in _rows(examples)]
    values = np.concatenate([[1.0, *(len(row) ** -0.5 for _ in row)] for row in columns])
    ends = np.cumsum([0, *(1 + len(row) for row in columns)])
    return csr_matrix((values, [c for row in columns for c in (0, *row)], ends), shape=(len(columns), 1 + len(known)))


def _fit(inputs: Any, targets: Any, softmax: bool) -> Any:
    """Return the weights (features, outputs) that minimise the loss with its penalty, by L-BFGS from zero.

    The weight of the constant is not penalised.
    """
    import numpy as np
    from scipy.optimize import minimize

    rows, shape = len(targets), (inputs.shape[1], targets.shape[1])
    penalty = np.full(shape, 1 / (STRENGTH * rows))
    penalty[0] = 0.0
    transposed = inputs.T.tocsr()

    def loss(flat: Any) -> tuple[float, Any]:
        weights = flat.reshape(shape)
        scores = inputs @ weights
        if softmax:
            scores = scores - scores.max(1, keepdims=True)
            logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
            value, error = -(targets * logs).sum() / rows, np.exp(logs) - targets
        else:
            error = scores - targets
            value = (error**2).sum() / 2 / rows
        value += (penalty * weights**2).sum() / 2
        return float(value), (transposed @ error / rows + penalty * weights).ravel()

    start: Any = np.zeros(shape).ravel()
    steps = counted(range(MOST_STEPS), f"fitting a bag of words, {shape[1]:,} outputs, steps")
    more: Any = {"options": {"maxiter": MOST_STEPS, "gtol": 1e-5}, "callback": lambda _: next(steps, None)}
    result: Any = minimize(loss, start, jac=True, method="L-BFGS-B", **more)
    return result.x.reshape(shape)
