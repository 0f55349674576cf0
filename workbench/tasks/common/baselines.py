"""Baselines that need no encoder: the most frequent label, logistic regression on words, and a look-up of words.

Reports show them beside every score. Both are values of the task's own metric, times 100, and are cached on disk
under the task's fingerprint.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from workbench.progress import counted
from workbench.store.atomic import cache_root
from workbench.store.cache import read_entry, write_entry
from workbench.tasks.common.examples import Examples, Tagged, Task, headline

VERSION = 1  # increase it when the computation of a baseline changes
FEATURES = 50_000  # at most, the most frequent ones
ROWS = 20_000  # training rows at most; more would take longer than training the encoders of the demo
WEIGHTS = 2_000_000  # features times labels at most
MOST_STEPS = 200
STRENGTH = 10.0  # scikit-learn's C, the weight of the summed loss against the penalty, for rows of norm 1
WORD = re.compile(r"[^\W_]+|[^\w\s]")


def of_task(task: Task, cache: Path | None = None) -> dict[str, float]:
    """Return the baselines of a task, from the cache if they were computed before; of MultiRC also "all right"."""

    def compute() -> dict[str, float]:
        import numpy as np

        values = {"majority": majority(task)}
        if task.metric == "f1a_em":
            values["all-right"] = headline(task, lambda part: np.tile([0.0, 1.0], (len(_tested(part)), 1)))
        return values | {"bag-of-words": bag_of_words(task)}

    return cached(f"{task.fingerprint}-{VERSION}", compute, cache)


def cached(name: str, compute: Callable[[], dict[str, float]], cache: Path | None) -> dict[str, float]:
    """Return the baselines that the cache holds under a name, else compute and keep them."""
    path = (cache or cache_root()) / "baselines" / f"{name}.json"
    values: dict[str, float] | None = read_entry(path)
    if values is None:
        values = compute()
        write_entry(path, values)
    return values


def majority(task: Task) -> float:
    """Return the score of giving every row the shares of the training labels as its outputs; 0 in a regression.

    They predict the most frequent label, or with several labels a row each label that more than half of the rows have.
    In a choice it is the place at which the right answer is most often.
    """
    return 0.0 if task.regression else headline(task, _frequencies)  # a constant correlates with nothing


def _tested(task: Task) -> Examples:
    return next(iter(task.tests.values()))


def _frequencies(task: Task) -> Any:
    """Return outputs (N, labels) for the test rows that are the same for each: log-odds, or shares, of the labels."""
    import numpy as np

    targets, test = task.array(task.train), _tested(task)
    if task.choice:
        counts = Counter(place for rows in task.units(task.train) for place, row in enumerate(rows) if targets[row])
        return np.array([[counts[place]] for rows in task.units(test) for place in range(len(rows))], np.float64)
    shares = targets.mean(0) if task.multilabel else np.bincount(targets, minlength=len(task.labels)) / len(targets)
    return np.tile(shares - 0.5 if task.multilabel else shares, (len(test), 1))


def bag_of_words(task: Task) -> float:
    """Return the score of a linear model on bags of words.

    Features are single words and pairs of neighbouring words; for two texts, the features of each text and the ones
    that both share. Feature vectors of rows have norm 1. The loss is the cross-entropy of a softmax, of a sigmoid for
    each label with several labels a row, of a softmax over the answers of a question in a choice, or the squared error
    in a regression, with an L2 penalty. At most 20,000 training rows are used. Two marked spans count as a second text.
    """
    return headline(task, _linear)


def _linear(task: Task) -> Any:
    import numpy as np

    train, test = task.train, _tested(task)
    if len(train) > ROWS:
        units = task.units(train)
        kept = ROWS * len(units) // len(train)  # questions, or rows, evenly spread
        step = len(units) / kept
        train = train.take([row for i in range(kept) for row in units[int(i * step)]])
    outputs = task.outputs
    known = vocabulary(train, max(1000, min(FEATURES, WEIGHTS // outputs)))
    inputs, targets = matrix(train, known), task.array(train)
    if task.regression:
        low, high = task.span
        targets = (np.asarray(train.targets, dtype=np.float64)[:, None] - low) / (high - low)
    elif task.choice:
        targets = targets[:, None].astype(np.float64)
    elif not task.multilabel:
        targets = np.eye(outputs)[targets]
    return matrix(test, known) @ _fit(inputs, targets, task.kind, [rows[0] for rows in task.units(train)])


def by_word(train: Tagged, test: Tagged) -> tuple[Any, Any]:
    """Return two predictions (words,) for tagged sentences: the most frequent tag, and the most frequent of each word.

    A word that does not occur in training gets the most frequent tag of all. Of equally frequent tags, the one with
    the smallest number is taken.
    """
    import numpy as np

    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for words, targets in zip(train.words, train.targets, strict=True):
        for word, target in zip(words, targets, strict=True):
            counts[word][target] += 1

    def most_frequent(counts: Counter[int]) -> int:
        return min(counts, key=lambda target: (-counts[target], target))

    most = most_frequent(Counter(target for targets in train.targets for target in targets))
    of_word = {word: most_frequent(targets) for word, targets in counts.items()}
    looked_up = np.array([of_word.get(word, most) for words in test.words for word in words])
    return np.full(len(looked_up), most), looked_up


def _grams(text: str) -> set[str]:
    words = WORD.findall(text.lower())
    return {*words, *map(" ".join, pairwise(words))}


def _rows(examples: Examples) -> list[set[str]]:
    second = examples.second
    if examples.spans is not None:
        marked = zip(examples.first, examples.spans, strict=True)
        second = [" ".join(text[start:end] for start, end in spans) for text, spans in marked]
    ones = [_grams(text) for text in examples.first]
    if second is None:
        return ones
    pairs = zip(ones, map(_grams, second), strict=True)
    return [{"1" + w for w in one} | {"2" + w for w in two} | {"=" + w for w in one & two} for one, two in pairs]


def vocabulary(examples: Examples, most: int) -> dict[str, int]:
    """Return the column of each feature that occurs in two rows or more, at most `most`; column 0 is the constant."""
    counts = Counter(word for row in _rows(examples) for word in row)
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


def _fit(inputs: Any, targets: Any, kind: str, starts: list[int] | None = None) -> Any:
    """Return the weights (features, outputs) that minimise the loss with its penalty, by L-BFGS from zero.

    The loss belongs to tasks of this kind (`Task.kind`). The weight of the constant is not penalised. In a choice,
    `starts` are the first rows of the questions.
    """
    import numpy as np
    from scipy.optimize import minimize
    from scipy.special import expit

    starts = list(range(len(targets))) if starts is None else starts
    rows, shape = len(starts), (inputs.shape[1], targets.shape[1])
    question = np.repeat(np.arange(rows), np.diff([*starts, len(targets)]))
    penalty = np.full(shape, 1 / (STRENGTH * rows))
    penalty[0] = 0.0
    transposed = inputs.T.tocsr()

    def loss(flat: Any) -> tuple[float, Any]:
        weights = flat.reshape(shape)
        scores = inputs @ weights
        if kind in ("classification", "choice"):
            if kind == "classification":
                scores = scores - scores.max(1, keepdims=True)
                logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
            else:
                scores = scores - np.maximum.reduceat(scores, starts)[question]
                logs = scores - np.log(np.add.reduceat(np.exp(scores), starts))[question]
            value, error = -(targets * logs).sum() / rows, np.exp(logs) - targets
        elif kind == "multilabel":
            value = (np.logaddexp(0, scores) - targets * scores).sum() / rows
            error = expit(scores) - targets
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
