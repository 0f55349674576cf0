"""Which measures are taken at which points of a run, and what that costs.

Only measures that train no weights are: zero-shot pairs and linear probes. Those of one suite share their points, as a
report shows their mean. `auto` goes from the cheapest suite to the dearest and gives each the longest of SERIES whose
price, with those before it, stays within SHARE of the run's training FLOPs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.spec.parts import TasksSpec
from workbench.spec.run_spec import RunSpec
from workbench.tasks.price import measured_along, price
from workbench.tasks.task import Measure, Suite
from workbench.training import points
from workbench.training.plan import Plan
from workbench.training.points import Point

SHARE = 0.05  # of a run's training FLOPs that `auto` may spend on scores before its end
SERIES = (6, 3, 2)  # points of `auto`, each a part of the one before


@dataclass(frozen=True)
class Series:
    """The measures of one suite and their points. `each` is what one point costs, as a share of training."""

    suite: str
    measures: tuple[Measure, ...]
    points: tuple[Point, ...]
    each: float

    @property
    def share(self) -> float:
        """Return what all points cost, as a share of the run's training FLOPs."""
        return self.each * len(self.points)


def series(spec: RunSpec, plan: Plan, tasks: TasksSpec, suite: Suite, tokenizer: Path) -> list[Series]:
    """Return the points of each suite that can be measured during training, the cheapest first; some have none.

    Raises InputError where the `words` schedule is asked for and the words of the corpus are not counted.
    """
    suites: dict[str, list[Measure]] = {}
    for measure in suite.tasks:
        if measured_along(measure):
            suites.setdefault(measure.suite, []).append(measure)
    if not suites or plan.steps == plan.first or tasks.at == "none" or tasks.held_out:
        return []  # a search goes by the scores of its runs' ends
    whole = (plan.steps - plan.first) * plan.flops_per_step["matmul"]
    each = {name: sum(price(m, spec, tasks, tokenizer) for m in found) / whole for name, found in suites.items()}
    made, spent = [], 0.0
    for name in sorted(suites, key=lambda name: (each[name], name)):
        chosen = _chosen(spec, plan, tasks.at, each[name], SHARE - spent)
        spent += each[name] * len(chosen)
        made.append(Series(name, tuple(suites[name]), tuple(chosen), each[name]))
    return made


def _chosen(spec: RunSpec, plan: Plan, setting: str, each: float, left: float) -> list[Point]:
    """Return the points of a suite of which one costs `each`, where `auto` may spend what is `left`."""
    if setting == "words":
        return points.word_points(spec, plan)
    convention = spec.budget.convention
    if setting != "auto":
        return points.log_points(plan, points.count_of(setting), convention)
    found = (points.log_points(plan, count, convention) for count in SERIES)
    return next((one for one in found if one and len(one) * each <= left), [])


def steps(found: Iterable[Series]) -> list[Point]:
    """Return every point at which some suite is measured, in order."""
    return sorted({point for one in found for point in one.points}, key=lambda point: point.step)


def rows(runs: Iterable[Sequence[Series]]) -> list[dict[str, Any]]:
    """Return for each suite how many points the runs of an experiment get, and what they cost at most.

    `one_point` and `all_points` are shares of a run's training FLOPs.
    """
    found: dict[str, list[Series]] = {}
    for one in (one for run in runs for one in run):
        found.setdefault(one.suite, []).append(one)
    return [
        {
            "suite": suite, "least_points": min(len(one.points) for one in several),
            "most_points": max(len(one.points) for one in several), "one_point": max(one.each for one in several),
            "all_points": max(one.share for one in several),
        }
        for suite, several in found.items()
    ]  # fmt: skip


def sentence(found: Sequence[Mapping[str, Any]], setting: str) -> str:
    """Return in words what `rows` found under a setting; "" where nothing can be measured during training."""
    taken = [
        f"{row['suite']} at {_span(row['least_points'], row['most_points'])} points "
        f"(at most {_percent(row['all_points'])} of a run's compute)"
        for row in found
        if row["most_points"]
    ]
    left = [
        f"{row['suite']}, of which one costs {_percent(row['one_point'])}" for row in found if not row["most_points"]
    ]
    told = [", ".join(taken)] if taken else []
    if left and setting == "auto":
        told.append(f"no point fits for {'; '.join(left)} (--evaluate-at log:6 takes them whatever they cost)")
    elif left:
        told.append(f"none, as no point of --evaluate-at {setting} lies within so short a run")
    return f"scores during training: {'; '.join(told)}" if told else ""


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:,.0f} %"


def _span(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"
