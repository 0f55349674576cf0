"""The real commands on a small text, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from drills.small import SETS, TINY, environment, write_table, write_text

__all__ = ["SETS", "TINY", "Command", "environment"]

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 300 short documents with enough order in it that a model can learn some."""
    return write_text(tmp_path_factory.mktemp("text") / "small.txt")


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classification that one word decides: 60 rows to learn from, 40 to test on."""
    return write_table(tmp_path_factory.mktemp("table") / "animals.csv")


@pytest.fixture(scope="session")
def workbench(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """`workbench(*words, cwd=...)` runs the command to its end."""
    home = tmp_path_factory.mktemp("cwd")

    def command(*words: object, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "workbench", *map(str, words)],
            cwd=cwd or home, env=environment(cache) | more, capture_output=True, text=True, timeout=300,
        )  # fmt: skip

    return command
