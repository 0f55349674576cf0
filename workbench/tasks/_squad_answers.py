"""Exact match and F1 of answers, as the official evaluation scripts of SQuAD 1.1 and 2.0 compute them.

Both compare answers in lower case, without ASCII punctuation, articles and repeated blanks, and take the best of a
question's reference answers. They differ in an answer that is empty after that: F1 of two empty answers is 0 in 1.1
and 1 in 2.0. All results are times 100. Scripts: `evaluate-v1.1.py` and `evaluate-v2.0.py` of Rajpurkar et al., in the
released code `finetune/qa/squad_official_eval_v1.py` and `squad_official_eval.py`.
"""

from __future__ import annotations

import functools
import math
import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.errors import Diverged, plural
from workbench.process import heed
from workbench.spec.host import Host
from workbench.store.atomic import dumps
from workbench.tasks._squad_model import SpanModel, Windows, best_spans, limits, span_loss, windows
from workbench.tasks.common.contract import Model, Scores
from workbench.tasks.common.cost import step_count
from workbench.tasks.common.encoder_folders import load_encoder
from workbench.tasks.common.fine_tuning import Setting, fit, setting
from workbench.tasks.common.token_rows import by_length, check_tokens, shuffled
from workbench.tasks.squad import ANSWER, N_BEST, THRESHOLD, Questions, Squad
from workbench.tensors import to_device

ARTICLE = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def words(answer: str) -> list[str]:
    """Return the words of an answer that are compared."""
    return ARTICLE.sub(" ", answer.lower().translate(_NO_PUNCTUATION)).split()


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
            matched += any(words(gold) == words(answers[row.id]) for gold, _ in row.answers)
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
    for kind in ("exact", "f1"):
        raw: dict[str, float] = {}  # agreement with the best reference, or with "" if no reference has words
        for row in (row for row in questions.rows if row.id in answers):
            golds, answer = [gold for gold, _ in row.answers if words(gold)] or [""], answers[row.id]
            same = (
                float(words(gold) == words(answer)) if kind == "exact" else f1(gold, answer, True) for gold in golds
            )
            raw[row.id] = max(same)
        scores = {id: float(not has_answer[id]) if null_odds[id] > threshold else raw[id] for id in raw}
        sides = {kind: [*scores.values()]}
        for name, answerable in (("HasAns", True), ("NoAns", False)):
            sides[f"{name}_{kind}"] = [score for id, score in scores.items() if has_answer[id] is answerable]
        metrics |= {name: 100 * sum(each) / len(each) for name, each in sides.items() if each}
        metrics.setdefault(kind, 0.0)
        metrics[f"best_{kind}"], thresholds[f"best_{kind}"] = _best(raw, answers, null_odds, has_answer)
    return metrics, thresholds


def _best(
    raw: Mapping[str, float], answers: Mapping[str, str], null_odds: Mapping[str, float], has_answer: Mapping[str, bool]
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


# ---- the best answers of all windows ----
# As in the released code (`finetune/qa/qa_metrics.py`): an answer begins in the window that has the most context
# around its first token, has at most 30 tokens, and is ranked by the sum of the scores of its start and its end over
# all windows. The odds of no answer are the least of all windows. A question without any candidate gets the text
# "empty".

KEPT = 10 * N_BEST  # candidates of a window that are kept; texts may repeat among them
NOTHING = "empty"  # as in the released code
# Of one window, the best first: scores of starts (C,) and of ends (C,), tokens (C, 2).
Candidates = tuple[Any, Any, Any]


@dataclass(frozen=True)
class Answers:
    """Answers to each question by its id."""

    best: dict[str, list[dict[str, Any]]]  # the N best, as the official layout has them
    texts: dict[str, str]  # the best one that has text
    null_odds: dict[str, float]  # log-odds of no answer


def candidates(spans: dict[str, Any], row: int, first: int, count: int, start: int) -> Candidates:
    """Return the candidates among the best spans of a window, row `row` of the arrays of `best_spans`.

    The window's tokens begin at `first` in the row and at `start` in the paragraph.
    """
    starts, ends = spans["starts"][row][:, None] - first, spans["ends"][row] - first  # (K, 1), (K, K)
    valid = spans["begins"][row][:, None] & (ends >= starts) & (ends - starts < ANSWER) & (ends < count)
    one, two = np.nonzero(valid)
    start_scores, end_scores = spans["start_scores"][row][one], spans["end_scores"][row][one, two]
    order = np.argsort(-(start_scores + end_scores), kind="stable")[:KEPT]
    tokens = np.stack([starts[one, 0], ends[one, two]], 1)[order] + start
    return start_scores[order], end_scores[order], tokens


def collected(questions: Questions, windows: Windows, by_window: Sequence[Candidates], nulls: Any) -> Answers:
    """Return the answers from the candidates of all windows and their odds of no answer, `nulls` (N,)."""
    best: dict[str, list[dict[str, Any]]] = {}
    null_odds: dict[str, float] = {}
    ends = np.searchsorted(windows.rows[:, 0], np.arange(len(questions) + 1))
    for number, row in enumerate(questions.rows):
        part = slice(ends[number], ends[number + 1])
        offsets = windows.offsets[windows.rows[part.start, 1]]
        text = questions.paragraphs[row.paragraph]
        best[row.id] = _best_texts(by_window[part], offsets, text)
        null_odds[row.id] = float(nulls[part].min())
    texts = {id: next((each["text"] for each in nbest if each["text"]), NOTHING) for id, nbest in best.items()}
    return Answers(best, texts, null_odds)


def _best_texts(by_window: Sequence[Candidates], offsets: Any, text: str) -> list[dict[str, Any]]:
    starts, ends, spans = (np.concatenate(each) for each in zip(*by_window, strict=True))
    chosen: dict[str, tuple[float, float]] = {}
    for place in np.argsort(-(starts + ends), kind="stable"):
        first, last = spans[place]
        answer = text[offsets[first, 0] : offsets[last, 1]]
        chosen.setdefault(answer, (round(float(starts[place]), 5), round(float(ends[place]), 5)))
        if len(chosen) == N_BEST:
            break
    chosen = chosen or {NOTHING: (0.0, 0.0)}
    scores = np.array([sum(each) for each in chosen.values()])
    weights = np.exp(scores - scores.max())
    return [
        {"text": answer, "probability": round(float(share), 6), "start_logit": pair[0], "end_logit": pair[1]}
        for (answer, pair), share in zip(chosen.items(), weights / weights.sum(), strict=True)
    ]


# ---- baselines ----
# `nearest-overlap` takes the sentence of the paragraph that shares most words with the question, each word weighted by
# its rarity among paragraphs. The answer is the run of consecutive words of this sentence that are not in the question
# and have the largest total rarity.

WORD = re.compile(r"\w+")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
COMMON = 0.1  # share of paragraphs above which a word is too common for an answer, and ends a run
LONGEST = 5  # words of an answer

Span = tuple[int, int]  # of characters


def baselines(task: Squad) -> dict[str, float]:
    """Return the headline metric of each baseline on the first test part."""
    test = next(iter(task.tests.values()))
    answers, odds = nearest_overlap(test)
    if not task.unanswerable:
        return {"nearest-overlap": answerable_metrics(test, answers)["f1"]}
    best_f1 = unanswerable_metrics(test, answers, odds, 0.0)[0]["best_f1"]
    none = unanswerable_metrics(test, answers, dict.fromkeys(odds, 1.0), 0.0)[0]["f1"]
    return {"majority": none, "nearest-overlap": best_f1}


def nearest_overlap(questions: Questions) -> tuple[dict[str, str], dict[str, float]]:
    """Return the answer to each question by its id, and the odds of none: minus the overlap's share of the question."""
    numbers = {row.paragraph for row in questions.rows}
    words_of = {number: {w.lower() for w in WORD.findall(questions.paragraphs[number])} for number in numbers}
    counts = Counter(word for words in words_of.values() for word in words)
    rarity = {word: math.log(len(numbers) / count) for word, count in counts.items()}  # log of 1 / share of paragraphs
    answers, odds = {}, {}
    sentences = functools.cache(lambda number: list(_sentences(questions.paragraphs[number])))
    for row in questions.rows:
        asked = {word.lower() for word in WORD.findall(row.text)}
        text = questions.paragraphs[row.paragraph]
        best, most = (0, len(text)), -1.0
        for start, end in sentences(row.paragraph):
            both = asked & {w.lower() for w in WORD.findall(text, start, end)}
            shared = math.fsum(rarity.get(word, 0.0) for word in both)  # the same in every order of a set
            if shared > most:
                best, most = (start, end), shared
        start, end = _answer(text, best, asked, rarity)
        answers[row.id] = text[start:end]
        odds[row.id] = -max(0.0, most) / (math.fsum(rarity.get(word, 0.0) for word in asked) or 1.0)
    return answers, odds


def _sentences(text: str) -> Iterator[Span]:
    """Yield the first character and the end of each sentence."""
    start = 0
    for match in SENTENCE_END.finditer(text):
        yield start, match.start()
        start = match.end()
    yield start, len(text)


def _answer(text: str, sentence: Span, asked: set[str], rarity: Mapping[str, float]) -> Span:
    """Return the run of words with the largest total rarity, none of them common or in the question."""
    runs: list[list[re.Match[str]]] = [[]]
    for match in WORD.finditer(text, *sentence):
        word = match[0].lower()
        if word in asked or rarity.get(word, 0.0) < -math.log(COMMON):
            runs.append([])
        elif len(runs[-1]) < LONGEST:
            runs[-1].append(match)
    best = max(runs, key=lambda run: sum(rarity[each[0].lower()] for each in run))
    return (best[0].start(), best[-1].end()) if best else sentence


# ---- fine-tuning and score ----


def answer(task: Squad, trial: Model, host: Host) -> Scores:
    """Fine-tune a copy of an encoder to answer questions, and score it; its predictions are the `files` of the score.

    Everything random is a function of (seed, task). Raises InputError for a folder without an encoder or with a
    tokenizer without character offsets, and Diverged if the loss or an output is NaN or infinite.
    """
    encoder, spec = trial.folder, trial.options
    with setting(task.name, trial.seed, host, trial.unfinished) as where:
        model = SpanModel(load_encoder(encoder, spec.dropout, where.device), spec.squad_head == "joint")
        model = model.to(where.device)
        limit = limits(encoder, model.encoder.config, spec)
        parts = windows(encoder, model.encoder.config, {"train": task.train, **task.tests}, limit)
        for part in parts.values():
            ids = [*part.questions, *part.paragraphs, *part.frame.parts, [part.frame.pad]]
            check_tokens(encoder, ids, model.encoder.get_input_embeddings().num_embeddings)
        train = parts["train"]
        steps = step_count(len(train), task.settings(spec)["epochs"], spec)

        def loss_of(rows: Any) -> Tensor:
            with where.autocast():
                return span_loss(model, train.batch(rows, where.device), spec.sum_loss)

        order = shuffled(train.lengths, spec.batch, where.order)
        earlier = fit(model, loss_of, order, steps, spec, where, trial.progress)
        answers = {name: answers_of(model, task.tests[name], parts[name], where) for name in task.tests}

    results: dict[str, tuple[dict[str, float], dict[str, float]]] = {}
    for name, each in answers.items():
        if task.unanswerable:
            results[name] = unanswerable_metrics(task.tests[name], each.texts, each.null_odds, THRESHOLD)
        else:
            results[name] = answerable_metrics(task.tests[name], each.texts), {}
    first, held = next(iter(results)), train.spans[:, 0] >= 0
    with_answer = set(train.rows[held, 0].tolist())
    details = {
        "windows": {
            "length": limit.length, "query": limit.query, "stride": limit.stride,
            "count": {name: len(part) for name, part in parts.items()},
            "most_of_a_question": max(max(Counter(part.rows[:, 0].tolist()).values()) for part in parts.values()),
            "train_with_the_answer": int(held.sum()),
            "questions_without_the_answer": sum(
                not row.impossible and number not in with_answer for number, row in enumerate(task.train.rows)
            ),
        },
        "thresholds": results[first][1], "faults": dict(task.faults),
        "notes": [f"{plural(count, 'time')}: {phrase}" for phrase, count in task.faults.items()],
    }  # fmt: skip
    files = {".preds.json": dumps(answers[first].texts), ".nbest.json": dumps(answers[first].best)}
    files |= {".null_odds.json": dumps(answers[first].null_odds)} if task.unanswerable else {}
    values, rows = {name: scores for name, (scores, _) in results.items()}, (len(task.train), len(task.tests[first]))
    return Scores(values, rows, details, files, **where.effort(steps, earlier))


def answers_of(model: SpanModel, questions: Questions, part: Windows, where: Setting) -> Answers:
    """Return the answers of a model to all questions of a part. Raises Diverged if an output is not finite."""
    by_window: list[Candidates] = [(None,) * 3] * len(part)
    nulls = np.zeros(len(part), dtype=np.float32)
    with torch.inference_mode(), where.autocast():
        for rows in by_length(part.lengths):
            heed()
            batch = part.batch(rows, where.device)
            spans = best_spans(model, batch, to_device(part.begins(rows, batch.allowed.shape[1]), where.device))
            if not all(np.isfinite(spans[name]).all() for name in ("start_scores", "end_scores", "nulls")):
                raise Diverged(f"the outputs after fine-tuning on {where.task} (seed {where.seed}) are not finite")
            nulls[rows] = spans["nulls"]
            for place, row in enumerate(rows):
                _, _, start, count = part.rows[row]
                by_window[row] = candidates(spans, place, part.first[row], count, start)
    return collected(questions, part, by_window, nulls)
