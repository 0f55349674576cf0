"""Killed at any moment and typed again, a run ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from drills.small import curve

from .conftest import SETS, Command, environment


def words(text: Path, objective: str, runs: Path) -> list[str]:
    given = ["run", "ablation", "--objective", objective, "--corpus", text, "--tasks", "none", "--budget", "steps=60"]
    given += ["--precision", "bf16" if objective == "all-tokens-mlm" else "fp32"]  # exact in either
    given += ["--threads", 1, "--micro-batch", 4, "--save-every", 7, "--runs", runs, *SETS]
    given += ["--set", "encoder.dropout=0.1", "--set", "batch.size=8"]
    return [str(word) for word in given]


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


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_stopped_in_fine_tuning_it_says_how_to_go_on(
    kind: int, text: Path, table: Path, cache: Path, workbench: Command, tmp_path: Path
) -> None:
    words = ["run", "ablation", "--objective", "rtd", "--corpus", text, "--tasks", table, "--budget", "steps=2", *SETS]
    words = [str(word) for word in [*words, "--set", "tasks.seeds=100"]]
    with subprocess.Popen(
        [sys.executable, "-m", "workbench", *words],
        cwd=tmp_path,
        env=environment(cache),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not list(tmp_path.glob("runs/*/scores/*.json")) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(kind)
        _, errors = process.communicate(timeout=100)
    assert process.returncode == 128 + kind
    assert errors.endswith("workbench: interrupted; the same command goes on from what is saved\n"), errors
    assert "Traceback" not in errors and not list(tmp_path.glob("runs/*/lease"))
