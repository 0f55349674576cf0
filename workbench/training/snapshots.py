"""Weights kept at points during training, so that these points can be evaluated after training.

RUN/points/00000100/encoder    the encoder, in the same format as at the end of the run
RUN/points/00000100/heads      the objective's other weights
RUN/points/00000100/point.json steps, tokens and FLOPs up to the point, and the hashes of its weights
RUN/points/00000100/scores     the scores of the point

The folder of a point appears complete, by one rename. A run that resumes from a checkpoint deletes the points after it
and writes them again when it reaches them, so that all points of a run come from one training.
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
DESCRIPTIONS = 8192  # bytes of the JSON files of a point and of the heads of its two files of weights, at most


@dataclass(frozen=True)
class Snapshots:
    """The points at which a run keeps its weights; `tokenizer` is a folder whose files are exported with them."""

    run: RunDir
    spec: RunSpec
    plan: Plan
    tokenizer: Path
    points: Sequence[Point]

    def begin(self, done: int) -> None:
        """Delete the points after step `done`, from which training continues.

        Raises DamagedRun if an earlier point is damaged: found only at the end, it would cost all of training.
        """
        for place in self.run.points():
            if step_of(place) > done:
                self.run.remove(place.rstrip("/"))
            else:
                self.run.check_point(place)

    def due(self, step: int) -> bool:
        """Return whether the weights are kept at this step."""
        return any(point.step == step for point in self.points)

    def room(self, done: int, parameters: int) -> int:
        """Return the largest number of bytes that the points after step `done` take on disk."""
        tokenizer = sum(file.stat().st_size for file in self.tokenizer.iterdir() if file.is_file())
        return sum(point.step > done for point in self.points) * (4 * parameters + 2 * tokenizer + DESCRIPTIONS)

    def keep(self, model: nn.Module, step: int, seconds: float) -> None:
        """Write the weights of a point. Raises LeaseLost if another process took the run over, or OSError."""
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
