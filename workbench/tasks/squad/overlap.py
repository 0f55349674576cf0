"""Baselines of SQuAD that need no encoder: words in common with the question, and in 2.0 never an answer.

`nearest-overlap` takes the sentence that shares the most with the question, counting each word by how rare it is among
the paragraphs, and answers with a run of its words that the question does not have, the one with the rarest words.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache as remembered
from pathlib import Path

from workbench.tasks.baselines import cached
from workbench.tasks.squad.official_metrics import answerable_metrics, unanswerable_metrics
from workbench.tasks.squad.questions import Questions, Squad

VERSION = 1  # increase it when the computation of a baseline changes
WORD = re.compile(r"\w+")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
COMMON = 0.1  # a word in a larger share of the paragraphs ends a run
LONGEST = 5  # words of an answer

Span = tuple[int, int]  # of characters


def added(task: Squad, cache: Path | None = None) -> Squad:
    """Return the task with its baselines, which come from the cache if they were computed before."""
    return replace(task, baselines=cached(f"{task.fingerprint}-squad-{VERSION}", lambda: _computed(task), cache))


def _computed(task: Squad) -> dict[str, float]:
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
    rarity = _rarity(questions)
    answers, odds = {}, {}
    sentences = remembered(lambda number: list(_sentences(questions.paragraphs[number])))
    for row in questions.rows:
        asked = {word.lower() for word in WORD.findall(row.text)}
        text = questions.paragraphs[row.paragraph]
        best, most = (0, len(text)), -1.0
        for start, end in sentences(row.paragraph):
            shared = sum(rarity.get(word, 0.0) for word in asked & {w.lower() for w in WORD.findall(text, start, end)})
            if shared > most:
                best, most = (start, end), shared
        start, end = _answer(text, best, asked, rarity)
        answers[row.id] = text[start:end]
        odds[row.id] = -max(0.0, most) / (sum(rarity.get(word, 0.0) for word in asked) or 1.0)
    return answers, odds


def _rarity(questions: Questions) -> dict[str, float]:
    """Return the logarithm of one over the share of the paragraphs that have each word."""
    asked = {row.paragraph for row in questions.rows}
    counts = Counter(
        word for number in asked for word in {w.lower() for w in WORD.findall(questions.paragraphs[number])}
    )
    return {word: math.log(len(asked) / count) for word, count in counts.items()}


def _sentences(text: str) -> Iterator[Span]:
    """Yield the first character and the end of each sentence."""
    start = 0
    for match in SENTENCE_END.finditer(text):
        yield start, match.start()
        start = match.end()
    yield start, len(text)


def _answer(text: str, sentence: Span, asked: set[str], rarity: Mapping[str, float]) -> Span:
    """Return the run of words with the largest total rarity, none of them common or in the question."""
    ends_run = -math.log(COMMON)
    runs: list[list[re.Match[str]]] = [[]]
    for match in WORD.finditer(text, *sentence):
        word = match[0].lower()
        if word in asked or rarity.get(word, 0.0) < ends_run:
            runs.append([])
        elif len(runs[-1]) < LONGEST:
            runs[-1].append(match)
    best = max(runs, key=lambda run: sum(rarity[each[0].lower()] for each in run))
    return (best[0].start(), best[-1].end()) if best else sentence
