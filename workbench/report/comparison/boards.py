"""Scores averaged in the one order that the evidence allows, and every comparison that the report makes.

Fine-tuning seeds are averaged within a run and a task (`tasks.statistic`: by their mean or their median), tasks
within a run, runs of one arm and budget over their pre-training seeds. Intervals are over pre-training seeds;
differences pair runs of equal seed. Runs of different budgets are never averaged together, and a run that lacks a
task has no score.
"""

from __future__ import annotations

import itertools
import math
import statistics as plain
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.errors import plural
from workbench.report.columns import AMOUNTS
from workbench.report.comparison import declared
from workbench.report.comparison.declared import NOTHING, Families, Family, Labels
from workbench.report.comparison.item_intervals import ItemInterval, interval_of, points_of_items
from workbench.report.comparison.training_points import Place, places
from workbench.report.load.frames import Frames
from workbench.report.statistics.gains import Groups, gains
from workbench.report.statistics.group_sequential import Look, looks
from workbench.report.statistics.paired_comparison import Compared, Difference, Estimate, t_interval
from workbench.report.statistics.per_task import STATISTICS, Noise, TaskCell, noise, score_of, task_cells
from workbench.spec.published import MEASURED, Column, Point, beside
from workbench.spec.scoring import OWN_SCORERS, SQUAD, ZERO_SHOT, counted, place_of, score_label

Scorers = frozenset[tuple[str, str]]  # tasks and the names of the scorers that an arm had on them
SPENT = (*AMOUNTS, "finetune_seconds")
UNTRAINED, NO_BUDGET = "untrained", "none"


@dataclass(frozen=True)
class Cell:
    """One arm at one budget, or the untrained encoders: scores by pre-training seed, and mean spending."""

    arm: str
    budget: str
    scores: Mapping[int, float]
    runs: tuple[str, ...]
    spent: Mapping[str, float]
    gain: Compared | None  # with the untrained encoder of the same seed; the family is the arms at the budget

    @property
    def estimate(self) -> Estimate:
        return t_interval([self.scores[s] for s in sorted(self.scores)])


@dataclass(frozen=True)
class Pair:
    """Two arms at one budget, the better first, corrected for the declared pairs at that budget, or for all."""

    a: str
    b: str
    compared: Compared

    @property
    def difference(self) -> Difference:
        return self.compared.difference


@dataclass(frozen=True)
class Board:
    """All results of one suite. `budgets` stand in order of compute; answer and first table are about the last.

    `missing` maps runs without a score to the counted tasks that they lack; `finetunings` are the different numbers
    of fine-tuning seeds that stand behind a run's task.
    """

    suite: str
    label: str
    tasks: tuple[str, ...]
    metrics: Mapping[str, str]
    budgets: tuple[str, ...]
    cells: tuple[Cell, ...]
    untrained: Cell | None
    pairs: Mapping[str, tuple[Pair, ...]]
    task_cells: tuple[TaskCell, ...]
    noise: Mapping[str, tuple[Noise, ...]]
    baselines: Mapping[str, Mapping[str, float]]  # name -> task -> value
    run_scores: Mapping[str, float]
    missing: Mapping[str, tuple[str, ...]]
    finetunings: tuple[int, ...]
    published: Column | None
    conventions: Mapping[str, str] = field(default_factory=dict)  # budget -> how its runs' FLOPs are counted
    families: Families = field(default_factory=dict)  # budget -> what was declared beforehand, if anything
    labels: Labels = field(default_factory=dict)
    places: tuple[Place, ...] = ()  # scores along training, where runs were measured before their end
    measured: tuple[Point, ...] = ()  # models that others trained, with their mean over the counted tasks
    statistic: str = "mean"  # of the scores of one run with several fine-tuning seeds: tasks.statistic
    looks: tuple[Look, ...] = ()  # at the declared comparisons of the largest budget, where seeds are added by a plan
    # budget -> two arms -> the interval of their difference for new test items as well, where their results are kept
    items: Mapping[str, Mapping[frozenset[str], ItemInterval]] = field(default_factory=dict)
    scorers: Mapping[str, Scorers] = field(default_factory=dict)  # arm -> task and scorer, where arms have their own
    beside: Mapping[str, Mapping[str, Estimate]] = field(default_factory=dict)  # arm -> further scorer, largest budget
    other_inputs: bool = False  # whether arms differ in the corruption that their objectives, and so scorers, learn on

    def alike(self, *arms: str) -> bool:
        """Return whether this measure treats these arms alike; without arguments, all arms at the largest budget.

        A measure by the arms' own scorers does so only if every task was scored by one and the same scorer, if that
        scorer is recorded, and if it was trained on the same corruption: the detector of RTD calls other sentences
        original after training with another generator.
        """
        if self.suite not in OWN_SCORERS:
            return True
        if self.other_inputs:
            return False
        each = [self.scorers.get(arm, frozenset()) for arm in arms or [cell.arm for cell in self.at(self.budget)]]
        tasks = [task for task, _ in each[0]] if each else []
        return len(set(each)) == 1 and len(set(tasks)) == len(tasks) > 0 and all(name for _, name in each[0])

    @property
    def budget(self) -> str:
        return self.budgets[-1]

    @property
    def family(self) -> Family:
        """The comparisons that were declared beforehand at the largest budget; without pairs if there are none."""
        return self.families.get(self.budget, NOTHING)

    def convention(self, budget: str | None = None) -> str:
        """Return the FLOP convention of a budget, by default of the largest one, from the specs of its runs."""
        return self.conventions.get(budget or self.budget, "paper")

    @property
    def arms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(c.arm for c in self.cells))

    def at(self, budget: str) -> list[Cell]:
        """Return the arms at a budget, best first."""
        return sorted((c for c in self.cells if c.budget == budget), key=lambda c: -c.estimate.mean)

    def baseline(self, name: str) -> float | None:
        """Return the mean of a baseline over the counted tasks; None if one of them lacks it."""
        values = self.baselines.get(name, {})
        return plain.fmean(values[t] for t in self.tasks) if all(t in values for t in self.tasks) else None


def boards(frames: Frames, order: bool = False) -> list[Board]:
    """Return the results of each suite for which a trained run has scores, in the order of `scoring.SUITES`.

    `order` adds the almost stochastic order to every comparison.
    """
    made = (board(frames, suite, order) for suite in sorted(set(frames.scores["suite"]), key=place_of))
    return [one for one in made if one is not None]


def board(frames: Frames, suite: str, order: bool = False) -> Board | None:
    """Return the results of a suite; None if no trained run has a score for each of its tasks."""
    (tuned, metrics), statistic = _scores_of(frames, suite), frames.statistic
    tasks = counted(suite, metrics)
    metrics = {task: metrics[task] for task in (*tasks, *(t for t in metrics if t not in tasks))}
    missing = {r: tuple(t for t in tasks if t not in by_task) for r, by_task in tuned.items()}
    scores = {r: plain.fmean(score_of(tuned, r, t, statistic) for t in tasks) for r in tuned if not missing[r]}
    runs = frames.by_id()
    groups, untrained = _groups(runs, scores), _untrained_runs(frames, runs, tuned)
    arms = {key: ids for key, ids in groups.items() if key[1] != UNTRAINED}
    if not arms:
        return None
    seeds = {r: int(runs[r]["seed"]) for r in tuned}
    budgets = tuple(dict.fromkeys(budget for budget, _ in arms))
    at = {b: {arm: ids for (budget, arm), ids in arms.items() if budget == b} for b in budgets}
    families = _families(frames, at)
    if declared.late_measures(frames, tasks):
        families = dict.fromkeys(at, Family(exploratory=True))
    plans = {b: family.plan for b, family in families.items() if family.plan is not None}
    gained = gains(arms, scores, seeds, untrained, plans)
    cells = [_cell(key, ids, runs, scores, gained.get(key)) for key, ids in groups.items()]
    trained = tuple(c for c in cells if c.arm != UNTRAINED)
    budgets = _by_compute(trained)
    examples, family = _examples(frames, suite), {b: families.get(b, NOTHING) for b in budgets}
    pairs = {b: compare([c for c in trained if c.budget == b], order, family[b]) for b in budgets}
    return Board(
        suite=suite,
        label=score_label(suite, metrics),
        tasks=tasks,
        metrics=metrics,
        budgets=budgets,
        cells=trained,
        untrained=next((c for c in cells if c.arm == UNTRAINED), None),
        pairs=pairs,
        task_cells=tuple(task_cells(tuned, metrics, _groups(runs, tuned), seeds, untrained, statistic)),
        noise={
            b: tuple(noise(tuned, tasks, metrics, at[b], seeds, examples, family[b].pairs, statistic, family[b].plan))
            for b in budgets
        },
        baselines=_baselines(frames, metrics),
        run_scores=scores,
        missing={r: lacking for r, lacking in missing.items() if lacking},
        finetunings=tuple(sorted({len(seeds) for by_task in tuned.values() for seeds in by_task.values()})),
        published=None if suite in (*ZERO_SHOT, SQUAD) else beside(frames.axis, dict.fromkeys(c.arm for c in trained)),
        conventions={str(row["budget"]): str(row["convention"]) for row in runs.values() if row["role"] != UNTRAINED},
        families=families,
        labels=declared.labels(frames),
        places=places(frames, suite, tasks),
        measured=_measured(frames, tasks),
        statistic=statistic,
        looks=_looks([c for c in trained if c.budget == budgets[-1]], family[budgets[-1]]),
        items={
            b: _items(frames, [c for c in trained if c.budget == b], pairs[b], tasks, tuned, family[b]) for b in pairs
        },
        scorers=_scorers(frames, suite, tasks),
        beside=_beside(frames, tasks, [c for c in trained if c.budget == budgets[-1]]) if suite in OWN_SCORERS else {},
        other_inputs=any(key.strip().startswith(("generator.", "corruption.")) for key in frames.axis.split(",")),
    )


def _scorers(frames: Frames, suite: str, tasks: Sequence[str]) -> dict[str, Scorers]:
    """Return the scorers of each arm on the counted tasks of a suite by the arms' own scorers; else nothing."""
    arms = {str(row["run_id"]): str(row["arm"]) for row in frames.rows("runs")}
    scorers: dict[str, set[tuple[str, str]]] = {}
    for row in frames.rows("scores") if suite in OWN_SCORERS else ():
        if row["suite"] == suite and row["task"] in tasks:
            name = row.get("scorer")
            scorers.setdefault(arms[row["run_id"]], set()).add((row["task"], name if isinstance(name, str) else ""))
    return {arm: frozenset(each) for arm, each in scorers.items()}


def _items(
    frames: Frames, cells: Iterable[Cell], pairs: Iterable[Pair], tasks: Sequence[str],
    tuned: Mapping[str, Mapping[str, Mapping[int, float]]], family: Family,
) -> dict[frozenset[str], ItemInterval]:  # fmt: skip
    """Return the interval of each pair for new test items as well, where scores keep the result of each item."""
    runs, points = {}, {}
    for cell in cells:
        runs[cell.arm] = dict(zip(sorted(cell.scores), cell.runs, strict=True))
        for run in cell.runs:
            means = {task: plain.fmean(tuned[run][task].values()) for task in tasks}
            if (found := points_of_items(frames.items, run, tasks, means)) is not None:
                points[run] = found
    each = {
        frozenset((pair.a, pair.b)): interval_of(pair.difference, (runs[pair.a], runs[pair.b]), points, family.level)
        for pair in pairs
    }
    return {arms: interval for arms, interval in each.items() if interval is not None}


def _beside(frames: Frames, tasks: Sequence[str], cells: Iterable[Cell]) -> dict[str, dict[str, Estimate]]:
    """Return the mean score of each arm by the scorers that stand beside its own, if all its runs have all tasks."""
    values: dict[tuple[str, str], dict[str, float]] = {}  # run and scorer -> task -> accuracy
    for row in frames.rows("other"):  # a scorer's name is a split beside "mean", whose metric is the accuracy
        if row["task"] in tasks and row["split"] != "mean" and row["metric"] == "accuracy":
            values.setdefault((row["run_id"], row["split"]), {})[row["task"]] = row["value"]
    beside: dict[str, dict[str, Estimate]] = {}
    for cell, name in itertools.product(cells, dict.fromkeys(name for _, name in values)):
        means = [plain.fmean(by.values()) for run in cell.runs if len(by := values.get((run, name), {})) == len(tasks)]
        if len(means) == len(cell.runs):
            beside.setdefault(cell.arm, {})[name] = t_interval(means)
    return beside


def _scores_of(frames: Frames, suite: str) -> tuple[dict[str, dict[str, dict[int, float]]], dict[str, str]]:
    """Return the scores of a suite by run, task and fine-tuning seed, and the metric of each task."""
    tuned: dict[str, dict[str, dict[int, float]]] = {}
    metrics: dict[str, str] = {}
    for score in frames.rows("scores"):
        if score["suite"] == suite:
            metrics.setdefault(score["task"], score["metric"])
            tuned.setdefault(score["run_id"], {}).setdefault(score["task"], {})[score["seed"]] = score["value"]
    return tuned, metrics


def _measured(frames: Frames, tasks: Iterable[str]) -> tuple[Point, ...]:
    """Return the published models that have scores on all of these tasks, the best first."""
    names, center = list(tasks), STATISTICS[frames.statistic]
    models = [
        Point(
            model.name, MEASURED, plain.fmean(center(model.scores[task].values()) for task in names), model.flops,
            model.source, plural(min(len(model.scores[task]) for task in names), "fine-tuning seed"), model.run_id,
        )
        for model in frames.published if all(task in model.scores for task in names)
    ]  # fmt: skip
    return tuple(sorted(models, key=lambda model: -model.score))


def _examples(frames: Frames, suite: str) -> dict[str, float]:
    """Return the number of test examples of each task whose metric is an accuracy."""
    rows = (row for row in frames.rows("scores") if row["suite"] == suite and row["metric"] == "accuracy")
    return {row["task"]: row["test_rows"] for row in rows}


def _families(frames: Frames, at: Mapping[str, Mapping[str, tuple[str, ...]]]) -> dict[str, Family]:
    """Return the declared comparisons at each budget between arms with scores there.

    `at` maps each budget to its arms, and each arm to its runs.
    """
    families = {}
    for budget, family in declared.families(frames).items():
        pairs = tuple(pair for pair in family.pairs if set(pair) <= at.get(budget, {}).keys())
        if pairs:
            families[budget] = replace(family, pairs=pairs)
    return families


def _looks(cells: Iterable[Cell], family: Family) -> tuple[Look, ...]:
    """Return the looks that were taken at the declared comparisons of these arms."""
    if family.plan is None or not family.pairs:
        return ()
    return tuple(looks(family.plan, {cell.arm: cell.scores for cell in cells}, family.pairs))


def _groups(runs: Mapping[str, Mapping[str, Any]], ids: Iterable[str]) -> Groups:
    """Return the runs of each budget and arm, in order of seed; arms are in the order of the record."""
    groups: dict[tuple[str, str], list[str]] = {}
    place = {r: i for i, r in enumerate(runs)}
    for r in sorted(ids, key=lambda r: (runs[r]["seed"], place[r])):
        is_untrained = runs[r]["role"] == UNTRAINED
        key = (NO_BUDGET, UNTRAINED) if is_untrained else (runs[r]["budget"], runs[r]["arm"])
        groups.setdefault(key, []).append(r)
    return {key: tuple(members) for key, members in groups.items()}


def _untrained_runs(frames: Frames, runs: Mapping[str, Mapping[str, Any]], ids: Iterable[str]) -> dict[str, str]:
    """Return for each run the untrained run with the same seed, sizes and data."""

    def start(r: str) -> tuple[Any, ...]:
        same = ((k, str(v)) for k, v in frames.settings[r].items() if k.startswith(("encoder.", "data.")))
        return (runs[r]["seed"], *sorted(same))

    ids = list(ids)
    untrained = {start(r): r for r in ids if runs[r]["role"] == UNTRAINED}
    return {r: untrained[start(r)] for r in ids if runs[r]["role"] != UNTRAINED and start(r) in untrained}


def _cell(
    key: tuple[str, str],
    ids: tuple[str, ...],
    runs: Mapping[str, Mapping[str, Any]],
    scores: Mapping[str, float],
    gain: Compared | None,
) -> Cell:
    by_seed = {int(runs[r]["seed"]): scores[r] for r in ids}
    spent = {k: plain.fmean(float(runs[r][k]) for r in ids) for k in SPENT}
    return Cell(key[1], key[0], by_seed, ids, spent, gain)


def _by_compute(cells: Iterable[Cell]) -> tuple[str, ...]:
    compute: dict[str, list[float]] = {}
    for cell in cells:
        compute.setdefault(cell.budget, []).append(cell.spent["flops_paper"])
    return tuple(sorted(compute, key=lambda budget: (plain.fmean(compute[budget]), budget)))


def compare(cells: Iterable[Cell], order: bool = False, family: Family = NOTHING) -> tuple[Pair, ...]:
    """Compare every two of these arms, which had one budget; `order` adds the almost stochastic order.

    Where the `family` has pairs that were declared, the others are exploratory.
    """
    compared_pairs = declared.compare({cell.arm: cell.scores for cell in cells}, family, order)
    return tuple(Pair(a, b, compared) for (a, b), compared in compared_pairs.items())


def _baselines(frames: Frames, tasks: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return the value of each baseline for each task.

    A baseline depends on the data of the task alone, so every score file of a task has the same value.
    """
    values_of: dict[tuple[str, str], list[float]] = {}
    for row in frames.rows("baselines"):
        if row["task"] in tasks and not math.isnan(row["value"]):
            values_of.setdefault((row["baseline"], row["task"]), []).append(row["value"])
    means: dict[str, dict[str, float]] = {}
    for (name, task), values in values_of.items():
        means.setdefault(name, {})[task] = plain.fmean(values)
    return means
