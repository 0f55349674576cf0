"""Score of one encoder by one measure of any kind, as its file holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from workbench import __version__
from workbench.spec.parts import TasksSpec
from workbench.spec.run_spec import digest
from workbench.spec.scoring import score_file
from workbench.tasks.task import Measure

Progress = Callable[[int, int], None]  # step, steps


@dataclass(frozen=True)
class Score:
    """Result of one measurement; all metrics are times 100.

    `value` is the headline metric on the first part of `values`. `seed` is that of fine-tuning, 0 if nothing is
    drawn at random. `finetune` holds the settings, whatever the kind of measure. `details` are further facts about
    this score; each becomes a key of its file.
    """

    task: str
    suite: str
    metric: str
    seed: int
    value: float
    values: Mapping[str, Mapping[str, float]]
    baselines: Mapping[str, float]
    train_rows: int
    test_rows: int
    steps: int
    seconds: float
    finetune: Mapping[str, Any]
    data: str
    digest: str
    code: str = __version__
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the content of the score's file."""
        content = asdict(self)
        return {"format": 1, **content, **content.pop("details")}


def score_digest(measure: Measure, spec: TasksSpec) -> str:
    """Return 8 hex digits of a hash over settings and data; scores with equal digests measure the same thing."""
    return digest({"task": measure.name, "data": measure.fingerprint, "finetune": measure.settings(spec)}, 8)


def score_name(measure: Measure, spec: TasksSpec, seed: int) -> str:
    """Return the name of the file of this score."""
    return score_file(measure.name, score_digest(measure, spec), seed)
