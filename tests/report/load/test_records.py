"""The choice among several records of an experiment, and the warnings that name the others."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from pathlib import Path

import made
import pytest

from workbench.errors import InputError
from workbench.report import find_record, write
from workbench.report.load.records import Candidate, candidate
from workbench.spec.stages import BoundRun
from workbench.store.run_store import ExperimentRecord, RunStore


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


@pytest.mark.parametrize(
    ("states", "word"),
    [
        ({"done": 3}, "finished"), ({"done": 2, "trained": 1}, "unfinished"), ({"done": 1, "failed": 1}, "unfinished"),
        ({"diverged": 2, "damaged": 1}, "unfinished"), ({"done": 2, "new": 1}, "interrupted"),
        ({"failed": 1, "missing": 1}, "interrupted"), ({"failed": 2, "interrupted": 1}, "interrupted"),
        ({"running": 1, "failed": 1}, "running"), ({"running": 1, "new": 5}, "running"), ({}, "unfinished"),
    ],
)  # fmt: skip
def test_the_word_for_a_record_says_whether_the_same_command_would_go_on(states: dict[str, int], word: str) -> None:
    found = Candidate(ExperimentRecord("größe", updated="2026-11-20T08:00:00+00:00"), Counter(states))
    assert found.state == word and found.finished == (word == "finished")
    whole, over = sum(states.values()), states.get("done", 0) + states.get("trained", 0)
    assert (
        str(found).startswith("größe (")
        and f"{over} of {whole} runs" in str(found)
        and "2026-11-20T08:00" in str(found)
    )


def test_each_run_of_a_record_counts_once_in_the_state_of_its_folder(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    record(store, "ablation-a", "2026-11-19T08:00:00+00:00", True, True, False, False)
    [first] = store.experiments()
    gone, cut = first.runs[1], first.runs[3]
    shutil.rmtree(store.root / gone)
    (store.root / cut / "spec.json").write_text("{")
    listed = ExperimentRecord("x", runs=first.runs, untrained=[first.runs[0], "never-made"])
    assert candidate(store, listed).states == {"done": 1, "missing": 2, "interrupted": 1, "damaged": 1}
    assert candidate(store, ExperimentRecord("x")).states == {}


def test_a_record_s_own_name_comes_before_an_experiment_of_that_name(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    for name, experiment in (("other-a", "ablation"), ("ablation", "other")):
        store.extend_experiment(ExperimentRecord(name, experiment))
    assert find_record(store, "ablation") == "ablation" and find_record(store, "other-a") == "other-a"
    assert find_record(store, "other") == "ablation", "the name of its experiment"


def test_a_damaged_record_is_told_where_it_might_be_the_one_and_left_out_elsewhere(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    record(store, "ablation-a", "2026-11-19T08:00:00+00:00", True)
    store.extend_experiment(ExperimentRecord("tying-a", "tying"))
    path = store.root / "experiments" / "ablation-bb.json"
    path.write_text("{")
    for word in ("ablation", "ablation-bb"):
        with pytest.raises(InputError, match=r"experiments/ablation-bb\.json"):
            find_record(store, word)
    assert find_record(store, "ablation-a") == "ablation-a" and find_record(store, "tying") == "tying-a"


def test_an_unknown_word_is_refused_with_the_nearest_name_if_there_is_any(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    with pytest.raises(InputError, match="'größe'") as caught:
        find_record(store, "größe")
    assert str(store.root) in str(caught.value) and ";" not in str(caught.value)
    store.extend_experiment(ExperimentRecord("tying-1a2b", "tying"))
    for word, near in (("tyng", "tying"), ("tying-1a2c", "tying-1a2b")):
        with pytest.raises(InputError, match=f"'{word}'.*'{near}'"):
            find_record(store, word)
