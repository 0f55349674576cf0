"""Models as jobs: the command of each, and the scores that they wrote."""

from __future__ import annotations

import logging
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.slurm import Tool

from workbench.errors import InputError
from workbench.execution.cluster import job_array, jobs_of_models
from workbench.execution.cluster.job_array import Submitted
from workbench.execution.request import scores_of_encoders
from workbench.spec.host import Host, Launch


@pytest.mark.parametrize("number", [0, 1])
def test_each_job_measures_its_model(tmp_path: Path, number: int) -> None:
    """The script is carried out by bash, with a program that repeats its words in the place of Python."""
    folder = tmp_path / "a b"
    folder.mkdir()
    names, options = ["one model", "$(two)"], ["--tasks", "it's.csv", "--set", "tasks.lr=1e-3"]
    work = jobs_of_models._work(folder, names, options, ("x", "y"), 1)
    echo = tmp_path / "echo"
    echo.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    echo.chmod(0o755)
    text = job_array.script(folder, Launch(), work).replace(shlex.quote(sys.executable), str(echo))
    subprocess.run(["bash", "-c", text], check=True, env={"SLURM_ARRAY_TASK_ID": str(number), "PATH": "/usr/bin:/bin"})
    words = (folder / f"{number}.json").read_text().splitlines()
    assert words == ["-m", "workbench", "evaluate", "--json", *options, "--", names[number]]
    assert "--array=0-1%1\n" in text


def test_the_options_are_those_of_the_command(tmp_path: Path) -> None:
    given = jobs_of_models.options("mini", ["a.b=1"], "x.csv", Host(device="cpu"), tmp_path, 1e18, True)
    assert given == [
        "--scale", "mini", "--tasks", "x.csv", "--runs", str(tmp_path), "--flops", "1e+18", "--device", "cpu",
        "--precision", "auto", "--set", "a.b=1", "--allow-bin",
    ]  # fmt: skip


@pytest.mark.parametrize("content", ["", "[{", "null", '{"score": 1}'])
def test_a_job_without_scores_is_named(tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    array = Submitted("12", tmp_path, ("m",))
    (tmp_path / "0.json").write_text(content)
    (tmp_path / "12_0.log").write_text("workbench: m has no config.json\n")
    with caplog.at_level(logging.WARNING):
        assert jobs_of_models._rows(array, 0, "m") == []
    assert "m was not measured by the jobs 12" in caplog.text
    assert "12_0.log ends with: workbench: m has no" in caplog.text
    (tmp_path / "0.json").write_text('[{"model": "m", "value": 1.0}]')
    assert jobs_of_models._rows(array, 0, "m") == [{"model": "m", "value": 1.0}]


def test_a_number_of_jobs_needs_a_cluster() -> None:
    with pytest.raises(InputError, match="--workers 3 is the number of jobs at a time; add --launcher slurm"):
        scores_of_encoders(["x"], None, [], None, Host(device="cpu"), workers=3)


def test_more_models_than_an_array_has_jobs_are_refused(tool: Tool, tmp_path: Path) -> None:
    for name in ("sbatch", "squeue", "scontrol"):
        tool(name, b"exit 1")
    with pytest.raises(InputError, match="1,001 models are named"):
        jobs_of_models.measure(["m"] * 1001, [], tmp_path / "runs", Launch(), None)
    assert not (tmp_path / "runs").exists()
