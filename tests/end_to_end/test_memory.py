"""Out of memory is no end of a run: the step is computed again in smaller micro-batches, and its record says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import SETS, Command

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


def words(folder: Path, fit: int, error: str, text: Path) -> list[str]:
    (folder / str(fit)).mkdir()
    path = folder / str(fit) / "hungry.py"
    path.write_text(HUNGRY.format(fit=fit, error=error))
    given = ["run", "ablation", "--objective", path, "--corpus", text, "--tasks", "none", "--budget", "steps=6"]
    given += ["--runs", folder / str(fit) / "runs", *SETS, "--set", "encoder.dropout=0"]
    return [*map(str, given), "--set", "encoder.attention_dropout=0"]


@pytest.mark.parametrize(("fit", "error"), [(3, CUDA), (1, CPU)])
def test_the_micro_batch_is_halved_and_the_batch_is_not(
    fit: int, error: str, text: Path, workbench: Command, tmp_path: Path
) -> None:
    done = workbench(*words(tmp_path, 8, CUDA, text), cwd=tmp_path / "8")
    assert done.returncode == 0, done.stderr
    done = workbench(*words(tmp_path, fit, error, text), cwd=tmp_path / str(fit))
    assert done.returncode == 0, done.stderr
    whole, halved = rows(tmp_path / "8" / "runs"), rows(tmp_path / str(fit) / "runs")
    at_once = {3: 2, 1: 1}[fit]
    assert [row["micro_batch"] for row in whole] == [8] * 6
    assert [row["micro_batch"] for row in halved] == [8, 8, *[at_once] * 4]
    assert "out of memory at step 3 with 8 rows at once; continuing with 4" in done.stderr
    for one, other in zip(whole, halved, strict=True):
        assert one["tokens"] == other["tokens"] and one["mask_rate"] == other["mask_rate"]
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-5, abs=1e-5)


def test_a_single_row_that_does_not_fit_fails_the_run_alone(text: Path, workbench: Command, tmp_path: Path) -> None:
    done = workbench(*words(tmp_path, 0, CUDA, text), cwd=tmp_path)
    assert done.returncode == 1 and "out of memory" in done.stderr and "Traceback" not in done.stderr
    error = json.loads(next((tmp_path / "0/runs").glob("hungry-*/error.json")).read_text())
    assert error["kind"] == "failed" and "out of memory" in error["message"]
