"""The index of a store: never older than the runs, made anew when it is missing or damaged, and not needed at all."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.report.load import runs_table
from workbench.report.load.runs_table import Index
from workbench.store.run_store import RunDir, RunStore


@pytest.fixture
def store(four_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    monkeypatch.setattr(runs_table, "RECENT", -1.0)
    return RunStore(shutil.copytree(four_runs, tmp_path / "runs"))


def reads(store: RunStore) -> list[str]:
    """The runs whose files are read."""
    seen: list[str] = []

    def of(run: RunDir) -> dict[str, object]:
        seen.append(run.run_id)
        return runs_table.row_of(run)

    one = Index(store.root, "runs", of)
    for run in store.runs():
        one.facts(run)
    one.keep()
    return seen


def test_finished_runs_are_read_once_and_others_each_time(store: RunStore) -> None:
    everything = [runs_table.row_of(run) for run in store.runs()]
    assert len(reads(store)) == 4
    unfinished = [run.run_id for run in store.runs() if not run.trained]
    assert reads(store) == unfinished and len(unfinished) == 1
    assert runs_table.rows(store) == everything
    first, second = ([row for _, row in runs_table.states(store)] for _ in range(2))
    blank = {"tags": [], "archived": False}
    assert [row.pop("spent.seconds", None) for row in first] == [2.0, 2.0, 2.0, None]
    assert [row.pop("spent.seconds", None) for row in second] == [2.0, 2.0, 2.0, None]
    assert first == second == [run.summary() | {"kind": "pre-training", **blank} for run in store.runs()]
    assert [row["state"] for row in first].count("done") == 3


FILES = ("scores", "done.json", "spec.json", "manifest.json", "encoder/model.safetensors", "metrics.jsonl",
         "wanted.json")  # fmt: skip


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(name=st.sampled_from(FILES), change=st.sampled_from(["append", "same size", "remove", "replace", "touch"]))
def test_whatever_changes_in_a_run_it_is_read_again(name: str, change: str, store: RunStore) -> None:
    runs_table.rows(store)
    run = next(run for run in store.runs() if run.trained)
    path = run.path / name if name != "scores" else next((run.path / "scores").iterdir())
    before = path.read_bytes()
    if change == "append":
        path.write_bytes(before + b" ")
    elif change == "same size":
        path.write_bytes(before[:-2] + b"7" + before[-1:])
    elif change == "remove":
        path.unlink()
    elif change == "replace":
        (run.path / "new").write_bytes(before)
        os.replace(run.path / "new", path)
    else:
        os.utime(path)
    assert runs_table.rows(store) == [runs_table.row_of(each) for each in store.runs()]
    path.write_bytes(before)
    assert runs_table.rows(store) == [runs_table.row_of(each) for each in store.runs()]


def test_a_run_that_was_deleted_is_listed_no_longer(store: RunStore) -> None:
    runs_table.rows(store)
    gone = next(run for run in store.runs() if run.trained)
    gone.path.rename(store.root.parent / "aside")
    assert gone.run_id not in [row["run_id"] for row in runs_table.rows(store)]
    assert gone.run_id not in json.loads((store.root / ".runs.json").read_text())["runs"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version":"1"}', b'{"version":"1","runs":3}', None])
def test_an_index_that_cannot_be_used_is_made_anew(store: RunStore, content: bytes | None) -> None:
    whole, path = runs_table.rows(store), store.root / ".runs.json"
    good = path.read_bytes()
    path.write_bytes(content if content is not None else good.replace(b'"state":"done"', b'"state":"gone"', 1))
    assert runs_table.rows(store) == whole
    assert json.loads(path.read_bytes())["runs"] == json.loads(good)["runs"]


def test_two_indexes_that_were_exchanged_are_both_made_anew(store: RunStore) -> None:
    rows, states = runs_table.rows(store), [row for _, row in runs_table.states(store)]
    one, other = store.root / ".runs.json", store.root / ".status.json"
    one.rename(store.root / "aside")
    other.rename(one)
    (store.root / "aside").rename(other)
    assert runs_table.rows(store) == rows
    assert [row for _, row in runs_table.states(store)] == states


def test_an_index_of_another_version_is_not_used(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(reads(store)) == 4
    monkeypatch.setattr(runs_table, "FORMAT", runs_table.FORMAT + 1)
    assert len(reads(store)) == 4


def test_a_run_with_a_lease_is_read_each_time(store: RunStore) -> None:
    run = next(run for run in store.runs() if run.trained)
    reads(store)
    with run.lease():
        assert run.run_id in reads(store)
        assert run.run_id in reads(store)


def test_a_file_that_changed_a_moment_ago_is_not_relied_on(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_table, "RECENT", 3600.0)
    assert len(reads(store)) == len(reads(store)) == 4


def test_where_no_index_can_be_written_the_runs_are_read(store: RunStore) -> None:
    whole = runs_table.rows(store)
    (store.root / ".runs.json").unlink()
    (store.root / ".runs.json").mkdir()
    assert runs_table.rows(store) == whole
