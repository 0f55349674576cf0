"""Weights kept during training, so that scores of earlier points can be taken once it is over.

RUN/points/00000100/encoder    laid out as the encoder of the run's end
RUN/points/00000100/heads      the objective's other weights
RUN/points/00000100/point.json what was spent by then, and the hashes of both
RUN/points/00000100/scores     what was measured there

A point appears whole by one rename. A run that goes on from a checkpoint takes those beyond it away and keeps them anew
when it gets there, so the points of a run are always of one training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from workbench.models.export import export, export_heads
from workbench.spec.run_spec import RunSpec
from workbench.store import validation
from workbench.store.atomic import sealed, write_new
from workbench.store.run_store import RunDir
from workbench.training.plan import Plan, spent_by
from workbench.training.points import Point, step_of

FORMAT = 1


@dataclass(frozen=True)
class Snapshots:
    """The points at which a run keeps its weights. `tokenizer` is the folder that is exported with them."""

    run: RunDir
    spec: RunSpec
    plan: Plan
    tokenizer: Path
    points: Sequence[Point]

    def begin(self, done: int) -> None:
        """Take away what was kept beyond the step that training goes on from."""
        for place in self.run.points():
            if step_of(place) > done:
                self.run.remove(place.rstrip("/"))

    def due(self, step: int) -> bool:
        """Return whether the weights of this step are kept."""
        return any(point.step == step for point in self.points)

    def room(self, done: int, parameters: int) -> int:
        """Return how many bytes the points after a step take at most."""
        tokenizer = sum(file.stat().st_size for file in self.tokenizer.iterdir() if file.is_file())
        return sum(point.step > done for point in self.points) * (4 * parameters + 2 * tokenizer)

    def keep(self, model: nn.Module, step: int, seconds: float) -> None:
        """Write the weights of a step. Raises LeaseLost, or OSError for the disk."""
        point = next(point for point in self.points if point.step == step)
        facts = {"steps": step, **spent_by(self.plan, self.spec, step)}
        with self.run.staged(f"points/{step:08d}") as draft:
            encoder, heads = draft / "encoder", draft / "heads"
            encoder.mkdir()
            heads.mkdir()
            export(model.encoder, self.tokenizer, encoder, self.spec, facts)  # type: ignore[arg-type]
            export_heads(model, heads)
            record = facts | {"mark": point.mark, "seconds": seconds}
            record |= {"encoder": validation.hashes(encoder), "heads": validation.hashes(heads)}
            write_new(draft / "point.json", sealed({"format": FORMAT, **record, "run_id": self.run.run_id}))
