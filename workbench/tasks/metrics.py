"""Metrics of fine-tuning, as fractions; an undefined score counts as 0, which means no skill, and never as NaN."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

Floats = Any  # numpy arrays (N,) of labels or numbers; numpy is imported late


def accuracy(predicted: Floats, true: Floats) -> float:
    """Return the share of predictions that equal the true label."""
    return float((predicted == true).mean())


def f1(predicted: Floats, true: Floats) -> float:
    """Return F1 of label 1, the positive class of tasks with two labels; 0 if it is neither predicted nor true."""
    return _f1_of(1, predicted, true)


def macro_f1(predicted: Floats, true: Floats) -> float:
    """Return the unweighted mean of F1 over the labels that occur in the predictions or in the truth."""
    labels = sorted(set(true.tolist()) | set(predicted.tolist()))
    return sum(_f1_of(label, predicted, true) for label in labels) / len(labels)


def _f1_of(label: int, predicted: Floats, true: Floats) -> float:
    hits = int(((predicted == label) & (true == label)).sum())
    total = int((predicted == label).sum() + (true == label).sum())
    return 2 * hits / total if total else 0.0


def matthews(predicted: Floats, true: Floats) -> float:
    """Return the Matthews correlation, for any number of labels (Gorodkin 2004); 0 if either side is constant."""
    import numpy as np

    rows = len(true)
    codes = np.unique(np.concatenate([predicted, true]), return_inverse=True)[1]
    guessed, actual = (np.bincount(side, minlength=codes.max() + 1) for side in (codes[:rows], codes[rows:]))
    covariance = rows * int((predicted == true).sum()) - int((guessed * actual).sum())
    spread = (rows**2 - int((guessed**2).sum())) * (rows**2 - int((actual**2).sum()))
    return covariance / math.sqrt(spread) if spread else 0.0


def pearson(predicted: Floats, true: Floats) -> float:
    """Return Pearson's linear correlation; 0 if either side is constant."""
    import numpy as np

    a, b = (np.asarray(x, dtype=np.float64) for x in (predicted, true))
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    a, b = (x - x.mean() for x in (a, b))
    # Scaled, so that squares of tiny or huge numbers neither underflow nor overflow.
    a, b = (x / np.abs(x).max() for x in (a, b))
    return float(np.clip((a * b).sum() / math.sqrt(float((a**2).sum() * (b**2).sum())), -1.0, 1.0))


def spearman(predicted: Floats, true: Floats) -> float:
    """Return Spearman's rank correlation, where ties share their mean rank; 0 if either side is constant."""
    from scipy.stats import rankdata

    return pearson(rankdata(predicted), rankdata(true))


METRICS: dict[str, Callable[[Floats, Floats], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def measure(names: Iterable[str], predicted: Floats, true: Floats) -> dict[str, float]:
    """Return each named metric of predictions (N,) against the truth (N,)."""
    import numpy as np

    predicted, true = np.asarray(predicted), np.asarray(true)
    assert predicted.shape == true.shape and predicted.ndim == 1 and len(true)
    return {name: METRICS[name](predicted, true) for name in names}
