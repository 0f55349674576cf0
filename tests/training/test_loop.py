"""The fast ways against the plain one in whole training runs: the same curve in fp32, a near one in bf16."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import begun

from workbench.errors import Interrupted
from workbench.report.load.run_files import STRETCH
from workbench.store.checkpoint import steps
from workbench.store.run_directory import RunDir
from workbench.tensors import RESERVED, ROW_COLUMNS
from workbench.training.loop import build

TINY = {
    "encoder.hidden": 64, "encoder.layers": 2, "encoder.heads": 2, "encoder.vocab": 300, "encoder.init": 0.05,
    "data.length": 16, "batch.size": 8, "optim.lr": 1e-3,
}  # fmt: skip


def curve(name: str, folder: Path, length: int, **more: Any) -> list[dict[str, float]]:
    """The metrics of a run on made-up text."""
    run = trained(name, folder, length, **more)
    return [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


def trained(name: str, folder: Path, length: int, **more: Any) -> RunDir:
    """A run on made-up text; its metrics and checkpoints are there also if training was interrupted."""
    settings = {key: more.pop(key) for key in [*more] if "." in key}
    job = begun(folder, TINY | {"objective": name, "budget.steps": length} | settings, tokens=20_000)
    with contextlib.suppress(Interrupted):
        job.train(**more)
        (job.run.path / "ended").touch()
    return job.run


def losses(rows: list[dict[str, float]]) -> np.ndarray:
    return np.array([row["loss"] for row in rows])


def test_every_column_that_a_row_has_of_its_own_is_reserved(tmp_path: Path) -> None:
    job = begun(tmp_path, TINY | {"objective": "rtd", "optim.generator_lr": 1e-4})
    loss = build(job.spec)(job.corpus.batch(0, 8, torch.device("cpu")))
    rows = curve("rtd", tmp_path / "run", 3, **{"optim.generator_lr": 1e-4})
    assert set(rows[0]) - {*loss.parts, *loss.metrics} == {*ROW_COLUMNS}
    assert {*STRETCH, *ROW_COLUMNS} <= RESERVED and not RESERVED & {*loss.parts, *loss.metrics}


@pytest.mark.parametrize("name", ["rtd", pytest.param("bert-mlm", marks=pytest.mark.slow)])
def test_a_hundred_steps_in_bf16_and_plainly_in_fp32(name: str, tmp_path: Path) -> None:
    """Smoothed over 20 steps, the losses of both stay within 1 % of the plain run's; fp32 within 0.2 %."""
    plain, fast, half = (
        losses(curve(name, tmp_path / str(index), 100, **more))
        for index, more in enumerate(({"plain": True}, {"precision": "fp32"}, {"precision": "bf16"}))
    )
    assert plain[-20:].mean() < 0.97 * plain[:20].mean(), "it learns something"
    np.testing.assert_allclose(fast[:20], plain[:20], rtol=1e-4)
    smooth = [each.reshape(5, 20).mean(1) for each in (plain, fast, half)]
    np.testing.assert_allclose(smooth[1], smooth[0], rtol=2e-3)
    np.testing.assert_allclose(smooth[2], smooth[0], rtol=1e-2)


@pytest.mark.parametrize("at, saved", [(10, 11), (20, 20)])
def test_signal_while_metrics_are_written(at: int, saved: int, tmp_path: Path) -> None:
    """Training stops with all its steps saved, though the step had begun without the signal; also in the last step."""
    calls = iter(range(10, 1000, 10))

    def guard() -> None:
        if next(calls) == at:
            os.kill(os.getpid(), signal.SIGTERM)

    run = trained("bert-mlm", tmp_path, 20, guard=guard, log_every=10)
    last = json.loads((run.path / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert not (run.path / "ended").exists(), "the signal was lost"
    assert (last, steps(run.path / "checkpoints")[-1]) == (saved, saved)
