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


def collection_at(folder: Path, documents: list[str], queries: list[str], **judged: list[str]) -> Path:
    """Write a collection in BEIR's layout; `judged` are the rows of each file of relevance."""
    (folder / "qrels").mkdir(parents=True)
    write(folder / "corpus.jsonl", [{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(documents)])
    write(folder / "queries.jsonl", [{"_id": f"q{n}", "text": text} for n, text in enumerate(queries)])
    for part, rows in judged.items():
        (folder / f"qrels/{part}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    return folder
