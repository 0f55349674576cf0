"""Jobs on a real SLURM cluster of one node: cancelled, queued again and kept waiting, they end as local runs do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drills.small import curve, weights
from helpers import slurm
from helpers.slurm import LIMIT, asked, begun, submitted, wait_for

from .conftest import SETS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(slurm.lacking()), reason=slurm.lacking() or "-")]
RATES = "optim.lr=1e-3,2e-3,3e-3,4e-3,5e-3,6e-3"


def words(text: Path, runs: Path, *more: object, over: str = RATES) -> list[str]:
    given = ["sweep", "--over", over, "--objective", "bert-mlm", "--match", "steps", "--budget", "steps=60"]
    given += ["--corpus", text, "--tasks", "none", "--save-every", 10, "--threads", 1, "--runs", runs, *SETS]
    return [str(word) for word in [*given, *more]]


def same(folder: Path, runs: Path, whole: Path) -> None:
    assert len(list(runs.glob("bert-mlm-*/done.json"))) == len(list(whole.glob("bert-mlm-*/done.json")))
    assert curve(runs) == curve(whole) and weights(runs) == weights(whole), (folder / "said").read_text()
    assert not list(runs.glob("*/lease")), "a lease is left"


def test_a_sweep_with_cancelled_requeued_and_delayed_jobs_ends_as_a_local_one(
    workbench: Callable[..., Any], cluster: dict[str, str], text: Path, cache: Path, tmp_path: Path
) -> None:
    whole, runs, node = tmp_path / "whole", tmp_path / "runs", asked(cluster, "sinfo", "--noheader", "-o", "%n").strip()
    assert workbench(*words(text, whole)).returncode == 0

    asked(cluster, "scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    process = begun(words(text, runs, "--workers", 3), tmp_path, cache, cluster)
    job = wait_for(lambda: submitted(tmp_path), process, tmp_path)
    wait_for(lambda: "pending (" in (tmp_path / "said").read_text(), process, tmp_path)  # with SLURM's reason
    asked(cluster, "scontrol", "update", f"nodename={node}", "state=resume")

    wait_for(lambda: list(runs.glob("bert-mlm-*/checkpoints/step-*")), process, tmp_path)
    queue = asked(cluster, "squeue", "--noheader", "-o", "%i %T")
    running = [line.split()[0] for line in queue.splitlines() if line.endswith("RUNNING")]
    asked(cluster, "scancel", running[0])
    said = asked(cluster, "scontrol", "requeue", running[1])
    assert not said.strip(), said
    wait_for(lambda: f"{running[1]} PENDING" in asked(cluster, "squeue", "--noheader", "--array", "-o", "%i %T"),
             process, tmp_path)  # fmt: skip
    asked(cluster, "scontrol", "update", f"jobid={running[1]}", "starttime=now")  # SLURM holds it for minutes
    assert process.wait(LIMIT) == 0, (tmp_path / "said").read_text()
    same(tmp_path, runs, whole)
    logs = list((runs / "jobs").glob(f"*/{job}_*.log"))
    assert len(logs) == 3
    for run in runs.glob("bert-mlm-*"):
        assert re.search(rf'"slurm": ?"{job}_\d"', (run / "env.json").read_text())
        assert any(str(log) in (run / "env.json").read_text() for log in logs)


def test_all_jobs_cancelled_the_same_command_submits_what_is_left(
    workbench: Callable[..., Any], cluster: dict[str, str], text: Path, cache: Path, tmp_path: Path
) -> None:
    whole, runs, few = tmp_path / "whole", tmp_path / "runs", "optim.lr=1e-3,2e-3"
    assert workbench(*words(text, whole, over=few)).returncode == 0
    process = begun(words(text, runs, "--workers", 2, over=few), tmp_path, cache, cluster)
    job = wait_for(lambda: submitted(tmp_path), process, tmp_path)
    wait_for(lambda: list(runs.glob("bert-mlm-*/checkpoints/step-*")), process, tmp_path)
    status = workbench("status", "--runs", runs, **cluster)
    assert f"SLURM {job}: " in status.stderr and "running" in status.stdout
    asked(cluster, "scancel", job)
    assert process.wait(LIMIT) == 1
    said = (tmp_path / "said").read_text()
    assert f"the jobs {job} of SLURM have ended" in said and "the same command submits them again" in said
    assert not list(runs.glob("*/lease")), "a cancelled job holds a run"
    assert "Traceback" not in said

    process = begun(words(text, runs, "--workers", 2, over=few), tmp_path, cache, cluster)
    assert process.wait(LIMIT) == 0
    same(tmp_path, runs, whole)


def test_before_its_time_ends_a_job_saves_and_is_queued_again(
    workbench: Callable[..., Any], cluster: dict[str, str], text: Path, cache: Path, tmp_path: Path
) -> None:
    """The signal that SLURM sends some time before the limit, whose least unit is a minute, is sent by hand."""
    whole, runs, one = tmp_path / "whole", tmp_path / "runs", "optim.lr=1e-3"
    assert workbench(*words(text, whole, over=one)).returncode == 0
    process = begun(words(text, runs, over=one), tmp_path, cache, cluster)
    job = wait_for(lambda: submitted(tmp_path), process, tmp_path) + "_0"
    wait_for(lambda: list(runs.glob("bert-mlm-*/checkpoints/step-*")), process, tmp_path)
    asked(cluster, "scancel", "--signal=USR1", "--batch", job)
    wait_for(lambda: f"{job} PENDING" in asked(cluster, "squeue", "--noheader", "--array", "-o", "%i %T"),
             process, tmp_path)  # fmt: skip
    assert not list(runs.glob("bert-mlm-*/lease"))
    again = begun(words(text, runs, over=one), tmp_path, cache, cluster)  # a second command waits for the same jobs
    wait_for(lambda: "carry out these runs already" in (tmp_path / "said").read_text(), again, tmp_path)
    asked(cluster, "scontrol", "update", f"jobid={job}", "starttime=now")
    assert process.wait(LIMIT) == 0 and again.wait(LIMIT) == 0, (tmp_path / "said").read_text()
    same(tmp_path, runs, whole)
    assert len(list((runs / "jobs").iterdir())) == 1


def test_what_slurm_refuses_is_said_and_nothing_is_left(
    cluster: dict[str, str], text: Path, cache: Path, tmp_path: Path
) -> None:
    given = words(text, tmp_path / "runs", "--set", "launch.partition=nowhere", over="optim.lr=1e-3")
    process = begun(given, tmp_path, cache, cluster)
    assert process.wait(LIMIT) == 2
    said = (tmp_path / "said").read_text()
    assert "--launcher slurm: sbatch refused the jobs" in said and "nvalid partition" in said
    assert "Traceback" not in said
    assert not list((tmp_path / "runs" / "jobs").iterdir())
