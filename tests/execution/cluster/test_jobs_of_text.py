"""Slices of a text as jobs: what is submitted, what is waited for, and slices that are missing in the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.slurm import Tool

from workbench.data.preprocessing import Plan, Slice
from workbench.data.sources import Hub
from workbench.errors import InputError
from workbench.execution.cluster import job_array, jobs_of_text
from workbench.spec.host import Launch
from workbench.spec.parts import DataSpec


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    slices = tuple(Slice((Hub(name, None, "1", size=5),)) for name in ("a", "b", "c"))
    (tmp_path / "slices").mkdir()
    return Plan(tmp_path, "key", DataSpec(), tmp_path / "tokenizers/x", slices)


def test_jobs_take_the_slices_that_are_missing(
    plan: Plan, tool: Tool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(job_array, "LOOK", 0.0)
    monkeypatch.setattr(job_array.live, "REFRESH", 0.01)
    plan.folder(1).mkdir()
    tool("sbatch", b"echo 12")
    tool("squeue", f"[ -d {plan.folder(2)} ] || echo '12|RUNNING|None'; mkdir -p {plan.folder(2)}".encode())
    sizes: list[int] = []

    def advance(size: int) -> None:
        sizes.append(size)
        if len(sizes) == 2:
            plan.folder(0).mkdir()

    jobs_of_text.encode(plan, 8, advance, Launch())
    assert sizes == [5, 5, 5]
    [script] = (tmp_path / "jobs").glob("key-*/job.sh")
    assert f"encode-slices {plan.path} &" in script.read_text() and "--array=0-1\n" in script.read_text()
    jobs_of_text.encode(plan, 8, lambda _: None, Launch())  # all are there: nothing is submitted
    assert len(list((tmp_path / "jobs").iterdir())) == 1


def test_slices_that_are_missing_in_the_end_are_an_error(
    plan: Plan, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_array.live, "REFRESH", 0.0)
    tool("sbatch", b"echo 12")
    tool("squeue", b"exit 0")
    with pytest.raises(InputError, match="the jobs 12 of SLURM have ended, and 3 slices of the text are not there"):
        jobs_of_text.encode(plan, 8, lambda _: None, Launch())
