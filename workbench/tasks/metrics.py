"""Metrics of fine-tuning, as fractions; an undefined score counts as 0, which means no skill, and never as NaN."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any

Floats = Any  # numpy arrays (N,) of labels or numbers; numpy is imported late


def accuracy(predicted: Floats, true: Floats) -> float:
    """Return the share of predictions that equal the true label."""
    return float((predicted == true).mean())


def f1(predicted: Floats, true: Floats) -> float:
    """Return F1 of label 1, the positive class of tasks with two labels; 0 if it is neither predicted nor true."""
    from sklearn.metrics import f1_score

    return float(f1_score(true, predicted, labels=[1], average="macro", zero_division=0))


def macro_f1(predicted: Floats, true: Floats) -> float:
    """Return the unweighted mean of F1 over the labels that occur in the predictions or in the truth."""
    from sklearn.metrics import f1_score

    return float(f1_score(true, predicted, average="macro", zero_division=0))


def matthews(predicted: Floats, true: Floats) -> float:
    """Return the Matthews correlation, for any number of labels (Gorodkin 2004); 0 if either side is constant."""
    from sklearn.metrics import matthews_corrcoef

    return 0.0 if _constant(predicted, true) else float(matthews_corrcoef(true, predicted))


def pearson(predicted: Floats, true: Floats) -> float:
    """Return Pearson's linear correlation; 0 if either side is constant."""
    from scipy.stats import pearsonr

    if _constant(predicted, true):
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # values that differ by little more than rounding
        correlation = float(pearsonr(predicted, true).statistic)
    return 0.0 if math.isnan(correlation) else correlation


def spearman(predicted: Floats, true: Floats) -> float:
    """Return Spearman's rank correlation, where ties share their mean rank; 0 if either side is constant."""
    from scipy.stats import spearmanr

    return 0.0 if _constant(predicted, true) else float(spearmanr(predicted, true).statistic)


def _constant(predicted: Floats, true: Floats) -> bool:
    """Return whether all predictions are equal, or all labels."""
    return bool((predicted == predicted[0]).all() or (true == true[0]).all())


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
