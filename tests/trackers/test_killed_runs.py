"""Runs that were killed twice while they were copied: each tracker then has one run, equal to the store's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from reading import read, stored_rows
from test_copies import NAMES, problems, recorded, same

from workbench.store.run_store import RunDir, RunStore
from workbench.trackers import copies

pytestmark = pytest.mark.slow
COMMAND = (
    "run", "ablation", "--objective", "bert-mlm", "--budget", "steps=160", "--match", "none", "--save-every", "25",
    "--tasks", "pairs:replace", "--set", "batch.size=8", "--set", "data.length=32",
)  # fmt: skip


def trained(store: Path) -> list[RunDir]:
    runs = [RunDir(path.parent) for path in store.glob("*/spec.json")]
    return [run for run in runs if not run.run_id.startswith("untrained")]


def rows(store: Path) -> int:
    return sum((run.path / "metrics.jsonl").read_bytes().count(b"\n") for run in trained(store)
               if (run.path / "metrics.jsonl").exists())  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_run_killed_twice_is_one_run_equal_to_the_stored_one(
    name: str, tmp_path: Path, home: Path, recorder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)
    store = tmp_path / "runs"
    command = [sys.executable, "-m", "workbench", *COMMAND, "--track", name]
    for least, with_the_copy in ((35, False), (85, True)):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while rows(store) < least:
            assert process.poll() is None
            time.sleep(0.05)
        others = psutil.Process(process.pid).children(recursive=True) if with_the_copy else []
        for pid in (process.pid, *(each.pid for each in others)):
            os.kill(pid, signal.SIGKILL)
        process.wait()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (run,) = trained(store)
    assert len(stored_rows(run)) == 160 and list(store.glob("untrained-*"))

    study = RunStore.existing(store).experiments()[0].name
    if "had not finished after 4 seconds" not in done.stderr:  # as on a busy machine, where `track` does the rest
        live = read(name, run)
        assert live.rows == {step: {k: float(v) for k, v in row.items()} for step, row in stored_rows(run).items()}
        assert (live.runs, live.state, live.study) == (1, "done", study) and live.config
        assert any("untrained/" in str(key) for key in live.scores), "untrained encoders are in the summary"
    assert not [path for path in store.glob("untrained-*/*") if path.name in ("wandb", "tensorboard", "mirrors")]

    track = [sys.executable, "-m", "workbench", "track", study, "--to", name]
    end = time.monotonic() + 60  # the copy that had not finished goes on for a while
    done = subprocess.run(track, capture_output=True, text=True, check=False)
    while "another process copies this run" in done.stderr and time.monotonic() < end:
        done = subprocess.run(track, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and run.run_id in done.stdout and "160" in done.stdout, done.stderr
    assert problems(copies(str(recorder), [run], study)) == []
    same(read(name, run), run, recorded(run))
    verified = subprocess.run([sys.executable, "-m", "workbench", "verify", "runs"], capture_output=True, check=False)
    assert verified.returncode == 0, verified.stdout
    moved = ["cp", study, "--to", str(tmp_path / "elsewhere")]
    done = subprocess.run([sys.executable, "-m", "workbench", *moved], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and len(RunStore.existing(tmp_path / "elsewhere").runs()) == 2, done.stderr
