"""Killed at any moment and typed again, or out of memory, a run ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from drills.small import NOISY

from .conftest import SETS, Command, environment


def words(text: Path, objective: str, runs: Path) -> list[str]:
    given = ["run", "ablation", "--objective", objective, "--corpus", text, "--tasks", "none", "--budget", "steps=60"]
    given += ["--precision", "bf16" if objective == "all-tokens-mlm" else "fp32"]  # exact in either
    given += ["--threads", 1, "--micro-batch", 4, "--save-every", 7, "--runs", runs, *SETS]
    given += ["--set", "encoder.dropout=0.1", "--set", "batch.size=8"]
    return [str(word) for word in given]


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


def test_killed_together_and_resumed_with_another_number_runs_have_the_bits_of_runs_alone(
    text: Path, cache: Path, workbench: Command, tmp_path: Path
) -> None:
    alone, killed = ([*words(text, "rtd", tmp_path / name), "--seeds", "3"] for name in ("alone", "killed"))
    workbench(*alone, cwd=tmp_path, ends=0)
    command = [sys.executable, "-m", "workbench", *killed, "--streams", "2"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(cache), stderr=subprocess.DEVNULL) as process:
        while len(list(tmp_path.glob("killed/*/checkpoints/step-*"))) < 4 and process.poll() is None:
            time.sleep(0.01)
        process.kill()
    assert len(list(tmp_path.glob("killed/*/lease"))) == 2 and not list(tmp_path.glob("killed/*/done.json"))
    workbench(*killed, "--streams", "3", cwd=tmp_path, ends=0)
    for run in (tmp_path / "alone").glob("rtd-*"):
        same = tmp_path / "killed" / run.name
        rows, others = (
            [
                {key: value for key, value in json.loads(line).items() if key not in NOISY}
                for line in (each / "metrics.jsonl").read_text().splitlines()
            ]
            for each in (run, same)
        )
        assert rows == others and len(rows) == 60
        for name in ("encoder/model.safetensors", "heads/model.safetensors"):
            assert (run / name).read_bytes() == (same / name).read_bytes()
        assert json.loads((same / "env.json").read_text())["streams"] == 3


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_stopped_in_fine_tuning_it_says_how_to_go_on(
    kind: int, text: Path, table: Path, cache: Path, workbench: Command, tmp_path: Path
) -> None:
    words = ["run", "ablation", "--objective", "rtd", "--corpus", text, "--tasks", table, "--budget", "steps=2", *SETS]
    words = [str(word) for word in [*words, "--set", "tasks.seeds=100"]]
    command = [sys.executable, "-m", "workbench", *words]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(cache), stderr=subprocess.PIPE, text=True) as process:
        while not list(tmp_path.glob("runs/*/scores/*.json")) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(kind)
        _, errors = process.communicate(timeout=100)
    assert process.returncode == 128 + kind
    assert errors.endswith("workbench: interrupted; the same command goes on from what is saved\n"), errors
    assert "Traceback" not in errors and not list(tmp_path.glob("runs/*/lease"))


HUNGRY = '''"""RTD that runs out of memory with more rows than fit, from its third step on."""

import torch

from workbench.objectives import rtd
from workbench.objectives.rtd import Options, cost

FIT, ERROR = {fit}, {error}


class Objective(rtd.Objective):
    steps = 0

    def forward(self, batch):
        loss = super().forward(batch)
        self.steps += 1
        if self.steps > 2 and len(batch.ids) > FIT:
            raise ERROR
        return loss
'''
CUDA = 'torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")'
CPU = 'RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can\'t allocate memory: you tried ...")'


def rows(runs: Path) -> list[dict[str, object]]:
    path = next(runs.glob("hungry-*/metrics.jsonl"))
    return [json.loads(line) for line in path.read_text().splitlines()]


def hungry(folder: Path, fit: int, error: str, text: Path) -> list[str]:
    (folder / str(fit)).mkdir()
    path = folder / str(fit) / "hungry.py"
    path.write_text(HUNGRY.format(fit=fit, error=error))
    given = ["run", "ablation", "--objective", path, "--corpus", text, "--tasks", "none", "--budget", "steps=6"]
    given += ["--runs", folder / str(fit) / "runs", *SETS, "--set", "encoder.dropout=0"]
    return [*map(str, given), "--set", "encoder.attention_dropout=0"]


def test_the_micro_batch_is_halved_and_the_batch_is_not(text: Path, workbench: Command, tmp_path: Path) -> None:
    """Without dropout, micro-batches of any size have the same masks, samples and, but for rounding, losses."""
    workbench(*hungry(tmp_path, 8, CUDA, text), cwd=tmp_path / "8", ends=0)
    whole = rows(tmp_path / "8" / "runs")
    assert [row["micro_batch"] for row in whole] == [8] * 6
    for fit, error, at_once in ((3, CUDA, 2), (1, CPU, 1)):
        done = workbench(*hungry(tmp_path, fit, error, text), cwd=tmp_path / str(fit), ends=0)
        halved = rows(tmp_path / str(fit) / "runs")
        assert [row["micro_batch"] for row in halved] == [8, 8, *[at_once] * 4]
        assert "out of memory at step 3 with 8 rows at once; continuing with 4" in done.stderr
        assert halved[2]["replaced_rate"] == whole[2]["replaced_rate"]
        for one, other in zip(whole, halved, strict=True):
            assert one["tokens"] == other["tokens"] and one["mask_rate"] == other["mask_rate"]
            assert other["loss"] == pytest.approx(one["loss"], rel=1e-5, abs=1e-5)


def test_a_single_row_that_does_not_fit_fails_the_run_alone(text: Path, workbench: Command, tmp_path: Path) -> None:
    done = workbench(*hungry(tmp_path, 0, CUDA, text), cwd=tmp_path)
    assert done.returncode == 1 and "out of memory" in done.stderr and "Traceback" not in done.stderr
    error = json.loads(next((tmp_path / "0/runs").glob("hungry-*/error.json")).read_text())
    assert error["kind"] == "failed" and "out of memory" in error["message"]
