"""The choice among several records of an experiment, and the warnings that name the others."""

from __future__ import annotations

import logging
from pathlib import Path

import made
import pytest

from workbench.report import find_record, write
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunStore


def record(store: RunStore, name: str, updated: str, *finished: bool) -> str:
    """Write a record of `ablation` whose runs are done, or stopped before their first step, and return its name."""
    specs = [made.spec_of("rtd", seed, {"steps": 7}, **{"optim.lr": len(name) * 1e-5}) for seed in range(len(finished))]
    for spec, done in zip(specs, finished, strict=True):
        run = store.open(BoundRun(spec))
        if done:
            made.scored(made.trained(store, spec, 7), "order", 0, 50.0)
        else:
            run.write_json("env.json", made.ENV)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workbench.store.run_store.now", lambda: updated)
        return made.recorded(store, specs, name=name)


def test_a_finished_record_comes_before_a_newer_one_that_was_interrupted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = RunStore(tmp_path / "runs")
    record(store, "ablation-a", "2026-11-19T08:00:00+00:00", True)
    best = record(store, "ablation-bb", "2026-11-20T08:00:00+00:00", True, True)
    newest = record(store, "ablation-ccc", "2026-11-21T08:00:00+00:00", True, False)
    with caplog.at_level(logging.WARNING, logger="workbench"):
        assert find_record(store, "ablation") == best
    assert [line.getMessage() for line in caplog.records] == [
        "ablation is read from the record ablation-bb (finished, 2 of 2 runs, 2026-11-20T08:00)",
        "another record of ablation, which may be named instead: ablation-a (finished, 1 of 1 run, 2026-11-19T08:00)",
        "another record of ablation, which may be named instead: "
        "ablation-ccc (interrupted, 1 of 2 runs, 2026-11-21T08:00)",
    ]
    assert find_record(store, newest) == newest


def test_without_a_finished_one_it_is_the_newest(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    record(store, "ablation-bb", "2026-11-20T08:00:00+00:00", True, False)
    newest = record(store, "ablation-ccc", "2026-11-21T08:00:00+00:00", False)
    assert find_record(store, "ablation") == newest


def test_the_report_of_another_store_is_not_replaced_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = RunStore(tmp_path / "one"), RunStore(tmp_path / "other")
    name = record(one, "ablation-a", "2026-11-19T08:00:00+00:00", True, True)
    assert record(other, "ablation-a", "2026-11-19T08:00:00+00:00", True) == name  # the first of the same two seeds
    with caplog.at_level(logging.WARNING, logger="workbench"):
        write(other, name, tmp_path / "out")
        write(one, name, tmp_path / "out")  # a store that grew
        assert not [line for line in caplog.messages if "replaced" in line]
        write(other, name, tmp_path / "out")
    [said] = [line for line in caplog.messages if "replaced" in line]
    assert str(tmp_path / "out") in said and str(tmp_path / "other") in said and "--out" in said
