"""What the commands of SLURM may answer: sentences, and no wrong job."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.slurm import Tool

from workbench.errors import InputError
from workbench.execution.cluster import job_array, slurm


def test_a_command_that_cannot_be_started_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "squeue").write_bytes(b"\x7fELF")
    (tmp_path / "squeue").chmod(0o755)
    with pytest.raises(OSError, match="the queue of SLURM cannot be read: squeue cannot be started: "):
        slurm.queue_of(["12"])


def test_other_lines_among_those_of_the_queue_are_not_read(tool: Tool) -> None:
    tool("squeue", b"echo Welcome; echo '12|RUNNING'; printf '12|PENDING|caf\\351\\n'; echo '13|RUNNING|None'; echo")
    assert slurm.queue_of(["12"]) == {"12": [("PENDING", "caf\ufffd")]}


def test_without_slurm_the_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="the command sbatch is not found"):
        slurm.check()
    assert job_array.queued(Path("runs")) == []
