"""The real commands on a small text, in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from drills.small import SETS, TINY, Command, environment, server, write_table, write_text
from helpers import slurm

__all__ = ["SETS", "TINY", "Command", "environment"]


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
    """`workbench(*words, cwd=...)` runs the command to its end, in a process of its own."""
    with server(cache, tmp_path_factory.mktemp("cwd")) as command:
        yield command


@pytest.fixture(scope="session")
def store(text: Path, table: Path, workbench: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose store tests only read: RTD, which is measured, with a dense head, BERT MLM and causal LM."""
    folder, none = tmp_path_factory.mktemp("store"), ["--tasks", "none"]
    measured = ["--tasks", table, "--set", "tasks.seeds=2", "--set", "tasks.epochs=1"]
    for words in (
        ["--objective", "rtd", *measured], ["--objective", "electra-15", "--set", "head=dense", *none],
        ["--objective", "bert-mlm", "--objective", "causal-lm", *none],
    ):  # fmt: skip
        workbench("run", "ablation", "--corpus", text, "--budget", "steps=4", *SETS, *words, cwd=folder, ends=0)
    return folder
