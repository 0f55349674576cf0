"""Tasks of short sentences, and runs by whose FLOPs their cost is judged."""

from __future__ import annotations

from typing import Any

from workbench import objectives
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec

WORDS = [f"{a}{b}" for a in ("ba", "ke", "lo", "mi") for b in ("da", "fe", "go", "ni", "tu")]

LENGTH = 7  # words of each sentence


def sentences(count: int, start: int = 0) -> list[str]:
    """Return different sentences of the same number of tokens."""
    return [" ".join(WORDS[(i // 20**j) % 20] for j in range(LENGTH)) for i in range(start, start + count)]


def spec_of(objective: str = "bert-mlm", steps: int = 1000, **keys: Any) -> RunSpec:
    given = {key.replace("__", "."): value for key, value in keys.items()} | {"budget.steps": steps}
    return objectives.with_options(resolve("nano", {"encoder.layers": 2} | given | {"objective": objective}))
