"""Exact match and F1 of answers, as the official evaluation scripts of SQuAD 1.1 and 2.0 compute them.

Both compare answers in lower case, without ASCII punctuation, articles and repeated blanks, and take the best of a
question's reference answers. They differ in an answer that is empty after that: F1 of two empty answers is 0 in 1.1
and 1 in 2.0. All results are times 100. Scripts: `evaluate-v1.1.py` and `evaluate-v2.0.py` of Rajpurkar et al., in the
released code `finetune/qa/squad_official_eval_v1.py` and `squad_official_eval.py`.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping

from workbench.tasks.squad.questions import Questions

ARTICLE = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)

Scores = dict[str, float]  # by question id, each from 0 to 1


def words(answer: str) -> list[str]:
    """Return the words of an answer that are compared."""
    return ARTICLE.sub(" ", answer.lower().translate(_NO_PUNCTUATION)).split()


def exact(gold: str, answer: str) -> float:
    """Return 1 if both answers have the same words in the same order, else 0."""
    return float(words(gold) == words(answer))


def f1(gold: str, answer: str, empty_agree: bool) -> float:
    """Return F1 of two bags of words; if either is empty, it is 1 if both are and `empty_agree`, else 0."""
    right, guessed = words(gold), words(answer)
    if not right or not guessed:
        return float(empty_agree and right == guessed)
    same = sum((Counter(right) & Counter(guessed)).values())
    if not same:
        return 0.0
    precision, recall = same / len(guessed), same / len(right)
    return 2 * precision * recall / (precision + recall)


def answerable_metrics(questions: Questions, answers: Mapping[str, str]) -> dict[str, float]:
    """Return the metrics of SQuAD 1.1; a question without an answer in `answers`, text by id, counts as wrong."""
    matched = overlap = 0.0
    for row in questions.rows:
        if row.id in answers:
            matched += max(exact(gold, answers[row.id]) for gold, _ in row.answers)
            overlap += max(f1(gold, answers[row.id], False) for gold, _ in row.answers)
    return {"f1": 100 * overlap / len(questions), "exact": 100 * matched / len(questions)}


def unanswerable_metrics(
    questions: Questions, answers: Mapping[str, str], null_odds: Mapping[str, float], threshold: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the metrics of SQuAD 2.0, and the best thresholds of "no answer" by metric.

    `answers` holds the best text of each question, and `null_odds` a number that rises with the probability of no
    answer, both by id. "No answer" is predicted where it exceeds `threshold`; `best_exact` and `best_f1` use the
    threshold that gives the best score on the same questions. Questions that are not in `answers` are left out.
    """
    has_answer = {row.id: bool(row.answers) for row in questions.rows}
    metrics: dict[str, float] = {}
    thresholds: dict[str, float] = {}
    kinds: dict[str, Callable[[str, str], float]] = {"exact": exact, "f1": lambda gold, answer: f1(gold, answer, True)}
    for kind, agreement in kinds.items():
        raw = _raw(questions, answers, agreement)
        scores = {id: float(not has_answer[id]) if null_odds[id] > threshold else raw[id] for id in raw}
        metrics[kind] = _mean(scores)
        for name, side in (("HasAns", True), ("NoAns", False)):
            if part := {id: score for id, score in scores.items() if has_answer[id] is side}:
                metrics[f"{name}_{kind}"] = _mean(part)
        metrics[f"best_{kind}"], thresholds[f"best_{kind}"] = _best(raw, answers, null_odds, has_answer)
    return metrics, thresholds


def _raw(questions: Questions, answers: Mapping[str, str], agreement: Callable[[str, str], float]) -> Scores:
    """Return the agreement of each answer with the best of its references, or with "" if none of them has words."""
    scores = {}
    for row in questions.rows:
        if row.id in answers:
            golds = [gold for gold, _ in row.answers if words(gold)] or [""]
            scores[row.id] = max(agreement(gold, answers[row.id]) for gold in golds)
    return scores


def _mean(scores: Scores) -> float:
    return 100 * sum(scores.values()) / len(scores) if scores else 0.0


def _best(
    raw: Scores, answers: Mapping[str, str], null_odds: Mapping[str, float], has_answer: Mapping[str, bool]
) -> tuple[float, float]:
    """Return the best mean score over all thresholds, and the smallest threshold that reaches it.

    A question is answered if its odds of having no answer are at most the threshold. The threshold is raised past the
    odds of one question after another, from a value at which none is answered. Questions with equal odds are taken in
    the order of `null_odds`, as in the official script.
    """
    score = best = float(sum(not answerable for answerable in has_answer.values()))
    threshold = 0.0
    for id in sorted(null_odds, key=lambda id: null_odds[id]):
        if id not in raw:
            continue
        score += raw[id] if has_answer[id] else -float(bool(answers[id]))
        if score > best:
            best, threshold = score, null_odds[id]
    return (100 * best / len(raw) if raw else 0.0), threshold
