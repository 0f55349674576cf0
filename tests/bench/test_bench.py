"""`workbench bench`: it measures the real training loop, its shares add up, and disturbances are reported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import CPU, SMALL
from typer.testing import CliRunner

from workbench import bench, objectives
from workbench.cli import app
from workbench.errors import InputError
from workbench.spec.presets import resolve


def test_cells_shrink_to_patience_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = objectives.with_options(resolve("small", {"budget.steps": 10**6}))
    whole = bench.fitted(spec, CPU, 1e15)
    assert (whole.spec.batch.size, whole.skipped) == (
        128,
        "",
    ) or whole.spec.batch.size < 128  # a machine of little memory
    slow = bench.fitted(spec, CPU, 1e10)
    assert 1 <= slow.spec.batch.size < whole.spec.batch.size
    monkeypatch.setattr(bench, "available_memory", lambda host: 2**20)
    tiny = bench.fitted(spec, CPU, 1e15)
    assert tiny.spec.batch.size == 1
    assert "GiB" in tiny.skipped


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    sets = [word for key, value in SMALL.items() if key != "budget.steps" for word in ("--set", f"{key}={value}")]
    done = subprocess.run(
        [sys.executable, "-m", "workbench", "bench", "--scale", "nano", "--objective", "rtd", "--steps", "2",
         "--repeats", "2", "--device", "cpu", "--threads", "1", "--json", "--out", str(tmp_path), *sets],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["objective"], row["scale"], row["precision"]) == ("rtd", "nano", row["precision"])
    assert row["tokens_per_second"] == pytest.approx(4 * 32 / row["seconds_per_step"])
    assert row["steps"] == 4
    assert 0 < row["model_flops_utilisation"] < 1
    assert sum(row["shares"].values()) == pytest.approx(1)
    assert 100 * 2**20 < row["peak_memory_bytes"] < 4 * 2**30
    assert (tmp_path / "index.html").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--scale", "tiny"], "unknown scale 'tiny'"), (["--objective", "rdt"], "did you mean 'rtd'"),
     (["--set", "encoder.hiden=3"], "hiden")],
)  # fmt: skip
def test_bad_words_are_refused(words: list[str], said: str) -> None:
    refused = CliRunner().invoke(app, ["bench", *words])
    assert isinstance(refused.exception, InputError) and said in str(refused.exception)
