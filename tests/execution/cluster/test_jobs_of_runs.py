"""Runs as jobs: folders of their own, and what is said of runs that no job has trained."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from helpers.slurm import Tool

from workbench.execution.cluster import job_array, jobs_of_runs
from workbench.execution.workers import Assignment
from workbench.spec.host import Host, Launch
from workbench.store.run_directory import RunDir


@pytest.fixture
def assignment(tmp_path: Path) -> Assignment:
    return Assignment(tmp_path / "runs", "x", {}, ("a", "b"), (), Host(device="cpu", launch=Launch(cpus=3)), "", 0)


def test_two_commands_of_one_second_submit_jobs_of_their_own(tool: Tool, assignment: Assignment) -> None:
    tool("sbatch", b"echo 12")
    assert len({jobs_of_runs._submit(assignment, 1).folder for _ in range(5)}) == 5


def test_the_worker_gets_the_assignment_without_the_launcher(tool: Tool, assignment: Assignment) -> None:
    tool("sbatch", b"echo 12")
    array = jobs_of_runs._submit(assignment, 2)
    given = Assignment.read(array.folder / "assignment.json")
    assert given.host.launch is None and given.host.threads == 3 and given.runs == assignment.runs
    script = (array.folder / "job.sh").read_text()
    assert f"worker {array.folder / 'assignment.json'} &" in script and "--array=0-1\n" in script


def test_runs_that_no_job_has_trained_are_counted(
    tool: Tool, assignment: Assignment, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_array.live, "REFRESH", 0.0)
    monkeypatch.setattr(RunDir, "damage", None)
    tool("sbatch", b"echo 12")
    tool("squeue", b"exit 0")
    with caplog.at_level(logging.WARNING):
        jobs_of_runs.share(assignment, ["a", "b"], 4)
    assert "the jobs 12 of SLURM have ended, and 2 runs are not trained" in caplog.text
    jobs_of_runs.share(assignment, [], 4)  # nothing is left to do, and nothing is submitted
    assert len(list((assignment.store / "jobs").iterdir())) == 1
