"""The real commands on a small text, in processes of their own."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drills.small import SETS, TINY, environment, write_table, write_text
from helpers import slurm

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
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment variables of a real SLURM cluster of one node on this machine."""
    if reason := slurm.lacking():
        pytest.skip(reason)
    with slurm.cluster(tmp_path_factory.mktemp("slurm")) as configuration:
        yield {"SLURM_CONF": configuration}


@pytest.fixture(scope="session")
def workbench(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """`workbench(*words, cwd=...)` runs the command to its end: in a process of its own, forked from one that has torch
    and transformers loaded, as loading them takes longer than what most of these commands do."""
    home, said = tmp_path_factory.mktemp("cwd"), tmp_path_factory.mktemp("said")
    ask = [sys.executable, "-c", "from drills.small import serve; serve()"]
    tests = Path(__file__).parents[1]
    paths = {"PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])}  # this checkout's code, also in workers
    numbers = itertools.count()

    with subprocess.Popen(
        ask, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(cache) | paths
    ) as server:
        assert server.stdin and server.stdout
        into, answers = server.stdin, server.stdout

        def command(*words: object, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
            given, out = [str(word) for word in words], said / f"{next(numbers)}.out"
            into.write(json.dumps([given, str(cwd or home), str(cache), str(out), more]) + "\n")
            into.flush()
            code = int(answers.readline())
            return subprocess.CompletedProcess(given, code, out.read_text(), out.with_suffix(".err").read_text())

        yield command
        into.close()
