"""The cost of a fine-tuning against what the fine-tuner makes of its task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from workbench.models import flops
from workbench.spec.parts import TasksSpec
from workbench.spec.presets import resolve
from workbench.tasks._squad_model import limits, windows
from workbench.tasks._tagger import word_windows
from workbench.tasks.common.contract import Cost, Measure
from workbench.tasks.common.examples import Examples, Tagged, Task, fingerprinted
from workbench.tasks.common.token_rows import encode, open_splitter
from workbench.tasks.embeddings import Embedding, Similar
from workbench.tasks.squad import Question, Questions, Squad
from workbench.tasks.tagging import Tagging

SPEC = TasksSpec(lr=3e-3, length=32, batch=8, seeds=2)
SIZES = resolve("nano", {"encoder.positions": 48})


def cost(measure: Measure, tokenizer: Path, spec: TasksSpec = SPEC) -> Cost:
    return measure.cost(SIZES, spec, tokenizer)


def forward(lengths: Any) -> float:
    """FLOPs of reading rows of these lengths."""
    return float(sum(flops.encoder(SIZES.encoder, int(length)).matmul for length in lengths))


def test_rows_of_texts_are_those_that_are_encoded(encoder: Path, keyword: Task) -> None:
    found, parts = cost(keyword, encoder), encode(encoder, keyword, 32)
    train, tests = parts["train"].lengths, [*parts["dev"].lengths, *parts["test"].lengths]
    assert sorted(found.lengths) == sorted(train.tolist())
    assert (found.steps, found.passes) == (6 * 256 // 8, 1)
    assert found.flops == pytest.approx(found.steps * 8 * 3 * forward(train) / len(train) + forward(tests))
    assert cost(keyword, encoder, SPEC.model_copy(update={"epochs": 0.5})).steps == 16


def test_folds_and_doubled_pairs_are_counted(encoder: Path, keyword: Task, lengths: Any) -> None:
    folds = tuple(tuple(range(part, 256, 4)) for part in range(4))
    assert cost(replace(keyword, folds=folds), encoder).steps == 4 * 6 * 192 // 8
    twice = cost(lengths, encoder, SPEC.model_copy(update={"doubled": True}))
    assert twice.steps == 2 * cost(lengths, encoder).steps


def test_a_choice_counts_questions_with_all_their_answers(encoder: Path) -> None:
    rows = Examples(["bada"] * 30, ["keda kefe"] * 30, [1, 0, 0] * 10, [n // 3 for n in range(30)])
    choice = fingerprinted(
        Task("c", "table", ("a", "b"), "accuracy", ("accuracy",), 10.0, rows, {"dev": rows}, choice=True)
    )
    found = cost(choice, encoder)
    assert found.steps == 10 * 2 and len(found.lengths) == 30
    whole = forward(found.lengths)
    assert found.flops == pytest.approx(found.steps * 8 * 3 * whole / 10 + whole)


def test_long_sentences_are_counted_in_windows(encoder: Path) -> None:
    words = [["bada"] * count for count in (1, 5, 60, 23)]
    tagging = Tagging("t", ("A", "B"), 2, "", Tagged(words, [[0] * len(each) for each in words]), {})
    found = cost(tagging, encoder)
    config = AutoConfig.from_pretrained(encoder)
    rows = word_windows(open_splitter(encoder, config, 32, "tagging"), words, False).rows
    assert abs(len(found.lengths) - len(rows)) <= 1
    assert sum(found.lengths) == pytest.approx(sum(rows.lengths), rel=0.1)


def test_questions_are_counted_in_windows(encoder: Path) -> None:
    paragraphs = [" ".join(["bada"] * count) for count in (5, 200)]
    asked = [Question(f"q{n}", "kefe lofe", n % 2, (("bada", 0),), False, "x") for n in range(6)]
    squad = Squad("squad1", False, Questions(paragraphs, asked), {"dev": Questions(paragraphs, asked)})
    spec = SPEC.model_copy(update={"squad_length": 40})
    found = cost(squad, encoder, spec)
    config = AutoConfig.from_pretrained(encoder)
    made = windows(encoder, config, {"train": squad.train}, limits(encoder, config, spec))["train"]
    assert abs(len(found.lengths) - len(made)) <= 3
    assert sum(found.lengths) == pytest.approx(sum(made.lengths), rel=0.15)


def test_contrastive_pairs_have_two_rows_and_tests_are_read_twice(encoder: Path) -> None:
    part = Similar(("bada",) * 20, ("keda kefe",) * 20, tuple(map(float, range(20))))
    found = cost(Embedding("e", "similarity", {"dev": part}, train=part), encoder)
    assert len(found.lengths) == 40 and found.steps == 9 and found.passes == 2
    whole = forward(found.lengths)
    assert found.flops == pytest.approx(found.steps * 8 * 3 * whole / 20 + 2 * whole)
