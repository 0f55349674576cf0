"""The metrics of fine-tuning, as fractions; a score that is not defined counts as no skill, 0, never as NaN."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

Floats = Any  # numpy arrays (N,) of labels or numbers; numpy is imported late


def accuracy(predicted: Floats, true: Floats) -> float:
    """Share of equal labels."""
    return float((predicted == true).mean())


def f1(predicted: Floats, true: Floats) -> float:
    """F1 of label 1, the positive class of the two-label tasks; 0 when it is neither predicted nor there."""
    return _f1_of(1, predicted, true)


def macro_f1(predicted: Floats, true: Floats) -> float:
    """Unweighted mean of F1 over the labels that are predicted or there."""
    labels = sorted(set(true.tolist()) | set(predicted.tolist()))
    return sum(_f1_of(label, predicted, true) for label in labels) / len(labels)


def _f1_of(label: int, predicted: Floats, true: Floats) -> float:
    hits = int(((predicted == label) & (true == label)).sum())
    total = int((predicted == label).sum() + (true == label).sum())
    return 2 * hits / total if total else 0.0


def matthews(predicted: Floats, true: Floats) -> float:
    """Matthews correlation, for any number of labels (Gorodkin 2004); 0 when either side is constant."""
    import numpy as np

    rows = len(true)
    codes = np.unique(np.concatenate([predicted, true]), return_inverse=True)[1]
    guessed, actual = (np.bincount(side, minlength=codes.max() + 1) for side in (codes[:rows], codes[rows:]))
    covariance = rows * int((predicted == true).sum()) - int((guessed * actual).sum())
    spread = (rows**2 - int((guessed**2).sum())) * (rows**2 - int((actual**2).sum()))
    return covariance / math.sqrt(spread) if spread else 0.0


def pearson(predicted: Floats, true: Floats) -> float:
    """Linear correlation; 0 when either side is constant."""
    import numpy as np

    a, b = (np.asarray(x, dtype=np.float64) for x in (predicted, true))
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    a, b = (x - x.mean() for x in (a, b))
    a, b = (x / np.abs(x).max() for x in (a, b))  # keeps tiny and huge numbers inside the range of squares
    return float(np.clip((a * b).sum() / math.sqrt(float((a**2).sum() * (b**2).sum())), -1.0, 1.0))


def spearman(predicted: Floats, true: Floats) -> float:
    """Correlation of ranks, ties sharing their mean rank; 0 when either side is constant."""
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
    """Each named metric of predictions (N,) against the truth (N,)."""
    import numpy as np

    predicted, true = np.asarray(predicted), np.asarray(true)
    assert predicted.shape == true.shape and predicted.ndim == 1 and len(true)
    return {name: METRICS[name](predicted, true) for name in names}
