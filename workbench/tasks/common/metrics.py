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


def micro_f1(predicted: Floats, true: Floats) -> float:
    """Return F1 over all labels of all rows together, of predictions (N, labels), each 0 or 1."""
    from sklearn.metrics import f1_score

    return float(f1_score(true, predicted, average="micro", zero_division=0))


def average_precision(scores: Floats, true: Floats) -> float:
    """Return the mean over labels of the average precision by which `scores` (N, labels) order the rows.

    A label that no row has is left out. The truth is (N, labels), each 0 or 1, or the label of each row (N,); of two
    labels that exclude each other, only the second, positive one counts, as in `f1`.
    """
    import numpy as np
    from sklearn.metrics import average_precision_score

    if true.ndim == 1:
        columns = [1] if scores.shape[1] == 2 else range(scores.shape[1])
        pairs = [(true == label, scores[:, label]) for label in columns]
    else:
        pairs = [(true[:, label] == 1, scores[:, label]) for label in range(true.shape[1])]
    values = [float(average_precision_score(right, score)) for right, score in pairs if right.any()]
    return float(np.mean(values)) if values else 0.0


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


def choice_accuracy(scores: Floats, true: Floats, groups: Floats) -> float:
    """Return the share of questions whose right answer has the largest score; k answers that share it count 1/k.

    The scores (N,), the truth (N,), each 0 or 1, and the numbers of the questions (N,) are those of all answers.
    """
    import numpy as np

    _, places = np.unique(groups, return_inverse=True)
    best = np.full(places.max() + 1, -np.inf)
    np.maximum.at(best, places, scores)
    largest = scores == best[places]
    right, shared = (np.bincount(places, weights=each) for each in (largest & (true == 1), largest))
    return float((right / shared).mean())


def exact_match(predicted: Floats, true: Floats, groups: Floats) -> float:
    """Return the share of questions all of whose answers (N,) are judged rightly."""
    import numpy as np

    _, places = np.unique(groups, return_inverse=True)
    wrong = np.bincount(places, weights=predicted != true)
    return float((wrong == 0).mean())


def f1a_em(predicted: Floats, true: Floats, groups: Floats) -> float:
    """Return the mean of F1 over all answers and the exact match of questions, as SuperGLUE averages MultiRC."""
    return (f1(predicted, true) + exact_match(predicted, true, groups)) / 2


METRICS: dict[str, Callable[[Floats, Floats], float]] = {
    "accuracy": accuracy,
    "average_precision": average_precision,
    "f1": f1,
    "f1a": f1,
    "macro_f1": macro_f1,
    "matthews": matthews,
    "micro_f1": micro_f1,
    "pearson": pearson,
    "spearman": spearman,
}


OF_QUESTIONS = {"exact_match": exact_match, "f1a_em": f1a_em}
OF_ORDER = ("average_precision", "pearson", "spearman")  # which compare outputs of one model with each other


def judged(
    kind: str, names: Iterable[str], outputs: Floats, true: Floats, groups: list[int] | None = None
) -> dict[str, float]:  # fmt: skip
    """Return each named metric of outputs (N, labels) of a task of this kind (`Task.kind`) against the truth.

    In a classification the label with the largest output is predicted, with several labels a row each one whose
    probability is above one half, and in a choice the answer with the largest output. `groups` are the numbers of the
    questions to which the rows belong.
    """
    import numpy as np
    from scipy.special import softmax

    scores = predicted = outputs
    if kind == "choice":
        return {name: choice_accuracy(outputs[:, 0], true, groups) for name in names}
    if kind == "regression":
        predicted = outputs[:, 0].astype(np.float64)  # as correlations of written predictions are computed
    elif kind == "multilabel":
        predicted = (outputs > 0).astype(np.int64)
    else:
        scores, predicted = softmax(outputs, axis=1), outputs.argmax(1)
    return {
        name: OF_QUESTIONS[name](predicted, true, groups) if name in OF_QUESTIONS
        else METRICS[name](scores if name == "average_precision" else predicted, true)
        for name in names
    }  # fmt: skip


def measure(names: Iterable[str], predicted: Floats, true: Floats) -> dict[str, float]:
    """Return each named metric of predictions (N,) against the truth (N,)."""
    import numpy as np

    predicted, true = np.asarray(predicted), np.asarray(true)
    assert predicted.shape == true.shape and predicted.ndim == 1 and len(true)
    return {name: METRICS[name](predicted, true) for name in names}
