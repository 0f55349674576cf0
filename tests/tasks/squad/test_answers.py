"""Candidates for answers in windows against slow loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import squad_made
from hypothesis import given
from hypothesis import strategies as st

from workbench.tasks._squad_answers import Candidates, candidates, collected
from workbench.tasks._squad_model import Limits, Windows, windows
from workbench.tasks.common.encoder_folders import load_encoder
from workbench.tasks.squad import Questions, read_questions


def made(folder: Path, limit: Limits, questions: Questions) -> Windows:
    config = load_encoder(folder, 0.0).config
    return windows(folder, config, {"train": questions}, limit)["train"]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Questions:
    folder = squad_made.write(tmp_path_factory.mktemp("squad"), unanswerable=True, longest=40)
    return read_questions([folder / "train-v2.0.json"], True, training=True)[0]


@given(st.integers(0, 2**32))
def test_candidates_are_those_of_a_slow_loop(seed: int) -> None:
    """Released code: ends are not before the start, at most 30 tokens, and inside the window, ranked by their sum."""
    random = np.random.default_rng(seed)
    width, first, start, beam = 60, 9, 100, 8
    count = int(random.integers(1, width - first))
    spans: dict[str, Any] = {
        "starts": np.stack([random.permutation(width)[:beam]]), "start_scores": random.normal(size=(1, beam)),
        "ends": np.stack([random.permutation(width)[:beam] for _ in range(beam)])[None],
        "end_scores": random.normal(size=(1, beam, beam)),
    }  # fmt: skip
    inside = (spans["starts"] >= first) & (spans["starts"] < first + count)
    spans["begins"] = inside & (random.random((1, beam)) < 0.7)
    expected = []
    for i in range(beam):
        for j in range(beam):
            one, two = spans["starts"][0, i], spans["ends"][0, i, j]
            if spans["begins"][0, i] and one <= two < min(one + 30, first + count):
                score = spans["start_scores"][0, i] + spans["end_scores"][0, i, j]
                expected.append((score, (one - first + start, two - first + start)))
    expected.sort(key=lambda each: -each[0])
    found = candidates(spans, 0, first, count, start)
    assert [tuple(span) for span in found.spans.tolist()] == [span for _, span in expected]
    assert np.allclose(found.starts + found.ends, [score for score, _ in expected])


def test_a_question_has_the_least_null_odds_of_its_windows_and_twenty_different_texts(
    encoder: Path, toy: Questions
) -> None:
    part = made(encoder, Limits(20, 8, 6), toy)
    nothing = Candidates(np.zeros(0), np.zeros(0), np.zeros((0, 2), dtype=np.int64))
    nulls = np.random.default_rng(0).normal(size=len(part))
    found: list[Candidates] = [nothing] * len(part)
    last = len(part.paragraphs[part.rows[0, 1]])
    spans = [(first, end) for first in range(min(8, last)) for end in range(first, min(8, last))]
    found[0] = Candidates(-np.arange(2.0 * len(spans)), np.zeros(2 * len(spans)), np.array([*spans, *spans]))
    answers = collected(toy, part, found, nulls)
    for number, row in enumerate(toy.rows):
        assert answers.null_odds[row.id] == min(nulls[part.rows[:, 0] == number])
    first, *others = toy.rows
    assert answers.texts == {row.id: "empty" for row in others} | {first.id: answers.best[first.id][0]["text"]}
    texts = [each["text"] for each in answers.best[first.id]]
    offsets, paragraph = part.offsets[part.rows[0, 1]], toy.paragraphs[first.paragraph]
    every = dict.fromkeys(paragraph[offsets[one, 0] : offsets[two, 1]] for one, two in spans)
    assert len(spans) > 20 and texts == list(every)[:20]
