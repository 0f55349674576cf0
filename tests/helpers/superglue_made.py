"""Files of SuperGLUE with made-up rows."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np

from workbench import tasks
from workbench.spec.parts import TasksSpec
from workbench.tasks.common.examples import Examples, Task

WORDS = [f"{a}{b}" for a in ("ba", "ke", "lo", "mi") for b in ("da", "fe", "go", "ni", "tu")]

COPA = [
    {"premise": "The man broke his toe.", "choice1": "He got a hole in his sock.", "choice2": "He dropped a hammer.",
     "question": "cause", "label": 1, "idx": 0},
    {"premise": "It rained.", "choice1": "The street got wet.", "choice2": "The sun shone.", "question": "effect",
     "label": 0, "idx": 1},
]  # fmt: skip

MULTIRC = [
    {"idx": 0, "passage": {"text": "Ann has a cat.", "questions": [
        {"question": "Who?", "idx": 0, "answers": [{"text": "Ann", "idx": 0, "label": 1},
                                                     {"text": "Bob", "idx": 1, "label": 0}]},
        {"question": "What?", "idx": 1, "answers": [{"text": "a cat", "idx": 2, "label": 1}]},
    ]}},
]  # fmt: skip

WSC = [
    {"text": "Mark told Pete lies. He lied.", "idx": 0, "label": True,
     "target": {"span1_index": 0, "span1_text": "Mark", "span2_index": 4, "span2_text": "He"}},
    {"text": "Ann saw the (old) house.", "idx": 1, "label": False,
     "target": {"span1_index": 0, "span1_text": "ann", "span2_index": 3, "span2_text": "old"}},
]  # fmt: skip


def put(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(lzma.compress(content.encode()) if path.suffix == ".xz" else content.encode())
    return path


def both(folder: Path, name: str, train: list[dict[str, Any]], val: list[dict[str, Any]] | None = None) -> Path:
    put(folder / name / "train.jsonl", train)
    put(folder / name / "val.jsonl", train if val is None else val)
    return folder


def load(names: str, folder: Path | None = None, **more: Any) -> list[Task]:
    spec = TasksSpec(names=tuple(names.split(",")), superglue=str(folder) if folder else None, **more)
    return [task for task in tasks.load(spec).tasks if isinstance(task, Task)]


def choices(count: int, seed: int, answers: int = 2) -> Examples:
    """Return questions whose right answer holds the word `bada`, with a varying number of answers."""
    random = np.random.default_rng(seed)
    first, second, targets, groups = list[str](), list[str](), list[int](), list[int]()
    for question in range(count):
        most = answers + question % 2
        right = int(random.integers(most))
        shared = " ".join(random.choice(WORDS[1:], 4))
        for place in range(most):
            words = random.choice(WORDS[1:], 5).tolist()
            words[int(random.integers(5))] = "bada" if place == right else words[0]
            first.append(shared)
            second.append(" ".join(words))
            targets.append(int(place == right))
            groups.append(question)
    return Examples(first, second, targets, groups)
