"""Texts of made-up words, and tasks of embeddings that are read from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from workbench import tasks
from workbench.spec.parts import TasksSpec
from workbench.tasks.embeddings import Embedding

WORDS = [f"{a}{b}" for a in ("ba", "ke", "lo", "mi") for b in ("da", "fe", "go", "ni", "tu")]


def load(name: str, **more: Any) -> Embedding:
    (task,) = tasks.load(TasksSpec(names=(name,), **more)).tasks
    assert isinstance(task, Embedding)
    return task


def texts(count: int, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, size=random.integers(2, 12))) for _ in range(count)]


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
