"""Power and cost of a study before its first run: the smallest gap that each number of seeds can show."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from workbench.bench.estimate import training_seconds
from workbench.errors import InputError
from workbench.execution.study import Job
from workbench.report.comparison import leaderboards
from workbench.report.load import study_tables
from workbench.report.load.runs_table import find_record
from workbench.report.statistics.group_sequential import schedule
from workbench.report.statistics.paired_comparison import moved_by_arithmetic
from workbench.report.statistics.power import ArmPairs, family_of, needed_seeds, shown, smallest_gap, unit_gap
from workbench.spec.host import Host
from workbench.store.run_store import RunStore
from workbench.training.plan import with_parents

SEEDS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20)
ADDED = (4, 6, 8, 12, 20)  # largest numbers of seeds for which a plan that adds seeds is simulated
KNOWN = Path(__file__).with_name("known_studies.csv")  # made by experiments/benchmarks/known_studies.py
NEAR = 10.0  # factor of FLOPs within which a kept study says something about a budget
GAPS = (4, 2, 1)  # points


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


@dataclass(frozen=True)
class Known:
    """What a measure could tell in a kept study of objectives, and how many seeds a comparison takes with its noise.

    `sd` is the standard deviation of paired differences in points, with `df` degrees of freedom. `gap` is the
    smallest difference that four seeds show, `seeds_for` the seeds that show 4, 2 and 1 points; None above 1,000.
    The two last fields name the objectives whose 95 % intervals are above the untrained encoder and a bag of words.
    """

    measure: str
    study: str
    scale: str
    text: str
    flops: float
    seeds: int
    sd: float
    df: int
    gap: float | None
    seeds_for: dict[int, int | None]
    objectives: tuple[str, ...]
    bag_of_words: float | None
    above_untrained: tuple[str, ...]
    above_bag_of_words: tuple[str, ...]

    @property
    def tells(self) -> str:
        """Say in a few words whether the measure could tell anything about the objectives."""
        if not self.above_untrained:
            return "nothing: no objective is above its untrained encoder"
        if self.bag_of_words is not None and not self.above_bag_of_words:
            return "little: no objective is above a bag of words"
        above = set(self.above_untrained)
        if self.bag_of_words is not None:
            above &= set(self.above_bag_of_words)
        return f"{len(above)} of {len(self.objectives)} objectives"


def known(job: Job) -> list[Known]:
    """Return what kept studies of similar FLOPs (matmul) say of each measure."""
    flops = max(plan.flops["matmul"] for _, plan in job.priced[0])
    arms, family = arms_and_family(job)
    nearest: dict[str, tuple[float, dict[str, str]]] = {}
    with KNOWN.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            distance = abs(math.log(float(row["flops"]) / flops))
            if distance <= math.log(NEAR) and distance < nearest.get(row["task"], (math.inf,))[0]:
                nearest[row["task"]] = distance, row
    return [_known(row, arms, family) for _, row in nearest.values()]


def _known(row: dict[str, str], arms: int, family: ArmPairs | None) -> Known:
    sd = float(row["sd"])
    return Known(
        row["task"], row["study"], row["scale"], row["text"], float(row["flops"]), int(row["seeds"]), sd,
        int(row["df"]), smallest_gap(sd, arms, 4, family), {gap: needed_seeds(gap, sd, arms, family) for gap in GAPS},
        tuple(row["objectives"].split()), float(row["bag_of_words"]) if row["bag_of_words"] else None,
        tuple(row["above_untrained"].split()), tuple(row["above_bag_of_words"].split()),
    )  # fmt: skip


def arms_and_family(job: Job) -> tuple[int, ArmPairs | None]:
    """Return the number of arms at the largest budget, and the family of their declared contrasts."""
    one = [(spec, plan) for spec, plan in job.priced[0] if spec.seed == job.base.seed]
    most, given = max(one, key=lambda each: each[1].flops["matmul"])[0].budget, {spec.budget for spec in job.specs}
    if most not in given:  # with --match, the budget of an arm is computed, not given
        most = max(given, key=lambda budget: budget.amount)
    level = [spec.name for spec in job.specs if spec.seed == job.base.seed and spec.budget == most]
    return len(level), family_of(level, [pair for declared in job.declared for pair in declared.runs])


def designs(job: Job, sd: float, host: Host, workers: int, seeds: Sequence[int] = SEEDS) -> list[Design]:
    """Return the power of each number of seeds at this noise, and the cost of all its runs on this machine."""
    one = [(spec, plan) for spec, plan in job.priced[0] if spec.seed == job.base.seed]
    flops = float(sum(plan.flops[spec.budget.convention] for spec, plan in one))
    seconds = sum(training_seconds(with_parents(one), host)) / min(workers, len(one))
    (arms, family), rows = arms_and_family(job), []
    for count in seeds:
        unit = unit_gap(arms, count, family)
        gap, moved = None if unit is None else unit * sd, moved_by_arithmetic(sd, count)
        design = Design(count, count * flops, count * seconds, gap, moved=moved)
        if count in ADDED and (added := shown(arms, schedule(count), family)) is not None:
            design = replace(
                design, added_gap=added.gap * sd, mean_seeds=added.seeds, mean_seconds=added.seeds * seconds,
                idle_seeds=added.seeds_of_none,
            )  # fmt: skip
        rows.append(design)
    return rows


def as_json(
    job: Job, noise: Sequence[Noise], per_measure: Sequence[Sequence[Design]], kept: Sequence[Known]
) -> dict[str, Any]:
    """Return the designs of each measure, and what kept studies say, as plain data."""
    return {
        "experiment": job.experiment.name,
        "declared": [str(declared.contrast) for declared in job.declared],
        "convention": job.base.budget.convention,
        "measures": [
            asdict(one) | {"designs": [asdict(design) for design in rows]}
            for one, rows in zip(noise, per_measure, strict=True)
        ],
        "kept_studies": [asdict(one) | {"tells": one.tells} for one in kept],
    }  # fmt: skip
