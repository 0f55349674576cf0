"""Published models in a report: only on the same data, with the FLOPs that are stated of them, and never averaged."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest
from helpers.made import LEVELS, noisy, scored, study

from workbench.execution.published_runs import _bound
from workbench.report import write
from workbench.report.comparison.boards import boards
from workbench.report.load import frames
from workbench.spec.parts import PublishedSpec
from workbench.store.run_directory import RunDir
from workbench.store.run_store import RunStore

TASKS = ("package", "order")


def published(store: RunStore, name: str, flops: float | None, source: str = "a paper") -> RunDir:
    """Write a published run as `workbench evaluate` leaves it, without scores."""
    run = store.open(_bound(PublishedSpec(name=name, files=name * 3)))
    stated = {"flops": {} if flops is None else {"paper": flops}, "flops_source": source}
    run.finish({"steps": 0, "tokens": 0, "encoder": {"model.safetensors": "a" * 64}, **stated})
    return run


@pytest.fixture
def made(tmp_path: Path) -> tuple[RunStore, str]:
    store, name = study(tmp_path / "runs", noisy(LEVELS), ("rtd", "bert-mlm"), tasks=TASKS)
    big, small = published(store, "owner/big", 3e12), published(store, "small", None, "not stated")
    for run, value in ((big, 90.0), (small, 61.0)):
        for task in TASKS:
            for seed in (0, 10, 2):
                scored(run, task, seed, value + seed, finetune={"lr": 1e-4})
    return store, name


def test_they_stand_beside_the_arms_and_change_no_number(made: tuple[RunStore, str]) -> None:
    store, name = made
    found = frames.read(store, name)
    [board] = boards(found)
    assert [(model.name, model.score, model.source) for model in board.measured] == [
        ("owner/big", 94.0, "a paper"), ("small", 65.0, "not stated"),
    ]  # fmt: skip
    assert board.measured[0].flops == 3e12 and math.isnan(board.measured[1].flops)
    assert set(board.arms) == {"rtd", "bert-mlm"} and not any("published" in run for run in board.run_scores)
    assert not any(str(row["run_id"]).startswith("published") for row in found.rows("runs"))
    assert found.published[0].scores["order"] == {0: 90.0, 2: 92.0, 10: 100.0}


def test_the_page_its_figure_and_its_table_mark_them(made: tuple[RunStore, str], tmp_path: Path) -> None:
    store, name = made
    page = write(store, name, tmp_path / "report")
    html = page.read_text()
    assert "Published models, measured here" in html and html.count("owner/big") > 1 and "not stated" in html
    assert "open crosses are published models, measured here" in html
    assert "owner/big, published, measured here: 94.0 at 3" in html and "small, published" not in html
    with (tmp_path / "report" / "published.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12 and rows[0]["model"] == "owner/big" and {row["flops_stated"] for row in rows} >= {""}
    assert [row["fine_tuning_seed"] for row in rows[:3]] == ["0", "2", "10"]


CHANGES: dict[str, dict[str, Any]] = {
    "other data": {"data": "e" * 16},
    "another metric": {"metric": "f1", "values": {"test": {"f1": 70.0}}},
}


@pytest.mark.parametrize("case", CHANGES)
def test_scores_that_are_not_comparable_are_left_out_with_a_sentence(case: str, made: tuple[RunStore, str]) -> None:
    store, name = made
    other = published(store, "elsewhere", 1e13)
    scored(other, "package", 0, 70.0)
    scored(other, "order", 0, **{"value": 70.0} | CHANGES[case])
    found = frames.read(store, name)
    [board] = boards(found)
    assert "elsewhere" not in [model.name for model in board.measured]
    assert any("elsewhere" in note and "order are of other data" in note for note in found.notes)


def test_a_damaged_one_is_left_out_with_a_sentence(made: tuple[RunStore, str]) -> None:
    store, name = made
    path = next(store.root.glob("published-owner-big-*/scores/*.json"))
    path.write_text(path.read_text().replace("9", "8", 1))
    found = frames.read(store, name)
    assert [model.name for model in found.published] == ["small"]
    assert any("published-owner-big" in note and "damaged" in note for note in found.notes)


def test_the_setting_with_most_scores_counts(made: tuple[RunStore, str]) -> None:
    store, name = made
    [folder] = store.root.glob("published-small-*")
    scored(RunDir(folder), "order", 0, 1.0, digest="00000000")
    assert frames.read(store, name).published[1].scores["order"] == {0: 61.0, 2: 63.0, 10: 71.0}


def test_one_score_is_of_one_seed(made: tuple[RunStore, str]) -> None:
    store, name = made
    single = published(store, "single", 1e12)
    for task in TASKS:
        scored(single, task, 0, 50.0)
    [board] = boards(frames.read(store, name))
    assert {model.name: model.note for model in board.measured} == {
        "owner/big": "3 fine-tuning seeds", "small": "3 fine-tuning seeds", "single": "1 fine-tuning seed",
    }  # fmt: skip
