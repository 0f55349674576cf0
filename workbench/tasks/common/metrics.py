"""Metrics of fine-tuning, as fractions; an undefined score counts as 0, which means no skill, and never as NaN."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from workbench.data.tagged_sentences import spans

Floats = Any  # numpy arrays (N,) of labels or numbers; numpy is imported late

OF_QUESTIONS = ("exact_match", "f1a_em")
CORRELATIONS = ("matthews", "pearson", "spearman")
OF_ORDER = ("average_precision", "pearson", "spearman")  # which compare outputs of one model with each other


def metric(name: str, predicted: Floats, true: Floats) -> float:
    """Return a metric of predictions (N,) against the truth (N,), for `micro_f1` both (N, labels) of 0 and 1.

    `f1` is F1 of label 1, the positive class of two; `macro_f1` is the mean over the labels that occur in either;
    `micro_f1` is computed over all labels together; `matthews` has any number of labels (Gorodkin 2004). Correlations
    are 0 if either side is constant, and ties share their mean rank.
    """
    from scipy.stats import pearsonr, spearmanr
    from sklearn.metrics import f1_score, matthews_corrcoef

    if name == "accuracy":
        return float((predicted == true).mean())
    if name in CORRELATIONS and ((predicted == predicted[0]).all() or (true == true[0]).all()):
        return 0.0
    if name == "matthews":
        return float(matthews_corrcoef(true, predicted))
    if name == "spearman":
        return float(spearmanr(predicted, true).statistic)
    if name == "pearson":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # values that differ by little more than rounding
            correlation = float(pearsonr(predicted, true).statistic)
        return 0.0 if math.isnan(correlation) else correlation  # a sum of huge values is infinite
    labels, average = ([1], "macro") if name in ("f1", "f1a") else (None, name.removesuffix("_f1"))
    return float(f1_score(true, predicted, labels=labels, average=average, zero_division=0))


def average_precision(scores: Floats, true: Floats) -> float:
    """Return the mean over labels of the average precision by which `scores` (N, labels) order the rows.

    A label that no row has is left out. The truth is (N, labels), each 0 or 1, or the label of each row (N,); of two
    labels that exclude each other, only the second, positive one counts, as in `f1`.
    """
    import numpy as np
    from sklearn.metrics import average_precision_score

    columns = [1] if true.ndim == 1 and scores.shape[1] == 2 else range(scores.shape[1])
    right = true == 1 if true.ndim == 2 else true[:, None] == np.arange(scores.shape[1])
    values = [float(average_precision_score(right[:, n], scores[:, n])) for n in columns if right[:, n].any()]
    return float(np.mean(values)) if values else 0.0


def choice_accuracy(scores: Floats, true: Floats, groups: Floats) -> float:
    """Return the share of questions whose right answer has the largest score; k answers that share it count 1/k.

    `scores` (N,), `true` (N,), each 0 or 1, and the numbers of the questions (N,) have an entry for each answer.
    """
    import numpy as np

    _, places = np.unique(groups, return_inverse=True)
    best = np.full(places.max() + 1, -np.inf)
    np.maximum.at(best, places, scores)
    largest = scores == best[places]
    right, shared = (np.bincount(places, weights=each) for each in (largest & (true == 1), largest))
    return float((right / shared).mean())


def judged(kind: str, names: Iterable[str], outputs: Floats, true: Floats, groups: Any = None) -> dict[str, float]:
    """Return each named metric of outputs (N, labels) of a task of this kind (`Task.kind`) against the truth.

    In a classification the label with the largest output is predicted, with several labels a row each one whose
    probability is above one half, and in a choice the answer with the largest output. `groups` are the numbers of the
    questions to which the rows belong. `f1a_em` is the mean of F1 over all answers and the exact match of questions, as
    SuperGLUE averages MultiRC.
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
    values = {}
    for name in names:
        if name in OF_QUESTIONS:
            _, places = np.unique(groups, return_inverse=True)
            exact = float((np.bincount(places, weights=predicted != true) == 0).mean())  # all answers judged rightly
            values[name] = exact if name == "exact_match" else (metric("f1", predicted, true) + exact) / 2
        elif name == "average_precision":
            values[name] = average_precision(scores, true)
        else:
            values[name] = metric(name, predicted, true)
    return values


# ---- tags of words ----
# Precision, recall and F1 are computed as seqeval and scikit-learn compute them, to the last digit; 0 stands for an
# undefined value.

Tags = Sequence[Sequence[str]]  # of the words of each sentence


def unit_scores(right: int, predicted: int, gold: int) -> dict[str, float]:
    """Return F1, precision (of the predicted units) and recall (of the gold units)."""
    precision, recall = right / predicted if predicted else 0.0, right / gold if gold else 0.0
    total = precision + recall
    return {"f1": 2 * precision * recall / total if total else 0.0, "precision": precision, "recall": recall}


def hits_of(gold: Tags, predicted: Tags, of_spans: bool) -> dict[str, tuple[int, int, int]]:
    """Return for each type of span, or tag of single words, how many are right, were predicted, and are in the gold.

    A span is right if its type and both ends are.
    """

    def units(side: Tags) -> set[Any]:
        if of_spans:
            return {(number, *span) for number, tags in enumerate(side) for span in spans(tags)}
        return set(enumerate(chain(*side)))

    true, guessed = units(gold), units(predicted)
    counts = [Counter(kind for *_, kind in each) for each in (true & guessed, guessed, true)]
    return {kind: (counts[0][kind], counts[1][kind], counts[2][kind]) for kind in sorted(counts[1] | counts[2])}


def span_scores(gold: Tags, predicted: Tags) -> dict[str, float]:
    """Return F1, precision and recall of the spans of all types together."""
    each = hits_of(gold, predicted, True).values()
    return unit_scores(*(map(sum, zip(*each, strict=True)) if each else (0, 0, 0)))


def gold_and_predicted(labels: Sequence[str], rows: Any, predicted: Any) -> tuple[list[list[str]], list[list[str]]]:
    """Return the gold tags of tagged sentences, and the tags with the predicted numbers (words,) in `labels`."""
    numbers = iter(predicted.tolist())
    gold = [[labels[target] for target in targets] for targets in rows.targets]
    return gold, [[labels[next(numbers)] for _ in words] for words in rows.words]
