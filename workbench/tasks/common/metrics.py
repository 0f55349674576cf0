"""Metrics of fine-tuning, as fractions; an undefined score counts as 0, which means no skill, and never as NaN."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.data.tagged_sentences import spans

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


# ---- tags of words ----

# Precision, recall and F1 are computed as seqeval and scikit-learn compute them, to the last digit; 0 stands for an
# undefined value.

Tags = Sequence[Sequence[str]]  # of the words of each sentence


@dataclass(frozen=True)
class Hits:
    """How many units were predicted right, predicted at all, and are in the gold standard."""

    right: int
    predicted: int
    gold: int

    @property
    def precision(self) -> float:
        """Return the share of predicted units that are right."""
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Return the share of gold units that were predicted."""
        return self.right / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """Return the harmonic mean of precision and recall."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def span_hits(gold: Tags, predicted: Tags) -> dict[str, Hits]:
    """Return the hits of each type of span, right if type and both ends are, in the order of the types' names."""
    of_gold, of_predicted, of_right = Counter[str](), Counter[str](), Counter[str]()
    for true, guess in zip(gold, predicted, strict=True):
        gold_spans, predicted_spans = spans(true), spans(guess)
        of_gold.update(kind for *_, kind in gold_spans)
        of_predicted.update(kind for *_, kind in predicted_spans)
        of_right.update(kind for *_, kind in gold_spans & predicted_spans)
    return {kind: Hits(of_right[kind], of_predicted[kind], of_gold[kind]) for kind in sorted(of_gold | of_predicted)}


def word_hits(gold: Tags, predicted: Tags) -> dict[str, Hits]:
    """Return the hits of each tag of single words, in the order of the tags."""
    true, guess = (Counter(tag for tags in side for tag in tags) for side in (gold, predicted))
    pairs = zip(flat(gold), flat(predicted), strict=True)
    right = Counter(tag for tag, other in pairs if tag == other)
    return {tag: Hits(right[tag], guess[tag], true[tag]) for tag in sorted(true | guess)}


def micro(hits: Iterable[Hits]) -> Hits:
    """Return the hits of all types together."""
    each = list(hits)
    return Hits(sum(h.right for h in each), sum(h.predicted for h in each), sum(h.gold for h in each))


def gold_tags(labels: Sequence[str], rows: Any) -> list[list[str]]:
    """Return the tags of each sentence, whose numbers are places in `labels`."""
    return [[labels[target] for target in targets] for targets in rows.targets]


def tags_of(labels: Sequence[str], rows: Any, predicted: Any) -> list[list[str]]:
    """Return the predicted tags of each sentence, from label numbers (words,)."""
    numbers: Iterator[int] = iter(predicted.tolist())
    return [[labels[next(numbers)] for _ in words] for words in rows.words]


def flat(tags: Tags) -> list[str]:
    return [tag for of_sentence in tags for tag in of_sentence]
