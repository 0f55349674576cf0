"""The workload of a fine-tuning against what the fine-tuner makes of its task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks._squad_model import limits, windows
from workbench.tasks._tagger import word_windows
from workbench.tasks.common.cost import workload
from workbench.tasks.common.examples import Examples, Tagged, Task, fingerprinted
from workbench.tasks.common.token_rows import encode, open_splitter
from workbench.tasks.embeddings import Embedding, Similar
from workbench.tasks.squad import Question, Questions, Squad
from workbench.tasks.tagging import Tagging

SPEC = TasksSpec(lr=3e-3, length=32, batch=8, seeds=2)
CPU = Host(device="cpu", threads=1, precision="fp32")


def lengths(rows: list[list[int]]) -> list[int]:
    return sorted(length for each in rows for length in each)


def test_rows_of_texts_are_those_that_are_encoded(encoder: Path, keyword: Task) -> None:
    work = workload(keyword, SPEC, encoder, 48)
    parts = encode(encoder, keyword, 32)
    assert lengths(work.train) == sorted(parts["train"].lengths.tolist())
    assert lengths(work.test) == sorted([*parts["dev"].lengths.tolist(), *parts["test"].lengths.tolist()])
    assert (work.steps, work.batch, work.tested) == (6 * 256 // 8, 8, 151)
    assert workload(keyword, SPEC.model_copy(update={"epochs": 0.5}), encoder, 48).steps == 16


def test_folds_and_doubled_pairs_are_counted(encoder: Path, keyword: Task, lengths: Any) -> None:
    folds = tuple(tuple(range(part, 256, 4)) for part in range(4))
    assert workload(replace(keyword, folds=folds), SPEC, encoder, 48).steps == 4 * 6 * 192 // 8
    twice = workload(lengths, SPEC.model_copy(update={"doubled": True}), encoder, 48)
    assert twice.steps == 2 * workload(lengths, SPEC, encoder, 48).steps


def test_a_choice_counts_questions_with_all_their_answers(encoder: Path) -> None:
    rows = Examples(["bada"] * 30, ["keda kefe"] * 30, [1, 0, 0] * 10, [n // 3 for n in range(30)])
    choice = fingerprinted(
        Task("c", "table", ("a", "b"), "accuracy", ("accuracy",), 10.0, rows, {"dev": rows}, choice=True)
    )
    work = workload(choice, SPEC, encoder, 48)
    assert work.steps == 10 * 2 and [len(each) for each in work.train] == [3] * 10 and work.tested == 10


def test_long_sentences_are_counted_in_windows(encoder: Path) -> None:
    words = [["bada"] * count for count in (1, 5, 60, 23)]
    tagging = Tagging("t", ("A", "B"), 2, "", Tagged(words, [[0] * len(each) for each in words]), {})
    work = workload(tagging, SPEC, encoder, 48)
    config = AutoConfig.from_pretrained(encoder)
    rows = word_windows(open_splitter(encoder, config, 32, "tagging"), words, False).rows
    assert abs(len(work.train) - len(rows)) <= 1 and sum(lengths(work.train)) == pytest.approx(
        sum(rows.lengths), rel=0.1
    )


def test_questions_are_counted_in_windows(encoder: Path) -> None:
    paragraphs = [" ".join(["bada"] * count) for count in (5, 200)]
    asked = [Question(f"q{n}", "kefe lofe", n % 2, (("bada", 0),), False, "x") for n in range(6)]
    squad = Squad("squad1", False, Questions(paragraphs, asked), {"dev": Questions(paragraphs, asked)})
    spec = SPEC.model_copy(update={"squad_length": 40})
    work = workload(squad, spec, encoder, 48)
    config = AutoConfig.from_pretrained(encoder)
    made = windows(encoder, config, {"train": squad.train}, limits(encoder, config, spec))["train"]
    assert abs(len(work.train) - len(made)) <= 3
    assert sum(lengths(work.train)) == pytest.approx(sum(made.lengths), rel=0.15)


def test_contrastive_pairs_have_two_rows_and_tests_are_read_twice(encoder: Path) -> None:
    part = Similar(("bada",) * 20, ("keda kefe",) * 20, tuple(map(float, range(20))))
    work = workload(Embedding("e", "similarity", {"dev": part}, train=part), SPEC, encoder, 48)
    assert [len(each) for each in work.train] == [2] * 20 and work.tested == 80 and work.steps == 9
