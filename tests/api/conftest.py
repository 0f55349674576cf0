"""Studies that tests of the Python interface share: a made one, and one that is carried out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made
import pytest
from drills.small import TINY, write_table, write_text

import workbench as wb

LEVELS = dict.fromkeys(made.ARMS, 65.0) | {"untrained": 50.0, "rtd": 70.0, "bert-mlm": 60.0}

SETTINGS = dict(setting.split("=", 1) for setting in TINY)


@pytest.fixture(scope="package")
def study(tmp_path_factory: pytest.TempPathFactory) -> wb.Study:
    """Five arms of known levels over four seeds."""
    store, name = made.study(tmp_path_factory.mktemp("made") / "runs", made.noisy(LEVELS), seeds=4)
    return wb.Store(store.root).study(name)


@pytest.fixture(scope="package")
def carried_out(tmp_path_factory: pytest.TempPathFactory, workbench_cache: Path) -> tuple[wb.Study, dict[str, Any]]:
    """A real study of two objectives, and the words that made it."""
    folder = tmp_path_factory.mktemp("real")
    words: dict[str, Any] = {
        "objective": ["bert-mlm", "rtd"], "corpus": str(write_text(folder / "small.txt")), "budget": "steps=4",
        "tasks": str(write_table(folder / "animals.csv")), "set": SETTINGS | {"tasks.seeds": 1, "tasks.epochs": 1},
        "seeds": 2, "runs": folder / "runs", "out": folder / "report", "threads": 1,
    }  # fmt: skip
    return wb.run("ablation", **words), words
