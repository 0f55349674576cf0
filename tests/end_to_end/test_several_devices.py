"""One run on several devices, here processes on a CPU: its numbers, and its end if one of them ends or is silent."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from drills.small import curve
from safetensors.torch import load_file

from .conftest import SETS, Command, environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
LIMIT = 300.0
GOES_ON = "another process of this run ended or did not answer; the same command goes on from the last checkpoint"


def words(text: Path, runs: Path, *more: object, steps: int = 60) -> list[str]:
    """A run with dropout, whose micro-batches of four rows have the same random numbers on one device and on two."""
    given = ["run", "ablation", "--objective", "bert-mlm", "--corpus", text, "--tasks", "none"]
    given += ["--budget", f"steps={steps}", "--precision", "fp32", "--threads", 1, "--micro-batch", 4]
    given += ["--save-every", 5, "--runs", runs, *SETS, "--set", "encoder.dropout=0.1", "--set", "batch.size=8"]
    return [str(word) for word in [*given, *more]]


def scored(text: Path, runs: Path, steps: int) -> list[str]:
    """The same run with scores on minimal pairs, also at points of its training."""
    given = words(text, runs, "--evaluate-at", "log:2", "--set", "data.held_out=0.4", steps=steps)
    return [word if word != "none" else "pairs:replace" for word in given]


def begun(given: list[str], folder: Path, cache: Path, *start: str, **more: str) -> subprocess.Popen[str]:
    with (folder / "said").open("a") as said:
        return subprocess.Popen(
            [sys.executable, *(start or ("-m", "workbench")), *given], cwd=folder, env=environment(cache) | more,
            stderr=said, stdout=subprocess.DEVNULL, text=True,
        )  # fmt: skip


def others(parent: int) -> list[int]:
    """The processes that a command started for its other devices."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(child) for child in children if b"rank" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")]


def wait_for(found: Callable[[], Any], process: subprocess.Popen[str]) -> Any:
    until = time.monotonic() + LIMIT
    while not (value := found()):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    return value


def checkpoints(runs: Path) -> list[Path]:
    return list(runs.glob("bert-mlm-*/checkpoints/step-*"))


def last_step(runs: Path) -> int:
    """The step of the newest checkpoint, 0 before the first."""
    names = [path.name.removeprefix("step-") for path in checkpoints(runs)]
    return max((int(name) for name in names if name.isdecimal()), default=0)


def same(folder: Path, expected: Path) -> None:
    """The curve of a run is another's, but for rounding."""
    for one, other in zip(curve(folder), curve(expected), strict=True):
        assert one["mask_rate"] == other["mask_rate"]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
        assert one["gradient_norm"] == pytest.approx(other["gradient_norm"], rel=1e-3)


@pytest.mark.slow
def test_a_killed_process_ends_the_run_in_one_sentence_and_one_device_goes_on(
    text: Path, cache: Path, workbench: Command, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    process = begun(words(text, runs, "--devices", 2, steps=400), tmp_path, cache)
    wait_for(lambda: checkpoints(runs), process)
    os.kill(others(process.pid)[0], signal.SIGKILL)
    assert process.wait(LIMIT) == 1
    said = (tmp_path / "said").read_text()
    assert f"failed: {GOES_ON}; process 1 ended with signal 9" in said and "Traceback" not in said
    done = workbench(*words(text, runs, steps=400), cwd=tmp_path)
    assert done.returncode == 0 and "continues with devices 1 instead of 2" in done.stderr
    assert workbench(*words(text, tmp_path / "alone", steps=400), cwd=tmp_path).returncode == 0
    same(runs, tmp_path / "alone")


def test_what_cannot_be_shared_is_refused_before_anything_is_written(
    text: Path, workbench: Command, tmp_path: Path
) -> None:
    said = workbench(*words(text, tmp_path / "runs", "--devices", 3), cwd=tmp_path)
    assert said.returncode == 2 and "--devices 3 does not divide batch.size=8" in said.stderr
    said = workbench(*words(text, tmp_path / "runs", "--devices", 2), cwd=tmp_path, WORKBENCH_RANK_TIMEOUT="soon")
    assert said.returncode == 2 and "WORKBENCH_RANK_TIMEOUT='soon' is not a whole number" in said.stderr
    timed = words(text, tmp_path / "runs", "--devices", 2, "--match", "none")
    timed[timed.index("steps=60")] = "seconds=1"
    said = workbench(*timed, cwd=tmp_path)
    assert said.returncode == 2 and "a budget in seconds is not timed over several devices" in said.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_killed_at_random_instants_it_ends_as_if_nothing_had_happened(
    text: Path, cache: Path, workbench: Command, tmp_path: Path
) -> None:
    """Whichever process is killed, at whichever moment; the number of devices changes in between.

    Moments are drawn in steps, since a fast machine ends all 1,000 of them in the seconds that a slow one needs to
    start; two of the seven are drawn in seconds, and hit processes that may still be starting.
    """
    draw, runs, killed = random.Random(5), tmp_path / "runs", 0
    for turn, devices in enumerate((2, 1, 2, 2, 1, 2, 2)):
        process = begun(words(text, runs, "--devices", devices, steps=1000), tmp_path, cache)
        if turn in (2, 4):
            time.sleep(draw.uniform(0.5, 4))
        else:
            aim = last_step(runs) + draw.randint(5, 60)
            wait_for(lambda step=aim: last_step(runs) >= step, process)
            time.sleep(draw.uniform(0, 0.2))
        if process.poll() is None:
            victims = [process.pid, *others(process.pid)]
            os.kill(draw.choice(victims), signal.SIGKILL)
            killed += 1
        process.wait(LIMIT)
    assert killed >= 5
    workbench(*words(text, runs, steps=1000), cwd=tmp_path, ends=0)
    assert workbench(*words(text, tmp_path / "alone", steps=1000), cwd=tmp_path).returncode == 0
    same(runs, tmp_path / "alone")
    assert "Traceback" not in (tmp_path / "said").read_text()


@pytest.mark.slow
def test_a_signal_stops_all_processes_after_a_step_and_a_silent_one_is_not_waited_for(
    text: Path, cache: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    given = words(text, runs, "--devices", 2, steps=100_000)
    process = begun(given, tmp_path, cache)
    wait_for(lambda: checkpoints(runs), process)
    children = others(process.pid)
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == 143
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    saved = max(path.name for path in checkpoints(runs))

    process = begun(given, tmp_path, cache, WORKBENCH_RANK_TIMEOUT="10")
    wait_for(lambda: max((path.name for path in checkpoints(runs)), default="") > saved, process)
    silent = others(process.pid)[0]
    os.kill(silent, signal.SIGSTOP)
    assert process.wait(LIMIT) == 1
    assert not Path(f"/proc/{silent}").exists()
    said = (tmp_path / "said").read_text()
    assert f"failed: {GOES_ON}" in said and "Traceback" not in said


@pytest.mark.slow
def test_torchrun_starts_the_same_and_its_restart_goes_on(
    text: Path, cache: Path, workbench: Command, tmp_path: Path
) -> None:
    """Both processes score the minimal pairs: of the end, and of points during training."""
    runs = tmp_path / "runs"
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    given, alone = (scored(text, folder, 300) for folder in (runs, tmp_path / "alone"))
    process = begun(given, tmp_path, cache, *start, "-m", "workbench")
    wait_for(lambda: checkpoints(runs), process)
    ranks = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(ranks[1]), signal.SIGKILL)
    assert process.wait(LIMIT) == 0, (tmp_path / "said").read_text()
    trained = [path for path in runs.glob("*/done.json") if not path.parent.name.startswith("untrained")]
    assert [json.loads(path.read_text())["steps"] for path in trained] == [300]
    assert workbench(*alone, cwd=tmp_path).returncode == 0
    same(runs, tmp_path / "alone")
    pattern = "bert-mlm-*/**/scores/*.json"
    pairs = list(zip(sorted(runs.glob(pattern)), sorted((tmp_path / "alone").glob(pattern)), strict=True))
    assert len(pairs) == 3
    for one, other in pairs:
        near = json.loads(other.read_text())["value"]
        assert json.loads(one.read_text())["value"] == pytest.approx(near, abs=1), one.name


@pytest.mark.slow
def test_a_sharded_run_that_is_killed_goes_on_whole_and_sharded_again(
    text: Path, cache: Path, workbench: Command, tmp_path: Path
) -> None:
    """Its checkpoints, its points and its encoder are whole, so that any number of devices reads them."""
    runs = tmp_path / "runs"
    given, alone = (scored(text, folder, 120) for folder in (runs, tmp_path / "alone"))
    process = begun([*given, "--devices", "2", "--shard"], tmp_path, cache)
    wait_for(lambda: checkpoints(runs), process)
    os.kill(others(process.pid)[0], signal.SIGKILL)
    assert process.wait(LIMIT) == 1
    assert GOES_ON in (tmp_path / "said").read_text()
    parts = {path.name for path in max(checkpoints(runs)).glob("*.safetensors")}
    assert parts == {f"{group}-0000{n}-of-00002.safetensors" for group in ("model", "optimizer") for n in (1, 2)}
    stopped = begun(given, tmp_path, cache)
    before = max(path.name for path in checkpoints(runs))
    wait_for(lambda: max(path.name for path in checkpoints(runs)) > before, stopped)
    stopped.send_signal(signal.SIGTERM)
    stopped.wait(LIMIT)
    workbench(*given, "--devices", 2, "--shard", cwd=tmp_path, ends=0)
    assert workbench(*alone, cwd=tmp_path).returncode == 0
    same(runs, tmp_path / "alone")
    for name in ("encoder", "points/*/encoder"):
        pattern = f"bert-mlm-*/{name}/model.safetensors"
        pairs = list(zip(sorted(runs.glob(pattern)), sorted((tmp_path / "alone").glob(pattern)), strict=True))
        assert pairs
        for one, other in pairs:
            torch.testing.assert_close(load_file(one), load_file(other), rtol=1e-3, atol=1e-4)
    assert workbench("verify", runs, cwd=tmp_path).returncode == 0
