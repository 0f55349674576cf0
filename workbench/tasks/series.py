"""Measures that are taken during training, the points of a run at which they are taken, and what that costs.

Only measures that train no weights of the encoder are taken: zero-shot pairs, linear probes and embeddings. Those of
one suite share their points, because a report shows their mean. `auto` goes from the cheapest suite to the most
expensive one and gives each the longest of SERIES whose cost, added to that of the suites before it, is within SHARE of
the run's training FLOPs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import plural
from workbench.spec.parts import TasksSpec
from workbench.spec.run_spec import RunSpec
from workbench.tasks.price import measured_during_training, price
from workbench.tasks.task import Measure, Suite
from workbench.training import snapshots
from workbench.training.plan import Plan
from workbench.training.snapshots import Point

SHARE = 0.05  # of a run's training FLOPs that `auto` may spend on scores before its end
SERIES = (6, 3, 2)  # numbers of points that `auto` tries; the points of each are a part of those before it


@dataclass(frozen=True)
class Series:
    """Measures of one suite and their points.

    `each` is the cost of one point, as a share of the run's training FLOPs.
    """

    suite: str
    measures: tuple[Measure, ...]
    points: tuple[Point, ...]
    each: float

    @property
    def share(self) -> float:
        """Return the cost of all points, as a share of the run's training FLOPs."""
        return self.each * len(self.points)


def series(spec: RunSpec, plan: Plan, tasks: TasksSpec, suite: Suite, tokenizer: Path) -> list[Series]:
    """Return the points of each suite that can be measured during training, the cheapest suite first.

    A suite may get no points. Raises InputError if the schedule `words` is chosen and the words of the corpus are
    not counted.
    """
    suites: dict[str, list[Measure]] = {}
    for measure in suite.tasks:
        if measured_during_training(measure):
            suites.setdefault(measure.suite, []).append(measure)
    if not suites or plan.steps == plan.first or tasks.at == "none" or tasks.held_out:
        return []  # a search compares the scores at the ends of its runs
    whole = (plan.steps - plan.first) * plan.flops_per_step["matmul"]
    each = {name: sum(price(m, spec, tasks, tokenizer) for m in measures) / whole for name, measures in suites.items()}
    made, spent = [], 0.0
    for name in sorted(suites, key=lambda name: (each[name], name)):
        chosen = _chosen(spec, plan, tasks.at, each[name], SHARE - spent)
        spent += each[name] * len(chosen)
        made.append(Series(name, tuple(suites[name]), tuple(chosen), each[name]))
    return made


def _chosen(spec: RunSpec, plan: Plan, setting: str, each: float, left: float) -> list[Point]:
    """Return the points of a suite; `each` is the cost of one, and `auto` may spend at most `left`."""
    if setting == "words":
        return snapshots.word_points(spec, plan)
    convention = spec.budget.convention
    if setting != "auto":
        return snapshots.log_points(plan, snapshots.count_of(setting), convention)
    candidates = (snapshots.log_points(plan, count, convention) for count in SERIES)
    return next((one for one in candidates if one and len(one) * each <= left), [])


def steps(series_of_suites: Iterable[Series]) -> list[Point]:
    """Return every point at which some suite is measured, in the order of training."""
    return sorted({point for one in series_of_suites for point in one.points}, key=lambda point: point.step)


def rows(runs: Iterable[Sequence[Series]]) -> list[dict[str, Any]]:
    """Return for each suite how many points the runs of an experiment get, and the largest cost of a run.

    `one_point` and `all_points` are shares of a run's training FLOPs.
    """
    by_suite: dict[str, list[Series]] = {}
    for one in (one for run in runs for one in run):
        by_suite.setdefault(one.suite, []).append(one)
    return [
        {
            "suite": suite, "least_points": min(len(one.points) for one in several),
            "most_points": max(len(one.points) for one in several), "one_point": max(one.each for one in several),
            "all_points": max(one.share for one in several),
        }
        for suite, several in by_suite.items()
    ]  # fmt: skip


def sentence(suites: Sequence[Mapping[str, Any]], setting: str) -> str:
    """Return a sentence on the `rows` of a setting of --evaluate-at; "" if nothing can be measured during training."""
    taken = [
        f"{row['suite']} at {_span(row['least_points'], row['most_points'])} "
        f"(at most {_percent(row['all_points'])} of a run's compute)"
        for row in suites
        if row["most_points"]
    ]
    left = [f"{row['suite']} (one costs {_percent(row['one_point'])})" for row in suites if not row["most_points"]]
    parts = [", ".join(taken)] if taken else []
    if left and setting == "auto":
        parts.append(
            f"no point of {' or '.join(left)} fits into {_percent(SHARE)} of a run's compute "
            "(--evaluate-at log:6 takes 6 points whatever they cost)"
        )
    elif left:
        parts.append(f"none, because the run ends before the first point of --evaluate-at {setting}")
    return f"scores during training: {'; '.join(parts)}" if parts else ""


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:,.0f} %"


def _span(least: int, most: int) -> str:
    """Return `1 point`, `6 points` or `1 to 2 points`."""
    return plural(most, "point") if least == most else f"{least} to {most} points"
