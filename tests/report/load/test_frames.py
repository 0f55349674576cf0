"""The tables of an experiment: what stands in them, what is left out, and what readers are told."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from made import LEVELS, noisy, recorded, scored, spec_of, study, trained

from workbench.report.load import frames
from workbench.store.run_store import RunStore


def test_every_run_of_the_record_has_a_row_whatever_became_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = RunStore(tmp_path / "runs")
    specs = [spec_of("rtd", seed, {"steps": 8}) for seed in range(4)]
    whole, broken, gone, stopped = (trained(store, spec, 8) for spec in specs)
    for run in (whole, broken, stopped):
        scored(run, "order", 0, 61.0)
    shutil.rmtree(gone.path)
    (broken.path / "metrics.jsonl").write_text("rubbish")
    for name in ("done.json", "manifest.json"):
        (stopped.path / name).unlink()
    found = frames.read(store, recorded(store, specs))
    rows = {row["run_id"]: row for row in found.rows("runs")}
    assert [rows[run.run_id]["state"] for run in (whole, broken, gone, stopped)] == [
        "done", "damaged", "missing", "interrupted"
    ]  # fmt: skip
    assert rows[stopped.run_id]["reason"] == "stopped at step 8 of 8; the same command resumes it"
    assert rows[gone.run_id]["reason"] == "not started" and rows[broken.run_id]["seed"] == 1
    assert list(found.scores["run_id"]) == [whole.run_id]  # scores of the others count nowhere
    assert rows[whole.run_id]["arm"] == "rtd" and rows[whole.run_id]["steps"] == 8
    with caplog.at_level(logging.WARNING):
        frames.warn_of_damage(found)
    assert {record.getMessage() for record in caplog.records} == {
        f"{broken.run_id} is damaged and is left out: {rows[broken.run_id]['reason']}",
        f"{gone.run_id} is missing and is left out: there is no such folder",
    }


def test_tables_hold_every_metric_of_the_chosen_scores(tmp_path: Path) -> None:
    store, name = study(tmp_path / "runs", noisy(LEVELS), ("rtd", "bert-mlm"), seeds=2, tasks=("order", "next"))
    found = frames.read(store, name)
    assert found.axis == "objective" and found.statistic == "mean" and not found.notes
    assert len(found.runs) == 2 + 2 * 2 and list(found.by_id()) == list(found.runs["run_id"])
    assert set(found.runs[found.runs["role"] == "untrained"]["arm"]) == {"untrained"}
    assert len(found.scores) == 6 * 2 * 2 and len(found.other) == 2 * len(found.scores)
    assert set(found.other["metric"]) == {"accuracy", "matthews", "f1"} and set(found.other["split"]) == {"test"}
    assert len(found.baselines) == 2 * len(found.scores) and found.points.empty


def score(run: str, value: float, digest: str = "aa", **changes: Any) -> dict[str, Any]:
    settings = {"lr": 1e-4, "length": 128}
    given = {"run_id": run, "task": "order", "suite": "probes", "value": value, "digest": digest, "finetune": settings}
    return given | {"path": f"{run}/scores/order-{digest}-0.json"} | changes


def test_scores_under_the_settings_of_the_experiment_are_chosen_before_those_of_the_most() -> None:
    mine = score("a", 60.0)
    others = [score(run, 61.0, "bb", finetune={"lr": 2e-4, "length": 64}) for run in ("a", "b")]
    for tasks, kept in (
        ({"lr": 1e-4}, [mine]),
        ({"lr": 2e-4}, others),
        ({"lr": 9.0}, others),
        ({"lr": None, "length": 128}, [mine]),
    ):
        notes: list[str] = []
        assert frames.choose([mine, *others], tasks, notes) == kept
        (note,) = notes
        left, shown = ("bb", "aa") if kept == [mine] else ("aa", "bb")
        assert f"(digest {left}; shown: {shown})" in note
        assert note.startswith("order: 2 scores" if kept == [mine] else "order: 1 score ")


def test_scores_of_other_tasks_and_those_that_are_no_numbers_are_left_out() -> None:
    notes: list[str] = []
    rows = [
        score("a", 60.0), score("b", float("nan")), score("a", 1.0, task="CoLA", suite="glue"),
        score("a", 2.0, task="mine", suite="table"),
    ]  # fmt: skip
    assert frames.choose(rows, {"names": ["order"]}, notes) == rows[:1]
    assert notes == ["b/scores/order-aa-0.json: the score is not a number and is left out"]
    assert [s["task"] for s in frames.choose(rows, {"names": ["glue", "data/mine.csv"]}, [])] == ["CoLA", "mine"]
    assert [s["task"] for s in frames.choose(rows, {"names": ["next"]}, [])] == ["order", "CoLA", "mine"]


def test_readers_are_told_where_a_changed_file_would_not_be_noticed(tmp_path: Path) -> None:
    store, name = study(tmp_path / "runs", noisy(LEVELS), ("rtd",), seeds=2, tasks=("order",))
    record = store.experiment(name)
    assert frames.unverified(record, [], True) == []
    assert frames.unverified(record, [], False) == ["Files were not compared with their hashes (--no-verify)."]
    (one,) = frames.unverified(record, ["a"], True)
    assert one.startswith("1 run has no manifest") and "finished it:" in one and one.endswith("(a).")
    (five,) = frames.unverified(record, list("abcde"), True)
    assert five.startswith("5 runs have no manifest") and five.endswith("(a, b, c and 2 more).")
