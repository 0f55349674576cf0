"""Tasks of SQuAD, loaded from a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import squad_made

from workbench import tasks
from workbench.spec.parts import TasksSpec
from workbench.tasks.squad import Squad


def load(name: str, folder: Path | str | None, **words: Any) -> Squad:
    where = None if folder is None else str(folder)
    (task,) = tasks.load(TasksSpec(names=(name,), squad=where, **words)).tasks
    assert isinstance(task, Squad)
    return task


def facts(task: Squad) -> list[tuple[str, str, str, tuple[tuple[str, int], ...], bool]]:
    rows = [(part, row) for part in (task.train, *task.tests.values()) for row in part.rows]
    return [(row.id, row.text, part.paragraphs[row.paragraph], row.answers, row.impossible) for part, row in rows]


WORDS: dict[str, Any] = {"lr": 3e-3, "layer_decay": 0.9, "dropout": 0.0, "epochs": 6, "squad_length": 32, "seeds": 1}


def task_of(folder: Path, unanswerable: bool = False, longest: int = 16, **words: Any) -> tuple[Squad, TasksSpec]:
    folder.mkdir(exist_ok=True)
    squad_made.write(folder, unanswerable, longest=longest)
    name = "squad2" if unanswerable else "squad1"
    spec = TasksSpec(names=(name,), squad=str(folder), **(WORDS | words))
    (task,) = tasks.load(spec).tasks
    assert isinstance(task, Squad)
    return task, spec
