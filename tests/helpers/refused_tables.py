"""Tables that are read or refused, and tables with many labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks import table
from workbench.tasks.common.examples import Task


def read(path: Path, **spec: Any) -> Task:
    return table.read(path, TasksSpec(names=str(path), **spec))


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        table.read(path, TasksSpec())
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    return str(caught.value)


def labelled(path: Path, count: int) -> Path:
    """Write a table with two training rows and one test row for each label."""
    lines = [f"text {n} of {part},L{n},{part}" for n in range(count) for part in ("train", "train", "dev")]
    path.write_text("\n".join(["text,label,split", *lines]))
    return path
