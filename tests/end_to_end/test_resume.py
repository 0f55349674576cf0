"""Killed at any moment and typed again, a run ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import SETS, Command, environment

NOISY = ("seconds", "tokens_per_second", "saving_share")  # measured, not computed


def words(text: Path, objective: str, runs: Path) -> list[str]:
    given = ["run", "ablation", "--objective", objective, "--corpus", text, "--tasks", "none", "--budget", "steps=60"]
    given += ["--threads", 1, "--micro-batch", 4, "--save-every", 7, "--runs", runs, *SETS]
    given += ["--set", "encoder.dropout=0.1", "--set", "batch.size=8"]
    return [str(word) for word in given]


def curve(runs: Path) -> list[dict[str, object]]:
    path = next(runs.glob("*/metrics.jsonl"))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in NOISY} for row in rows]


def weights(runs: Path) -> bytes:
    return next(runs.glob("*/encoder/model.safetensors")).read_bytes()


@pytest.mark.parametrize("objective", ["rtd", "all-tokens-mlm"])
def test_killed_three_times_the_curve_and_weights_are_the_same(
    objective: str, text: Path, cache: Path, workbench: Command, tmp_path: Path
) -> None:
    whole = workbench(*words(text, objective, tmp_path / "whole"), cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    rng = random.Random(objective)
    command = [sys.executable, "-m", "workbench", *words(text, objective, tmp_path / "killed")]
    stops = [rng.randint(3, 15), rng.randint(16, 30), rng.randint(31, 50)]
    for stop in stops:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment(cache), stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            checkpoints = list((tmp_path / "killed").glob("*/checkpoints/step-*"))
            if any(int(path.name.split("-")[1]) >= stop for path in checkpoints):
                break
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
    final = workbench(*words(text, objective, tmp_path / "killed"), cwd=tmp_path)
    assert final.returncode == 0, final.stderr
    assert curve(tmp_path / "killed") == curve(tmp_path / "whole")
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_and_says_how_to_go_on(number: int, text: Path, cache: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "workbench", *words(text, "bert-mlm", tmp_path / "runs")]
    command[command.index("steps=60")] = "steps=100000"
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(cache), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "runs").glob("*/checkpoints/step-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    asked = time.monotonic()
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert time.monotonic() - asked < 10
    assert process.returncode == (130 if number == signal.SIGINT else 143)
    assert "same command" in said and "Traceback" not in said
    run = next((tmp_path / "runs").glob("bert-mlm-*"))
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert (run / "checkpoints" / f"step-{last:08d}").is_dir()
    assert not (run / "lease").exists()


def test_micro_batches_do_not_change_the_draws(text: Path, workbench: Command, tmp_path: Path) -> None:
    """Without dropout, one batch of 8 and four of 2 make the same masks, samples and, but for rounding, losses."""
    curves = []
    for micro in (8, 2):
        given = words(text, "rtd", tmp_path / str(micro))
        given[given.index("--micro-batch") + 1] = str(micro)
        given[given.index("encoder.dropout=0.1")] = "encoder.dropout=0"
        given += ["--set", "encoder.attention_dropout=0"]
        given[given.index("steps=60")] = "steps=10"
        done = workbench(*given, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        curves.append(curve(tmp_path / str(micro)))
    for one, other in zip(*curves, strict=True):
        assert one["mask_rate"] == other["mask_rate"]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
    assert curves[0][0]["replaced_rate"] == curves[1][0]["replaced_rate"]


def test_a_budget_of_seconds_becomes_steps_once(text: Path, workbench: Command, tmp_path: Path) -> None:
    given = words(text, "bert-mlm", tmp_path / "runs")
    given[given.index("steps=60")] = "seconds=1.5"
    assert (done := workbench(*given, cwd=tmp_path)).returncode == 0, done.stderr
    plan = next((tmp_path / "runs").glob("*/plan.json"))
    before = plan.read_bytes()
    assert json.loads(before)["steps"] > 0
    os.unlink(next((tmp_path / "runs").glob("*/done.json")))
    assert (done := workbench(*given, cwd=tmp_path)).returncode == 0, done.stderr
    assert plan.read_bytes() == before
