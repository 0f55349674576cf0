"""The scores that a run must have: those of its end, and those of the points during training with saved weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.data.prepare import Prepared, counted
from workbench.errors import DamagedRun
from workbench.spec.parts import TasksSpec
from workbench.spec.run_spec import RunSpec
from workbench.store.run_store import RunDir
from workbench.store.validation import inside
from workbench.tasks.common.contract import FINE_TUNING, Measure, Suite, expected
from workbench.training.plan import Plan
from workbench.training.points import Point, step_of

if TYPE_CHECKING:
    from workbench.tasks.common.cost import Series


@dataclass(frozen=True)
class Wanted:
    """The scores that a command requests; only those of a run's end if `prepared`, the text, is None.

    The cost of scores during training depends on the text's tokenizer, and the `words` schedule on its words.
    """

    tasks: TasksSpec
    suite: Suite
    prepared: Prepared | None

    @property
    def during_training(self) -> bool:
        """Whether some measure may also be taken during training."""
        return self.prepared is not None and any(measure.act != FINE_TUNING for measure in self.suite.tasks)

    def points(self, spec: RunSpec, plan: Plan) -> list[Point]:
        """Return the points of a run at which some measure is taken."""
        from workbench.tasks.common.cost import schedule_points

        return schedule_points(self.series(spec, plan))

    def expected(self, run: RunDir) -> Iterator[tuple[Measure, int, str]]:
        """Yield each score that a trained run must have, as its measure, its seed and its name.

        The scores of the run's end come first, then those of the points at which its weights were saved. If the
        weights of a point were deleted, only its existing scores are expected.
        """
        yield from expected(self.suite, self.tasks)
        saved = {step_of(place): place for place in run.points()}
        if not saved or not self.during_training:
            return
        measurable = set(points_with_weights(run))
        for series in self.series(run.spec(), plan_of(run)):
            for place in (saved[point.step] for point in series.points if point.step in saved):
                for measure, seed, name in expected(Suite(series.measures), self.tasks):
                    if place in measurable or (run.path / inside("scores", place + name)).is_file():
                        yield measure, seed, place + name

    def missing(self, run: RunDir) -> Iterator[tuple[Measure, int, str]]:
        """Yield the expected scores that do not exist yet."""
        return (each for each in self.expected(run) if not (run.path / inside("scores", each[2])).is_file())

    def unmeasured(self, run: RunDir) -> int:
        """Return how many requested points of a trained run have neither weights nor all their scores."""
        if not self.during_training or not run.trained:
            return 0
        requested = {
            (point.step, name)
            for series in self.series(run.spec(), plan_of(run))
            for point in series.points
            for name in _names(series, self.tasks)
        }
        available = {(step_of(name), name.rpartition("/")[2]) for _, _, name in self.expected(run) if place_of(name)}
        return len({step for step, _ in requested - available})

    def series(self, spec: RunSpec, plan: Plan) -> list[Series]:
        """Return the points of each suite of measures in a run with this spec and plan."""
        from workbench.tasks.common.cost import series

        if self.prepared is None:
            return []
        return series(counted(spec, self.prepared), plan, self.tasks, self.suite, self.prepared.tokenizer)


def _names(series: Series, tasks: TasksSpec) -> list[str]:
    """Return the names of the scores of one point of a series."""
    return [name for _, _, name in expected(Suite(series.measures), tasks)]


def points_with_weights(run: RunDir) -> list[str]:
    """Return the points of a run whose weights still exist."""
    return [place for place in run.points() if run.has_weights(place)]


def place_of(name: str) -> str:
    """Return the folder of a score's point, such as "points/00000100/", or "" for a score of the run's end."""
    before, slash, _ = name.rpartition("/")
    return before + slash


def plan_of(run: RunDir) -> Plan:
    """Return the plan in plan.json. Raises InputError if it cannot be used."""
    raw = run.read_json("plan.json")
    with usable(run):
        return Plan.from_json(raw)


@contextlib.contextmanager
def usable(run: RunDir) -> Iterator[None]:
    """Turn a ValueError on a file of the run into a DamagedRun error that says what to do."""
    try:
        yield
    except ValueError as error:
        raise DamagedRun(f"{run.path}: {error}; move that folder away and give the same command again") from None
