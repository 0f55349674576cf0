"""Power and cost of a study before its first run: the smallest gap that each number of seeds can show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from workbench.bench.estimate import training_seconds
from workbench.errors import InputError
from workbench.execution.study import Job, Priced
from workbench.report import find_record
from workbench.report.comparison import leaderboards
from workbench.report.load import study_tables
from workbench.report.statistics.group_sequential import schedule
from workbench.report.statistics.paired_comparison import moved_by_arithmetic
from workbench.report.statistics.power import ArmPairs, family_of, shown, unit_gap
from workbench.spec.host import Host
from workbench.store.run_store import RunStore
from workbench.training.plan import with_parents

SEEDS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20)
ADDED = (4, 6, 8, 12, 20)  # largest numbers of seeds for which a plan that adds seeds is simulated


@dataclass(frozen=True)
class Noise:
    """The standard deviation of paired differences of a measure, in points, and its source.

    `low` and `high` are its 95 % interval if it was measured, with `df` degrees of freedom.
    """

    measure: str
    sd: float
    source: str
    df: int | None = None
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        known = "" if self.df is None else f" (95 % interval {self.low:.2f} to {self.high:.2f}, {self.df} df)"
        return f"{self.measure}: paired differences scatter by {self.sd:.2f} points{known}, {self.source}"


@dataclass(frozen=True)
class Design:
    """Cost and power of one number of seeds: the gaps in points that are shown with a probability of 80 %.

    `gap` is for a fixed number of seeds, `added_gap` for a plan that adds seeds up to this number. Such a plan takes
    `mean_seeds` on average if one arm is ahead by `added_gap`, and `idle_seeds` if no arm is ahead. `moved` is the
    standard deviation, in points, by which another kind of arithmetic moves an arm's mean over the same seeds.
    """

    seeds: int
    flops: float
    seconds: float
    gap: float | None
    added_gap: float | None = None
    mean_seeds: float | None = None
    mean_seconds: float | None = None
    idle_seeds: float | None = None
    moved: float | None = None


def measured(store: RunStore, word: str) -> list[Noise]:
    """Return the noise of each measure in an experiment of a store. Raises InputError if it has none."""
    from scipy import stats

    name = find_record(store, word)
    noises = []
    for board in leaderboards(study_tables.read_and_warn(store, name, verify=False)):
        noise = board.noise[board.budget][0]
        if noise.paired and noise.df:
            low, high = (noise.paired * math.sqrt(noise.df / stats.chi2.ppf(p, noise.df)) for p in (0.975, 0.025))
            source = f"{name}, {noise.n} seeds at {board.budget}"
            noises.append(Noise(board.label, noise.paired, source, noise.df, float(low), float(high)))
    if not noises:
        raise InputError(f"{name} has no two arms with two seeds in common and different scores; give --sd POINTS")
    return noises


def arms_and_family(job: Job) -> tuple[int, ArmPairs | None]:
    """Return the number of arms at the largest budget, and the family of their declared contrasts."""
    priced, _ = job.priced
    one = [(spec, plan) for spec, plan in priced if spec.seed == job.base.seed]
    most = max(one, key=lambda each: each[1].flops["matmul"])[0].budget
    level = [spec.name for spec in job.specs if spec.seed == job.base.seed and spec.budget == _given(job, most)]
    pairs = [pair for declared in job.declared for pair in declared.runs]
    return len(level), family_of(level, pairs)


def _given(job: Job, budget: Any) -> Any:
    """Return the budget as it was given, before it was matched; the largest one given if it was changed."""
    given = {spec.budget for spec in job.specs}
    return budget if budget in given else max(given, key=lambda each: each.amount)


def designs(job: Job, sd: float, host: Host, workers: int, seeds: Sequence[int] = SEEDS) -> list[Design]:
    """Return the power of each number of seeds at this noise, and the cost of all its runs on this machine."""
    priced, _ = job.priced
    one = [(spec, plan) for spec, plan in priced if spec.seed == job.base.seed]
    flops, seconds = float(sum(plan.flops[spec.budget.convention] for spec, plan in one)), _seconds(one, host, workers)
    arms, family = arms_and_family(job)
    return [_design(count, arms, family, sd, flops, seconds) for count in seeds]


def _seconds(one: Sequence[Priced], host: Host, workers: int) -> float:
    return sum(training_seconds(with_parents(one), host)) / min(workers, len(one))


def _design(count: int, arms: int, family: ArmPairs | None, sd: float, flops: float, seconds: float) -> Design:
    unit = unit_gap(arms, count, family)
    gap = None if unit is None else unit * sd
    added = shown(arms, schedule(count), family) if count in ADDED else None
    fixed = Design(count, count * flops, count * seconds, gap, moved=moved_by_arithmetic(sd, count))
    if added is None:
        return fixed
    return replace(
        fixed, added_gap=added.gap * sd, mean_seeds=added.seeds, mean_seconds=added.seeds * seconds,
        idle_seeds=added.seeds_of_none,
    )  # fmt: skip


def as_json(job: Job, noise: Sequence[Noise], per_measure: Sequence[Sequence[Design]]) -> dict[str, Any]:
    """Return the designs of each measure as plain data."""
    return {
        "experiment": job.experiment.name,
        "declared": [str(declared.contrast) for declared in job.declared],
        "convention": job.base.budget.convention,
        "measures": [
            asdict(one) | {"designs": [asdict(design) for design in rows]}
            for one, rows in zip(noise, per_measure, strict=True)
        ],
    }  # fmt: skip
