"""The tables of an experiment: what stands in them, what is left out, and what readers are informed of."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

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
    loaded = frames.read(store, recorded(store, specs))
    rows = {row["run_id"]: row for row in loaded.rows("runs")}
    assert [rows[run.run_id]["state"] for run in (whole, broken, gone, stopped)] == [
        "done", "damaged", "missing", "interrupted"
    ]  # fmt: skip
    assert rows[stopped.run_id]["reason"] == "stopped at step 8 of 8; the same command resumes it"
    assert rows[gone.run_id]["reason"] == "not started" and rows[broken.run_id]["seed"] == 1
    assert list(loaded.scores["run_id"]) == [whole.run_id]  # scores of the others count nowhere
    assert rows[whole.run_id]["arm"] == "rtd" and rows[whole.run_id]["steps"] == 8
    with caplog.at_level(logging.WARNING):
        frames.warn_of_damage(loaded, store.root)
    assert {record.getMessage() for record in caplog.records} == {
        f"{broken.path} is damaged and is left out: {rows[broken.run_id]['reason']}; move that folder away and give "
        f"the command that trained it again, which makes it anew (workbench verify {store.root} names every changed "
        "file)",
        f"{gone.run_id} is missing and is left out: there is no such folder",
    }


def test_tables_hold_every_metric_of_the_chosen_scores(tmp_path: Path) -> None:
    store, name = study(tmp_path / "runs", noisy(LEVELS), ("rtd", "bert-mlm"), seeds=2, tasks=("order", "next"))
    loaded = frames.read(store, name)
    assert loaded.axis == "objective" and loaded.statistic == "mean" and not loaded.notes
    assert len(loaded.runs) == 2 + 2 * 2 and list(loaded.by_id()) == list(loaded.runs["run_id"])
    assert set(loaded.runs[loaded.runs["role"] == "untrained"]["arm"]) == {"untrained"}
    assert len(loaded.scores) == 6 * 2 * 2 and len(loaded.other) == 2 * len(loaded.scores)
    assert set(loaded.other["metric"]) == {"accuracy", "matthews", "f1"} and set(loaded.other["split"]) == {"test"}
    assert len(loaded.baselines) == 2 * len(loaded.scores) and loaded.points.empty


def test_a_note_says_that_files_were_not_compared_with_their_hashes(tmp_path: Path) -> None:
    store, name = study(tmp_path / "runs", noisy(LEVELS), ("rtd",), seeds=2, tasks=("order",))
    assert frames.read(store, name, verify=False).notes == ("Files were not compared with their hashes (--no-verify).",)
