"""Programs that stand for the commands of SLURM."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.slurm import Tool


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Write a program that stands for a command of SLURM."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def write(name: str, content: bytes) -> None:
        (folder / name).write_bytes(b"#!/bin/sh\n" + content)
        (folder / name).chmod(0o755)

    return write
