"""The studies for a GPU, rehearsed on a CPU: what comes back is small, and its encoders are the ones of the runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from workbench.bench import estimate
from workbench.cli import app

BENCHMARKS = Path(__file__).parents[2] / "experiments" / "benchmarks"


@pytest.mark.slow
def test_encoders_of_a_job_come_back_in_small_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu_job

    script, out = [sys.executable, str(BENCHMARKS / "gpu_job.py")], tmp_path / "back"
    given = ["small-pair", str(out), "--device", "cpu", "--tiny", "--seed", "3"]
    done = subprocess.run([*script, *given], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in out.iterdir())
    assert names[1:] == ["job.json", next(n for n in names if n.startswith("rtd-nano-s3-")), "study.tar.xz"]
    assert json.loads((out / "job.json").read_text())["machine"]["cores"] > 0
    monkeypatch.setattr(gpu_job, "LARGEST", 200_000)  # as large models, in several parts
    gpu_job.pack(tmp_path / "build/gpu-job/small-pair/rehearsal", out, True)
    assert len(list(out.glob("rtd-*.safetensors"))) > 1
    (bert, rtd) = gpu_job.unpack(out)
    for folder in (bert, rtd):
        run = tmp_path / "build/gpu-job/small-pair/rehearsal" / folder.name
        trained, back = load_file(run / "encoder/model.safetensors"), load_file(folder / "model.safetensors")
        assert trained.keys() == back.keys()
        assert all(torch.equal(trained[name].bfloat16().float(), back[name]) for name in trained)
        assert (folder / "tokenizer.json").read_bytes() == (run / "encoder/tokenizer.json").read_bytes()


@pytest.mark.slow
def test_runs_together_are_timed_beside_runs_alone(tmp_path: Path) -> None:
    out = tmp_path / "back"
    script = [sys.executable, str(BENCHMARKS / "gpu_job.py"), "streams", str(out), "--device", "cpu", "--tiny"]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((out / "streams.json").read_text())
    assert found["machine"]["cores"] > 0 and found["versions"]["torch"] and "--tiny" in found["command"]
    assert [row["together"] for row in found["rows"]] == [1, 2, 3]
    assert all(row["tokens_per_second"] > 0 and row["seconds"] > 0 for row in found["rows"])
    assert all(row["same_bits"] and row["gain"] > 0 for row in found["rows"][1:])


@pytest.mark.parametrize("name", ["generator-width", "five-objectives", "small-rtd"])
def test_a_job_is_a_command_that_can_be_planned(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import argparse

    import gpu_job

    chosen = argparse.Namespace(tiny=True, device="cpu", corpus=None, glue=None, seed=0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(estimate, "_measured", lambda *_: 0.01)  # no step is timed
    done = CliRunner().invoke(app, [*gpu_job.words_of(name, chosen), "--dry-run"])
    assert done.exit_code == 0 and " nano" in done.stdout, done.output
