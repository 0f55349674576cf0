"""Scores of published models: which of them count beside the runs of an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.made import scored
from published_runs import TASKS, published

from workbench.report.comparison.boards import boards
from workbench.report.load import frames
from workbench.store.run_directory import RunDir
from workbench.store.run_store import RunStore


def folder_of(store: RunStore, name: str) -> Path:
    """The folder of the published model that was given this name."""
    specs = {run.path: run.spec().published for run in store.runs()}
    return next(path for path, known in specs.items() if known is not None and known.name == name)


CHANGES: dict[str, dict[str, Any]] = {
    "other data": {"data": "e" * 16},
    "another metric": {"metric": "f1", "values": {"test": {"f1": 70.0}}},
}


@pytest.mark.parametrize("case", CHANGES)
def test_scores_that_are_not_comparable_are_left_out_with_a_sentence(
    case: str, with_published: tuple[RunStore, str]
) -> None:
    store, name = with_published
    other = published(store, "elsewhere", 1e13)
    scored(other, "package", 0, 70.0)
    scored(other, "order", 0, **{"value": 70.0} | CHANGES[case])
    found = frames.read(store, name)
    [board] = boards(found)
    assert "elsewhere" not in [model.name for model in board.measured]
    assert any("elsewhere" in note and "order are of other data" in note for note in found.notes)


def test_a_damaged_one_is_left_out_with_a_sentence(with_published: tuple[RunStore, str]) -> None:
    store, name = with_published
    folder = folder_of(store, "owner/big")
    path = next(folder.glob("scores/*.json"))
    path.write_text(path.read_text().replace("9", "8", 1))
    found = frames.read(store, name)
    assert [model.name for model in found.published] == ["small"]
    assert any(f"owner/big ({folder.name})" in note and "damaged" in note for note in found.notes)


def test_the_setting_with_most_scores_counts(with_published: tuple[RunStore, str]) -> None:
    store, name = with_published
    scored(RunDir(folder_of(store, "small")), "order", 0, 1.0, digest="00000000")
    assert frames.read(store, name).published[1].scores["order"] == {0: 61.0, 2: 63.0, 10: 71.0}


def test_one_score_is_of_one_seed(with_published: tuple[RunStore, str]) -> None:
    store, name = with_published
    single = published(store, "single", 1e12)
    for task in TASKS:
        scored(single, task, 0, 50.0)
    [board] = boards(frames.read(store, name))
    assert {model.name: model.note for model in board.measured} == {
        "owner/big": "3 fine-tuning seeds", "small": "3 fine-tuning seeds", "single": "1 fine-tuning seed",
    }  # fmt: skip
