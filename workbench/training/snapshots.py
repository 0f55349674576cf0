"""Weights kept at points during training, so that these points can be evaluated after training.

RUN/points/00000100/encoder    the encoder, in the same format as at the end of the run
RUN/points/00000100/heads      the objective's other weights
RUN/points/00000100/point.json steps, tokens and FLOPs up to the point, and the hashes of its weights
RUN/points/00000100/scores     the scores of the point

The folder of a point appears complete, by one rename. A run that resumes from a checkpoint deletes the points after it
and writes them again when it reaches them, so that all points of a run come from one training.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.spec.run_spec import RunSpec
from workbench.store import validation
from workbench.store.atomic import sealed, write_new
from workbench.store.run_store import RunDir
from workbench.training.plan import Plan, spent_by

if TYPE_CHECKING:
    from torch import nn

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
        """Delete the points after step `done`, where training continues. Raises DamagedRun for damaged earlier ones."""
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
        from workbench.models.export import export, export_heads  # which loads torch

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


# ----------------------------------------
# The points of training at which a run keeps its weights, so that scores can be shown as curves over compute.
#
# `--evaluate-at` (tasks.at) has four kinds of values. `log:N` takes N points at equal distances on a logarithmic axis,
# from 1 % of the run's compute on; the end of training, which every run has, is one more. `words` is BabyLM's
# schedule: after 1, 2, ... 10, 20, ... 100, 200, ... 1,000 million words. `auto` takes log:6, or fewer points if their
# scores would cost too much compute (see `workbench.tasks.common.cost`). `none` takes none.
#
# The points depend only on a spec and its plan, so that every command and every worker process computes the same ones.


MILLION = 1_000_000
DECADES = 2  # of compute that the points of `log:N` cover
WORDS = tuple(number * scale * MILLION for scale in (1, 10, 100) for number in range(1, 10)) + (1000 * MILLION,)  # noqa: RUF005


@dataclass(frozen=True)
class Point:
    """A step of a run before its last one; `mark` is its name in the schedule, such as `10 %`, equal in all runs."""

    step: int
    mark: str


def log_points(plan: Plan, count: int, convention: str) -> list[Point]:
    """Return the points of `log:count`; the FLOPs of runs that this one starts from are part of its compute."""
    per_step = Fraction(plan.flops_per_step[convention])
    before = Fraction(plan.parent["flops"][convention]) if plan.parent else Fraction(0)
    own = plan.steps - plan.first
    shares = sorted(Fraction(10 ** (-DECADES * i / count)).limit_denominator(10**9) for i in range(1, count + 1))
    targets = ((share, (share * (before + own * per_step) - before) / per_step) for share in shares)
    return _within(plan, ((plan.first + round(steps), f"{100 * float(share):.3g} %") for share, steps in targets))


def word_points(spec: RunSpec, plan: Plan) -> list[Point]:
    """Return the points of `words`: for each number of words, the last step by which no more words were seen.

    Words seen by the runs that this one starts from are included. Raises InputError if the words of the corpus are not
    counted.
    """
    of_token = spec.data.words_per_token()
    before = plan.parent["tokens"] * of_token if plan.parent else 0
    of_step = spec.batch.size * spec.data.length * of_token
    marks = ((plan.first + int((amount - before) // of_step), mark_of_words(amount)) for amount in WORDS)
    return _within(plan, marks)


def mark_of_words(amount: int) -> str:
    """Return the mark of a point of the schedule `words`, such as "20 M words"."""
    return f"{amount // MILLION:,} M words"


def _within(plan: Plan, marks: Iterable[tuple[int, str]]) -> list[Point]:
    """Return the points that lie within a run's own training and before its end, at most one for each step."""
    points = {step: Point(step, mark) for step, mark in marks if plan.first < step < plan.steps}
    return [points[step] for step in sorted(points)]


def step_of(place: str) -> int:
    """Return the step of a point from its place, such as "points/00000100/"."""
    return int(place.split("/")[1])
