"""Commands that read a run store: options that contradict each other, and what they print."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made
import pytest
import written_runs
from typer import Exit

from workbench.cli import read
from workbench.errors import InputError, LeaseLost
from workbench.execution import workers
from workbench.options import Output
from workbench.store import owner
from workbench.store.atomic import cache_root
from workbench.store.lease import acquire
from workbench.store.run_store import ExperimentRecord, RunDir, RunStore

Ended = Callable[..., int]


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """A run that is done, and one that was interrupted."""
    store = RunStore(tmp_path / "runs")
    written_runs.finished(store, 0)
    written_runs.begun(store, 1)
    return store


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"license": "mit"}, "--license and --language are stated by the model cards of --checkpoint DIR"),
        ({"babylm": Path("y"), "language": "da"}, "--license and --language are stated by the model cards of"),
        ({"checkpoint": Path("x"), "form": "latex"}, "--checkpoint DIR writes folders of models; remove --out,"),
        ({"checkpoint": Path("x"), "babylm": Path("y")}, "--checkpoint DIR writes folders of models"),
        ({"babylm": Path("x"), "out": Path("y.csv")}, "--babylm DIR writes a folder in a layout of its own"),
        ({"form": "xlsx"}, "--format 'xlsx' is not one of csv, parquet and latex"),
        ({"form": "parquet"}, "cannot be printed; name a file with --out FILE.parquet"),
        ({"out": Path(".")}, "--out . exists and is not a regular file"),
    ],
)
def test_an_export_of_two_kinds_or_of_none_is_refused_before_a_store_is_read(
    options: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        read.export("ablation", Output(runs=tmp_path / "nowhere"), **options)
    assert str(caught.value).startswith(words) or words in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_states_are_those_of_the_runs(store: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    read.status(Output(runs=store.root), as_json=True)
    found = {row["run_id"]: row["state"] for row in json.loads(capsys.readouterr().out)}
    assert found == {run.run_id: run.state for run in store.runs()} and set(found.values()) == {"done", "interrupted"}
    read.status(Output(runs=store.root), everything=True)
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "no study  unfinished: 1 of 2 trained, 1 interrupted"
    assert sorted(line.split()[:2] for line in lines) == sorted([state, run_id] for run_id, state in found.items())


def test_status_names_studies_first_then_the_runs_that_need_a_look_and_nothing_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = RunStore(tmp_path / "runs")
    specs = [made.spec_of(arm, seed, {"steps": 8}) for arm in ("rtd", "bert-mlm") for seed in range(3)]
    runs = [made.trained(store, spec, 8) for spec in specs[:5]]
    made.recorded(store, specs)
    made.unfinish(runs[1])
    runs[1].fail("failed", "out of memory", step=3)
    made.unfinish(runs[2])
    gone = {"owner": "abc", "pid": 2**22 + 1, "host": "node7", "machine": owner.machine(), "beat": 10, "started": "1"}
    (runs[2].path / "lease").write_text(json.dumps(gone))
    (runs[3].path / "plan.json").write_text("{")

    with pytest.raises(Exit):
        read.status(Output(runs=store.root))
    first, *lines = capsys.readouterr().out.splitlines()
    counts = "2 of 6 trained, 1 interrupted, 1 failed, 1 damaged, 1 not started"
    assert first == f"ablation-nano-1a2b3c4d  damaged: {counts}"
    told = {tuple(line.split()[:2]): line for line in lines}
    assert told.keys() == {
        ("failed", runs[1].run_id), ("interrupted", runs[2].run_id), ("damaged", runs[3].run_id)
    }  # fmt: skip
    assert "out of memory" in told["failed", runs[1].run_id]
    assert "its lease is stale, left by process 4194305 on node7" in told["interrupted", runs[2].run_id]


def test_the_time_left_is_that_of_running_runs_and_of_those_that_wait_at_the_pace_so_far() -> None:
    record = ExperimentRecord("study", runs=list("abcd"))
    rows: dict[str, dict[str, Any]] = {
        "a": {"state": "done", "kind": "pre-training", "spent.seconds": 100.0},
        "b": {"state": "running", "kind": "pre-training", "seconds_left": 40.0},
        "c": {"state": "running", "kind": "pre-training", "seconds_left": 20.0},
    }
    progress = workers.study_progress(record, rows)
    assert progress.seconds_left == (40 + 20 + 100) / 2 and progress.state == "running"
    assert progress.text == "1 of 4 trained, 2 running, 1 not started, about 1 min 20 s left"
    assert workers.study_progress(record, {"a": rows["a"]}).seconds_left is None


def test_watching_prints_each_change_where_there_is_no_terminal(store: RunStore) -> None:
    words = [sys.executable, "-m", "workbench", "status", "--watch", "--runs", str(store.root)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        first = watching.stdout.readline()
        waiting = next(run for run in store.runs() if not run.trained)
        line = watching.stdout.readline()
        assert line.startswith("interrupted") and waiting.run_id in line
        waiting.fail("failed", "no more memory", step=1)
        assert watching.stdout.readline() == "\n"
        again = [watching.stdout.readline() for _ in range(2)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 0 and "Traceback" not in watching.communicate()[1]
    assert first == "no study  unfinished: 1 of 2 trained, 1 interrupted\n"
    assert "1 failed" in again[0] and again[1].startswith("failed") and "no more memory" in again[1]
    with pytest.raises(InputError, match="--watch and --json"):
        read.status(Output(runs=store.root), watch=True, as_json=True)


def test_only_what_differs_between_two_runs_is_printed(store: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (run.run_id for run in store.runs())
    read.diff(one, two, Output(runs=store.root), as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert (document["a"], document["b"]) == (one, two)
    assert [row["key"] for row in document["spec"]] == ["seed"]
    assert {"state"} <= {row["key"] for row in document["result"]}


def test_a_damaged_run_is_not_compared(store: RunStore) -> None:
    one, two = store.runs()
    (one.path / "env.json").write_text("{")
    for pair in ((one, two), (two, one)):
        with pytest.raises(InputError) as caught:
            read.diff(*(run.run_id for run in pair), Output(runs=store.root))
        assert str(caught.value).startswith(f"{one.path} is damaged: env.json cannot be read")


def test_an_export_does_not_replace_a_file_of_the_store(store: RunStore) -> None:
    before = (store.root / "store.json").read_bytes()
    with pytest.raises(InputError, match=r"--out .*store\.json lies in the store"):
        read.export("ablation", Output(runs=store.root), out=store.root / "store.json")
    run = next(run for run in store.runs() if run.trained)
    with pytest.raises(InputError, match=r"--checkpoint .*new lies in the store"):
        read.export(run.run_id, Output(runs=store.root), checkpoint=store.root / "new")
    assert (store.root / "store.json").read_bytes() == before


def test_the_exit_code_of_a_check_says_whether_a_file_differs(
    store: RunStore, capsys: pytest.CaptureFixture[str]
) -> None:
    [done] = [run for run in store.runs() if run.state == "done"]
    for expected in (0, 1):
        with pytest.raises(Exit) as end:
            read.verify(Output(runs=store.root), as_json=True)
        assert end.value.exit_code == expected
        assert (done.run_id in capsys.readouterr().out) or expected == 0
        weights = done.path / "encoder" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[::-1])


def test_a_store_that_is_removed_while_it_is_read_is_named(
    store: RunStore, ended: Ended, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = RunStore.runs

    def runs(store: RunStore) -> list[RunDir]:
        shutil.rmtree(store.root)
        return real(store)

    monkeypatch.setattr(RunStore, "runs", runs)
    assert ended("status", "--runs", str(store.root)) == 74
    told = f"{store.root} is missing; if it was moved or removed meanwhile, give the same command again"
    assert capsys.readouterr().err == f"workbench: {told}\n"


def test_what_another_process_holds_is_named(
    store: RunStore, ended: Ended, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stopped process keeps its lease, of a record for instance, for longer than another one waits."""
    (store.root.parent / "held").mkdir()
    held = acquire(store.root.parent / "held")
    monkeypatch.setattr(RunStore, "runs", lambda store: [acquire(held.folder, patience=0)])
    assert ended("status", "--runs", str(store.root)) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"workbench: {held.folder} is in use by process {os.getpid()}") and told.count("\n") == 1
    shutil.rmtree(held.folder)
    with pytest.raises(LeaseLost, match="held was moved or removed; nothing more is written"):
        held.check()
    held.release()


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs Linux's /proc, where no folder can be made")
@pytest.mark.parametrize("words", [("status", "--runs"), ("runs", "--runs"), ("verify",)])
def test_a_cache_that_takes_no_files_is_no_obstacle_to_reading(
    words: tuple[str, ...], store: RunStore, ended: Ended, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """One that was prepared for many users is often read-only for them."""
    monkeypatch.setenv("WORKBENCH_CACHE", "/proc/self")
    assert ended(*words, str(store.root)) == 0, capsys.readouterr().err
    with pytest.raises(InputError, match="'/proc/self' takes no files; set WORKBENCH_CACHE to another one"):
        cache_root()
