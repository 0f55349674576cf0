"""Results of each task by itself: scores, gains over the untrained encoder, and how far the scores scatter."""

from __future__ import annotations

import itertools
import math
import statistics as plain
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from workbench.report.statistics.gains import Groups, gains
from workbench.report.statistics.group_sequential import Plan
from workbench.report.statistics.noise import OwnNoise, own_noises, residual_df
from workbench.report.statistics.paired_comparison import Compared, Estimate, Scores, pooled_sd, t_interval
from workbench.report.statistics.power import Family, family_of, gap_by_own_noise, reach_in, smallest_gap
from workbench.report.statistics.resampling import example_sd
from workbench.report.statistics.sequential_power import shown

# Of a run's scores with several fine-tuning seeds: `tasks.statistic`. Published scores of GLUE are medians.
STATISTICS: Mapping[str, Callable[[Iterable[float]], float]] = {"mean": plain.fmean, "median": plain.median}
Tuned = Mapping[str, Mapping[str, Mapping[int, float]]]  # run -> task -> fine-tuning seed -> headline value
MetricRow = tuple[str, str, str, dict[str, Estimate]]  # task, split and metric, and every arm's score


class Cell(Protocol):
    """The fields of `boards.Cell` that this module reads."""

    @property
    def arm(self) -> str: ...
    @property
    def runs(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class TaskCell:
    """The result of one arm at one budget on one task.

    `median` and `best` are taken over the fine-tuning seeds of a run, and averaged over the runs.
    """

    task: str
    metric: str
    arm: str
    budget: str
    estimate: Estimate
    median: float
    best: float
    finetunings: int
    gain: Compared | None  # with the untrained encoder of the same seed; the family is the arms at the budget
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Noise:
    """How far scores scatter at one budget: standard deviations within arms, in points.

    `finetuning` is the standard deviation between fine-tuning seeds of one run, `pretraining` that between
    pre-training seeds of one arm, `paired` that of paired differences between two arms (with `df` degrees of
    freedom), and `examples` the one that another sample of test examples would add (for accuracies). `gap` is the
    true difference between two arms that the rule of `paired_comparison` shows over `n` seeds with a probability of
    0.8, if all arms have the same noise. `widest` is the difference that the two arms with most noise need for that.
    """

    name: str
    finetuning: float | None
    pretraining: float | None
    paired: float | None
    examples: float | None
    n: int
    df: int
    gap: float | None
    widest: WidestGap | None

    @property
    def widest_gap(self) -> float | None:
        """Return the gap with which every comparison of the design is shown with a probability of 0.8."""
        return self.gap if self.widest is None else self.widest.gap


@dataclass(frozen=True)
class WidestGap:
    """The largest of the gaps that comparisons need with the noise of their two arms, in points, and these arms."""

    a: str
    b: str
    gap: float


def score_of(tuned: Tuned, run_id: str, task: str, statistic: str) -> float:
    """Return the score of a run on a task: the mean over its fine-tuning seeds, or another of STATISTICS."""
    return STATISTICS[statistic](tuned[run_id][task].values())


def task_cells(
    tuned: Tuned, metrics: Mapping[str, str], groups: Groups, seeds: Mapping[str, int], untrained: Mapping[str, str],
    statistic: str = "mean",
) -> Iterator[TaskCell]:  # fmt: skip
    """Yield the result of every task, budget and arm; `statistic` is that over the fine-tuning seeds of a run.

    `metrics` maps a task to its headline metric, `groups` (budget, arm) to run ids, `seeds` a run id to its
    pre-training seed, and `untrained` a run id to that of the untrained run with the same initial weights.
    """
    for task, metric in metrics.items():
        scores = {run: score_of(tuned, run, task, statistic) for run in tuned if task in tuned[run]}
        measured = {key: tuple(r for r in runs if r in scores) for key, runs in groups.items()}
        all_gains = gains({key: runs for key, runs in measured.items() if runs}, scores, seeds, untrained)
        for (budget, arm), run_ids in measured.items():
            if not run_ids:
                continue
            yield TaskCell(
                task,
                metric,
                arm,
                budget,
                t_interval([scores[r] for r in run_ids]),
                plain.fmean(plain.median(tuned[r][task].values()) for r in run_ids),
                plain.fmean(max(tuned[r][task].values()) for r in run_ids),
                sum(len(tuned[r][task]) for r in run_ids),
                all_gains.get((budget, arm)),
                run_ids,
            )


def every_metric(
    rows: Iterable[Mapping[str, Any]], cells: Iterable[Cell], headline: Mapping[str, str], statistic: str = "mean"
) -> list[MetricRow]:
    """Return task, split, metric and {arm: estimate} of everything that was measured.

    The estimates are means over runs of the `statistic` over fine-tuning seeds. Tasks that have nothing but their
    headline metric are left out. `rows` are those of `Frames.other`.
    """
    values: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for row in rows:
        if row["task"] in headline and not math.isnan(row["value"]):
            key = (row["task"], row["split"], row["metric"])
            values.setdefault(key, {}).setdefault(row["run_id"], []).append(row["value"])
    tasks = Counter(task for task, _, _ in values)
    return [
        (*key, {c.arm: t_interval([STATISTICS[statistic](of_run[r]) for r in c.runs if r in of_run]) for c in cells})
        for key, of_run in values.items()
        if tasks[key[0]] > 1
    ]


def noise(
    tuned: Tuned,
    suite: tuple[str, ...],
    tasks: Iterable[str],
    arms: Mapping[str, tuple[str, ...]],
    seeds: Mapping[str, int],
    examples: Mapping[str, float],
    declared: Sequence[tuple[str, str]] = (),
    statistic: str = "mean",
    plan: Plan | None = None,
) -> Iterator[Noise]:
    """Yield the noise of the mean score over the tasks of `suite`, then that of each task.

    `arms` maps an arm to its runs at one budget, and `examples` a task to its number of test examples, if its metric
    is an accuracy; `statistic` is that over the fine-tuning seeds of a run. The smallest gap holds for the
    comparisons that were `declared` beforehand, or for all pairs if there are none, and for all looks of the `plan` if
    seeds are added by one.
    """
    each = [(task, (task,)) for task in tasks]
    for name, parts in (("mean", suite), *(each if len(each) > 1 else ())):
        measured = {arm: [r for r in ids if all(p in tuned.get(r, {}) for p in parts)] for arm, ids in arms.items()}
        names, runs = [arm for arm in measured if measured[arm]], [ids for ids in measured.values() if ids]
        within = [_by_finetuning_seed(tuned[r], parts) for arm in runs for r in arm]
        values = [{seeds[r]: plain.fmean(score_of(tuned, r, p, statistic) for p in parts) for r in arm} for arm in runs]
        gaps = [[a[s] - b[s] for s in sorted(a.keys() & b.keys())] for a, b in itertools.combinations(values, 2)]
        paired, n = pooled_sd(gaps), min(map(len, gaps), default=0)
        df = residual_df([frozenset(v) for v in values])
        family = family_of(names, declared)
        gap = _smallest(paired, len(runs), n, family, plan)
        yield Noise(
            name,
            pooled_sd(within),
            pooled_sd([list(v.values()) for v in values]),
            paired,
            _examples(tuned, [r for arm in runs for r in arm], parts, examples, statistic),
            n,
            df,
            gap,
            None if gap is None else _widest(gap, dict(zip(names, values, strict=True)), n, family, plan),
        )


def _smallest(sd: float | None, arms: int, seeds: int, family: Family | None, plan: Plan | None) -> float | None:
    """Return the smallest gap if all arms have the same noise, `sd`: at so many seeds, or over all looks of a plan.

    Returns None if the noise is not known, or 0, since equal scores do not show that there is no noise.
    """
    if not sd:
        return None
    if plan is None:
        return smallest_gap(sd, arms, seeds, family)
    design = shown(arms, plan.seeds, family)
    return None if design is None else design.gap * sd


def _widest(
    gap: float, arms: Mapping[str, Scores], seeds: int, family: Family | None, plan: Plan | None
) -> WidestGap | None:
    """Return the largest gap that a comparison needs with the noise of its two arms; None if it is at most `gap`."""
    names, noises = list(arms), own_noises(arms)
    pairs = [(names[a], names[b]) for a, b in family or itertools.combinations(range(len(names)), 2)]
    known = [(a, b, noises[frozenset((a, b))]) for a, b in pairs if frozenset((a, b)) in noises]
    gaps = [WidestGap(a, b, _gap(own, len(names), seeds, family, plan)) for a, b, own in _hardest(known)]
    widest = max(gaps, key=lambda each: each.gap, default=None)
    return widest if widest is not None and widest.gap > gap else None


def _hardest(pairs: Iterable[tuple[str, str, OwnNoise]]) -> Iterator[tuple[str, str, OwnNoise]]:
    """Yield the pairs one of which needs the widest gap: no other has as much noise and as few degrees of freedom.

    A gap grows with the noise and falls with its degrees of freedom, and takes milliseconds to compute.
    """
    least = math.inf
    for a, b, own in sorted(pairs, key=lambda pair: (-pair[2].sd, pair[2].df_of_seed)):
        if own.df_of_seed < least:
            least = own.df_of_seed
            yield a, b, own


def gap_of(arms: Mapping[str, Scores], a: str, b: str, seeds: int, family: Family | None, plan: Plan | None) -> float:
    """Return the gap that two arms can show with the noise of these two alone; 0 if they share fewer than two seeds.

    `arms` maps each arm of the comparisons to its scores by seed.
    """
    return _gap(own_noises(arms).get(frozenset((a, b))), len(arms), seeds, family, plan)


def _gap(own: OwnNoise | None, arms: int, seeds: int, family: Family | None, plan: Plan | None) -> float:
    """Return the gap that two of `arms` arms can show with the noise of these two alone; 0 if it is unknown."""
    last, share = (seeds, 1.0) if plan is None else (plan.most, plan.shares[-1])
    return 0.0 if own is None else gap_by_own_noise(own, last, reach_in(arms, family), share)


def _examples(
    tuned: Tuned, runs: list[str], parts: tuple[str, ...], examples: Mapping[str, float], statistic: str
) -> float | None:
    """Return the standard deviation that test examples add to a mean over tasks; None if one is not an accuracy."""
    if not runs or any(part not in examples for part in parts):
        return None
    deviations = [example_sd(plain.fmean(score_of(tuned, r, p, statistic) for r in runs), examples[p]) for p in parts]
    return None if None in deviations else math.hypot(*(sd for sd in deviations if sd is not None)) / len(parts)


def _by_finetuning_seed(tuned: Mapping[str, Mapping[int, float]], parts: tuple[str, ...]) -> list[float]:
    """Return the mean over tasks for each fine-tuning seed that all of them have."""
    shared = set.intersection(*(set(tuned[p]) for p in parts))
    return [plain.fmean(tuned[p][s] for p in parts) for s in sorted(shared)]
