"""Runs with random weights that score pairs of sentences."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.store.run_store import RunDir
from workbench.tasks.common.contract import Model, take
from workbench.tasks.minimal_pairs import PairSet

CPU = Host(device="cpu", threads=1, precision="fp32")

WORDS = [f"{a}{b}" for a in ("ba", "ke", "lo", "mi") for b in ("da", "fe", "go", "ni", "tu")]

SIZES = {
    "encoder.hidden": 32, "encoder.layers": 2, "encoder.embedding": 16, "encoder.positions": 24, "data.length": 16,
    "generator.width": 0.5, "budget.steps": 0,
}  # fmt: skip

FACTS: dict[str, Any] = {"steps": 0, "tokens": 0, "flops": dict.fromkeys(("paper", "paper-sparse", "matmul"), 0)}


def sentence(random: np.random.Generator) -> str:
    return " ".join(random.choice(WORDS, size=random.integers(3, 9)))


def scored(run: RunDir, task: PairSet, **changes: Any) -> Any:
    return take(task, Model(run.path / "encoder", TasksSpec(**changes), 0), CPU)
