"""The points of training at which a run keeps its weights, so that scores can be shown as curves over compute.

`--evaluate-at` (tasks.at) has four kinds of values. `log:N` takes N points at equal distances on a logarithmic axis,
from 1 % of the run's compute on; the end of training, which every run has, is one more. `words` is BabyLM's schedule:
after 1, 2, ... 10, 20, ... 100, 200, ... 1,000 million words. `auto` takes log:6, or fewer points if their scores would
cost too much compute (see `workbench.tasks.common.cost`). `none` takes none.

The points depend only on a spec and its plan, so that every command and every worker process computes the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from workbench.spec.run_spec import RunSpec
from workbench.spec.words_seen import MILLION, steps_of_words, words_per_token
from workbench.training.plan import Plan

DECADES = 2  # of compute that the points of `log:N` cover
WORDS = tuple(number * scale * MILLION for scale in (1, 10, 100) for number in range(1, 10)) + (1000 * MILLION,)  # noqa: RUF005


@dataclass(frozen=True)
class Point:
    """A step of a run before its last one; `mark` is its name in the schedule, such as `10 %`, equal in all runs."""

    step: int
    mark: str


def count_of(setting: str) -> int:
    """Return N of `log:N`."""
    return int(setting.removeprefix("log:"))


def shares(count: int) -> list[Fraction]:
    """Return the shares of a run's compute at the points of `log:count`, in ascending order."""
    return sorted(Fraction(10 ** (-DECADES * i / count)).limit_denominator(10**9) for i in range(1, count + 1))


def log_points(plan: Plan, count: int, convention: str) -> list[Point]:
    """Return the points of `log:count`; the FLOPs of runs that this one starts from are part of its compute."""
    per_step = Fraction(plan.flops_per_step[convention])
    before = Fraction(plan.parent["flops"][convention]) if plan.parent else Fraction(0)
    own = plan.steps - plan.first
    targets = ((share, (share * (before + own * per_step) - before) / per_step) for share in shares(count))
    return _within(plan, ((plan.first + round(steps), f"{100 * float(share):.3g} %") for share, steps in targets))


def word_points(spec: RunSpec, plan: Plan) -> list[Point]:
    """Return the points of `words`: for each number of words, the last step by which no more words were seen.

    Words seen by the runs that this one starts from are included. Raises InputError if the words of the corpus are not
    counted.
    """
    before = plan.parent["tokens"] * words_per_token(spec.data) if plan.parent else Fraction(0)
    steps = ((plan.first + steps_of_words(amount - before, spec.data, spec.batch.size), amount) for amount in WORDS)
    return _within(plan, ((step, mark_of_words(amount)) for step, amount in steps))


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
