"""The real commands on a small text, in processes of their own."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TINY = (
    "encoder.hidden=32", "encoder.layers=2", "encoder.heads=2", "encoder.vocab=300", "encoder.positions=32",
    "data.length=32", "batch.size=8", "generator.width=0.5", "optim.lr=1e-3", "corruption.rate=0.15",
)  # fmt: skip
SETS = [part for setting in TINY for part in ("--set", setting)]
Command = Callable[..., subprocess.CompletedProcess[str]]


def environment(cache: Path) -> dict[str, str]:
    kept = {"WORKBENCH_CACHE": str(cache), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return {**os.environ, **kept}


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 300 short documents with enough order in it that a model can learn some."""
    rng = random.Random(0)
    names, verbs = ["the cat", "a dog", "one bird", "this fish", "my horse"], ["sees", "likes", "finds", "leaves"]
    places = ["in the garden", "near the river", "on a hill", "under the bridge", "by the old house"]
    documents = [
        "\n".join(
            f"{rng.choice(names)} {rng.choice(verbs)} {rng.choice(names)} {rng.choice(places)}."
            for _ in range(rng.randint(3, 9))
        )
        for _ in range(300)
    ]
    path = tmp_path_factory.mktemp("text") / "small.txt"
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classification that one word decides: 60 rows to learn from, 40 to test on."""
    rng = random.Random(1)
    rows = ["text,label,split"]
    for index in range(100):
        word = rng.choice(["cat", "dog"])
        place = rng.choice(["in the garden", "near the river", "on a hill"])
        rows.append(f"the {word} number {index} is {place},{word},{'train' if index < 60 else 'test'}")
    path = tmp_path_factory.mktemp("table") / "animals.csv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


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
