"""Which scores a run is to have: those of its end, and those of the points at which it kept its weights."""

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
from workbench.tasks import Measure, Suite
from workbench.training.plan import Plan
from workbench.training.points import Point, step_of

if TYPE_CHECKING:
    from workbench.tasks.series import Series


@dataclass(frozen=True)
class Wanted:
    """The scores that a command asks for, of the end of a run alone where there is no `prepared` text.

    Points are priced by its tokenizer, and the `words` schedule counts by its words.
    """

    tasks: TasksSpec
    suite: Suite
    prepared: Prepared | None

    @property
    def along(self) -> bool:
        """Whether some measure may be taken during training as well."""
        from workbench.tasks.price import measured_along

        return self.prepared is not None and any(map(measured_along, self.suite.tasks))

    def points(self, spec: RunSpec, plan: Plan) -> list[Point]:
        """Return the points of a run at which something is to be measured."""
        from workbench.tasks.series import steps

        return steps(self.series(spec, plan))

    def expected(self, run: RunDir) -> Iterator[tuple[Measure, int, str]]:
        """Yield each score that a trained run is to have: its measure, its seed and its name.

        Those of the run's end come first, then those of the points at which its weights were kept. Where these were
        deleted, only scores that are there already are expected.
        """
        from workbench.tasks.measures import expected

        yield from expected(self.suite, self.tasks)
        kept = {step_of(place): place for place in run.points()}
        if not kept or not self.along:
            return
        whole = set(weighed(run))
        for series in self.series(run.spec(), plan_of(run)):
            for place in (kept[point.step] for point in series.points if point.step in kept):
                for measure, seed, name in expected(Suite(series.measures), self.tasks):
                    if place in whole or (run.path / inside("scores", place + name)).is_file():
                        yield measure, seed, place + name

    def missing(self, run: RunDir) -> Iterator[tuple[Measure, int, str]]:
        """Yield those that are not there."""
        return (each for each in self.expected(run) if not (run.path / inside("scores", each[2])).is_file())

    def unmeasured(self, run: RunDir) -> int:
        """Return at how many points that are asked for a trained run has neither weights nor all scores."""
        if not self.along or not run.trained:
            return 0
        asked = {
            (point.step, name)
            for series in self.series(run.spec(), plan_of(run))
            for point in series.points
            for name in _names(series, self.tasks)
        }
        had = {(step_of(name), name.rpartition("/")[2]) for _, _, name in self.expected(run) if place_of(name)}
        return len({step for step, _ in asked - had})

    def series(self, spec: RunSpec, plan: Plan) -> list[Series]:
        """Return the points of each suite of measures in a run of this spec and plan."""
        from workbench.tasks.series import series

        if self.prepared is None:
            return []
        return series(counted(spec, self.prepared), plan, self.tasks, self.suite, self.prepared.tokenizer)


def _names(series: Series, tasks: TasksSpec) -> list[str]:
    """Return the names of the scores of one point of a series."""
    from workbench.tasks.measures import expected

    return [name for _, _, name in expected(Suite(series.measures), tasks)]


def weighed(run: RunDir) -> list[str]:
    """Return the points of a run whose weights are still there."""
    return [place for place in run.points() if run.has_weights(place)]


def place_of(name: str) -> str:
    """Return the place of the point that a score is of, such as "points/00000100/", "" for the run's end."""
    before, slash, _ = name.rpartition("/")
    return before + slash


def plan_of(run: RunDir) -> Plan:
    """What plan.json says. Raises InputError."""
    raw = run.read_json("plan.json")
    with usable(run):
        return Plan.from_json(raw)


@contextlib.contextmanager
def usable(run: RunDir) -> Iterator[None]:
    """A file of the run that holds what it should not is a DamagedRun error that says what to do."""
    try:
        yield
    except ValueError as error:
        raise DamagedRun(f"{run.path}: {error}; move that folder away and give the same command again") from None
