"""Tagged sentences of made-up words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from workbench import tasks
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.common.examples import Tagged
from workbench.tasks.tagging import Tagging

SYLLABLES = ("da", "fe", "go", "ni", "tu")

WORDS = [f"{a}{b}" for a in ("ba", "ke", "lo", "mi") for b in SYLLABLES]

SPEC = TasksSpec(length=24, lr=5e-3, layer_decay=0.9, batch=16, epochs=8.0, dropout=0.0)

CPU = Host(device="cpu", threads=1)


def sentences(count: int, seed: int, most: int = 12) -> list[list[str]]:
    random = np.random.default_rng(seed)
    return [random.choice(WORDS, size=random.integers(2, most)).tolist() for _ in range(count)]


def by_end(words: list[str]) -> list[str]:
    """Return as the tag of each word its second syllable."""
    return [word[2:].upper() for word in words]


def as_spans(words: list[str]) -> list[str]:
    """Return tags that begin a span at each word in `da`, which goes on with each word in `fe` that follows."""
    tags: list[str] = []
    for word in words:
        open_span = bool(tags) and tags[-1] != "O"
        tags.append("B-X" if word.endswith("da") else "I-X" if word.endswith("fe") and open_span else "O")
    return tags


def write(path: Path, rows: list[list[str]], rule: Callable[[list[str]], list[str]]) -> None:
    lines = ("\n".join(map(" ".join, zip(words, rule(words), strict=True))) for words in rows)
    path.write_text("\n\n".join(lines) + "\n", encoding="utf-8")


def load(path: Path | str, spec: TasksSpec = SPEC) -> Tagging:
    suite = tasks.load(spec.model_copy(update={"names": (f"tag:{path}",)}), Path(path).parent / "cache")
    (task,) = suite.tasks
    assert isinstance(task, Tagging)
    return task


def task_of(
    train: int, seed: int, most: int = 12, labels: tuple[str, ...] = tuple(s.upper() for s in SYLLABLES)
) -> Tagging:
    parts = [sentences(train, seed, most), sentences(40, seed + 1)]
    rows = [Tagged(each, [[labels.index(tag) for tag in by_end(words)] for words in each]) for each in parts]
    return Tagging("tag:toy", labels, len(labels), "", rows[0], {"test": rows[1]})
