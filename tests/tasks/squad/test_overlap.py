"""Baselines of SQuAD that read no text with an encoder."""

from __future__ import annotations

from pathlib import Path

import squad_made
from squad_tasks import load

from workbench.tasks._squad_answers import nearest_overlap
from workbench.tasks.squad import Question, Questions


def test_the_nearest_sentence_answers() -> None:
    texts = [f"Filler about nothing at the end. The cats number {n} sleep. They lie." for n in range(12)]
    texts[3] = "Filler about nothing at the end. The Berlin lies at the river Havel. Cats sleep."
    row = Question("q", "At which river lies Berlin?", 3, (("Havel", 0),), False, "x")
    rows = [row, *(Question(f"q{n}", "Why?", n, (("x", 0),), False, "x") for n in range(12) if n != 3)]
    answers, odds = nearest_overlap(Questions(texts, rows))
    assert answers["q"] == "Havel" and -1 <= odds["q"] < 0 and odds["q0"] == 0


def test_baselines_of_2_are_those_of_never_answering_and_of_overlap(tmp_path: Path) -> None:
    task = load("squad2", squad_made.write(tmp_path, unanswerable=True))
    assert task.baselines()["majority"] == 50 <= task.baselines()["nearest-overlap"]
