"""What needs no encoder: the most frequent answer, and logistic regression on words. Every score stands beside these.

Both are in the task's own metric, times 100, and kept on disk under the task's fingerprint.
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

VERSION = 1  # raise it when a baseline is computed differently
FEATURES = 50_000  # the most frequent ones
ROWS = 20_000  # the most that words are learnt from; more would take longer than the encoders of the demo
WEIGHTS = 2_000_000  # features times labels
MOST_STEPS = 200
STRENGTH = 10.0  # inverse of the penalty per row, on rows of length 1
WORD = re.compile(r"[^\W_]+|[^\w\s]")


def added(task: Task, cache: Path | None = None) -> Task:
    """The task with its baselines, from the cache if they were computed before."""
    path = (cache or cache_root()) / "baselines" / f"{task.fingerprint}-{VERSION}.json"
    found = read_entry(path)
    if found is None:
        found = {"majority": majority(task), "bag-of-words": bag_of_words(task)}
        write_entry(path, found)
    return replace(task, baselines=found)


def majority(task: Task) -> float:
    """The training set's most frequent label, or its mean, for every row."""
    import numpy as np

    if task.regression:
        return 0.0  # a constant correlates with nothing
    counts = Counter(task.train.targets)
    best = min(counts, key=lambda label: (-counts[label], label))
    true = np.asarray(_headline(task).targets)
    return 100 * METRICS[task.metric](np.full_like(true, best), true)


def bag_of_words(task: Task) -> float:
    """Linear model of single words and neighbours, of words per side and shared words in pairs; L2 penalty.

    Rows have length 1; softmax and cross-entropy, or squared error. From at most 20,000 training rows.
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
    """Column of each feature that two rows or more have; column 0 is the constant."""
    counts: Counter[str] = Counter()
    for row in _rows(examples):
        counts.update(row)
    kept = sorted((word for word, count in counts.items() if count > 1), key=lambda word: (-counts[word], word))
    return {word: column for column, word in enumerate(kept[:most], 1)}


def matrix(examples: Examples, known: dict[str, int]) -> Any:
    """Sparse (rows, 1 + features), rows of length 1 beside the constant."""
    import numpy as np
    from scipy.sparse import csr_matrix

    columns = [sorted(known[word] for word in row if word in known) for row in _rows(examples)]
    values = np.concatenate([[1.0, *(len(row) ** -0.5 for _ in row)] for row in columns])
    ends = np.cumsum([0, *(1 + len(row) for row in columns)])
    return csr_matrix((values, [c for row in columns for c in (0, *row)], ends), shape=(len(columns), 1 + len(known)))


def _fit(inputs: Any, targets: Any, softmax: bool) -> Any:
    """Weights (features, outputs) of the convex problem, by L-BFGS from zero; the constant is not penalised."""
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
    found: Any = minimize(loss, start, jac=True, method="L-BFGS-B", **more)
    return found.x.reshape(shape)
