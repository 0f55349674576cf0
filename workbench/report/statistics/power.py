"""Power of the rule of `paired_comparison`: what an experiment can show, by simulating that very rule.

The simulated experiments have normal noise of equal variance in all arms, and one arm ahead of the others, which are
equal. Power is the share of draws in which one given gap is claimed. Simulations are seeded, so that a report can be
reproduced, and their results are cached for the life of the process.

Two arms that are noisier than the others need a larger gap, because of the test with the noise of the two alone. That
gap is computed without simulation (`gap_by_own_noise`); a comparison needs the larger of the two gaps.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import statistics as plain
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.report.statistics.group_sequential import NEGLIGIBLE, Plan, still_shown
from workbench.report.statistics.intervals import ALPHA, Array, Scores, Tuned, example_sd, pooled_sd, score_of, t_above
from workbench.report.statistics.paired_comparison import (
    FEWEST_PAIRS,
    LEAST_DF,
    OwnNoise,
    adjusted,
    every_flip,
    own_noises,
    pair_noise,
    reach_of,
    residual_df,
    two_sided,
)

POWER = 0.8
MOST_SEEDS = 1000  # a design that needs more seeds than this is given as None
SIMULATED = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30)  # numbers of seeds; more are scaled from the last
FLIPPED = 10  # seeds; with more, the permutation test agrees with the t test and is left out
QUANTILES = 400  # of the distribution of an estimated standard deviation
NUMBERS = 100_000  # the most random numbers that one simulation draws
DIFFERENCES = 1_000_000  # numbers of an array (draws, pairs of arms); several such arrays are in memory at once

ArmPairs = tuple[tuple[int, int], ...]  # pairs of arms, each arm given by its number


def family_of(arms: Sequence[str], declared: Sequence[tuple[str, str]]) -> ArmPairs | None:
    """Return the declared comparisons of these arms by number; None, for all pairs, if none was declared."""
    place = {arm: number for number, arm in enumerate(arms)}
    return tuple((place[a], place[b]) for a, b in declared if a in place and b in place) or None


def smallest_gap(
    sd: float | None, arms: int, seeds: int, family: ArmPairs | None = None, plan: Plan | None = None
) -> float | None:
    """Return the smallest true gap, in points, that the rule shows with a probability of 0.8.

    `sd` is the standard deviation of paired differences. The comparisons are the `family` (by default every two arms),
    after this number of seeds, or at all looks of a plan. Returns None with fewer than three degrees of freedom, and
    if `sd` is unknown or 0: noise that was not observed may still exist.
    """
    design = shown(arms, (seeds,) if plan is None else plan.seeds, family) if sd else None
    return None if design is None or sd is None else design.gap * sd


def needed_seeds(
    gap: float, sd: float, arms: int, family: ArmPairs | None = None, own: OwnNoise | None = None
) -> int | None:
    """Return about how many seeds the rule needs to show a gap with a probability of 0.8.

    `own` is the noise of the two arms alone, if it is known. Without it, this is the smallest such number up to ten
    seeds, and beyond that within 10 %. Returns None above 1,000 seeds, and if `gap` or `sd` is 0 or not finite.
    """
    needed = _needed_if_alike(gap, sd, arms, family)
    if needed is None or own is None:
        return needed
    reach = reach_of(hardest_first(arms, family))
    enough = range(needed, MOST_SEEDS + 1)
    place = bisect.bisect_left(enough, -abs(gap), key=lambda seeds: -gap_by_own_noise(own, seeds, reach))
    return enough[place] if place < len(enough) else None


def gap_by_own_noise(own: OwnNoise, seeds: int, reach: int, share: float = 1.0) -> float:
    """Return the gap that a test with the noise of only two arms shows with a probability of 0.8.

    The power is that of Student's t test, averaged over the distribution of the noise estimate. `reach` is the factor
    of the correction (`reach_of`); `share` is the share of the error rate that a look may spend.
    """
    from scipy.optimize import brentq
    from scipy.special import gammaincinv, ndtr

    df = own.df_of_seed * (seeds - 1)
    middles = (np.arange(QUANTILES) + 0.5) / QUANTILES
    estimated = np.sqrt(2 * gammaincinv(df / 2, middles) / df)  # quantiles of chi squared; as shares of the true sd
    least = t_above(ALPHA * share / reach / 2, df) * estimated  # in standard errors
    ratio = brentq(lambda gap: ndtr(gap - least).mean() - POWER, 0.0, float(least.max()) + 10)
    return float(ratio * own.sd / math.sqrt(seeds))


def _needed_if_alike(gap: float, sd: float, arms: int, family: ArmPairs | None) -> int | None:
    if gap == 0 or sd == 0 or not math.isfinite(gap) or not math.isfinite(sd):
        return None
    ratio = abs(gap) / sd
    least = 7.8 / ratio**2  # seeds that one z test without correction needs: (1.96 + 0.84)^2 / ratio^2
    for before, seeds in itertools.pairwise((1, *SIMULATED)):
        unit = unit_gap(arms, seeds, family) if seeds > 0.8 * least or seeds == SIMULATED[-1] else None
        if unit is not None and (unit <= ratio or seeds == SIMULATED[-1]):
            needed = max(before + 1, math.ceil(seeds * (unit / ratio) ** 2))
            return needed if needed <= MOST_SEEDS else None
    return None


@functools.cache
def unit_gap(arms: int, seeds: int, family: ArmPairs | None = None) -> float | None:
    """Return the gap that is claimed in 80 % of the draws, in standard deviations of a paired difference."""
    if seeds < 2 or (arms - 1) * (seeds - 1) < LEAST_DF:
        return None
    if seeds > SIMULATED[-1]:
        last = unit_gap(arms, SIMULATED[-1], family)
        return None if last is None else last * math.sqrt(SIMULATED[-1] / seeds)
    draws = _Draws(arms, seeds, hardest_first(arms, family))
    # residuals have a standard deviation of 1, paired differences of sqrt(2)
    return _least_gap(draws.power, 16) / math.sqrt(2)


def _least_gap(power: Callable[[float], float], halvings: int) -> float:
    low, high = 0.0, 4.0
    while power(high) < POWER:
        low, high = high, 2 * high
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return high


def _pairs_of(arms: int, family: ArmPairs) -> tuple[Any, Any, list[int]]:
    """Return the first and the second arm of all pairs, and the place of each pair of the family among them."""
    first, second = np.triu_indices(arms, 1)
    place = {pair: i for i, pair in enumerate(zip(first.tolist(), second.tolist(), strict=True))}
    return first, second, [place[min(pair), max(pair)] for pair in family]


def hardest_first(arms: int, family: ArmPairs | None) -> ArmPairs:
    """Return the comparisons with arms renumbered so that the correction makes arm 0 against 1 the hardest to show."""
    every = tuple(itertools.combinations(range(arms), 2))
    if family is None:
        return every
    counts = Counter(arm for pair in family for arm in pair)
    first = min(counts, key=lambda arm: (counts[arm], arm))
    second = next(a if b == first else b for a, b in family if first in (a, b))
    place = {arm: i for i, arm in enumerate([first, second, *(a for a in range(arms) if a not in (first, second))])}
    return tuple(sorted({(min(place[a], place[b]), max(place[a], place[b])) for a, b in family}))


class _Draws:
    """Simulated experiments without any gap, to which a gap between arm 0 and all others can be added."""

    def __init__(self, arms: int, seeds: int, family: ArmPairs) -> None:
        first, second, columns = _pairs_of(arms, family)
        draws = min(4000, max(1000, NUMBERS // (arms * seeds)))
        residuals = np.random.default_rng(0).standard_normal((draws, arms, seeds))
        self.moved = 1.0 * (first[columns] == 0)
        self.parts: list[tuple[Array, Array, Array]] = []  # differences of means, standard errors, least gaps
        for some in np.array_split(residuals, math.ceil(draws * len(first) / DIFFERENCES)):
            centred = some - some.mean(axis=2, keepdims=True)
            products = centred @ centred.transpose(0, 2, 1) / (seeds - 1)  # (draws, arms, arms)
            each = np.diagonal(products, axis1=1, axis2=2)
            variances = each[:, first] + each[:, second] - 2 * products[:, first, second]
            noise = pair_noise(variances, np.full(len(first), float(seeds)), arms, (arms - 1) * (seeds - 1))
            means = some.mean(axis=2)
            differences = (means[:, first] - means[:, second])[:, columns]
            own = t_above(ALPHA / 2 / reach_of(family), noise.own_df[:, 0]) * np.sqrt(noise.own[:, 0] / seeds)
            least = own - differences[:, 0]
            if FEWEST_PAIRS <= seeds <= FLIPPED:
                least = np.maximum(least, flip_bounds(some[:, 0] - some[:, 1]))
            self.parts.append((differences, np.sqrt(noise.shared / seeds), least))
        self.steps = t_above(ALPHA / 2 / np.arange(len(family), 0, -1), noise.shared_df)  # Holm's, largest first

    def power(self, gap: float) -> float:
        """Return the share of draws in which the first comparison claims arm 0 to be ahead, at this true gap."""
        claims: list[Array] = []
        for differences, error, least in self.parts:
            ratios = np.abs(differences + gap * self.moved) / error
            passed = np.logical_and.accumulate(-np.sort(-ratios) > self.steps, axis=1).sum(axis=1)
            place = (ratios > ratios[:, :1]).sum(axis=1)
            claims.append((place < passed) & (gap > least))
        return float(np.concatenate(claims).mean())


def flip_bounds(differences: Array) -> Array:
    """Return the gap above which the permutation test has p below 5 %, for each row of differences (draws, seeds).

    Flipping some signs reaches the observed sum if the mean of the flipped differences, or the mean of the others, is
    not positive. A gap added to all differences moves both means by the same amount.
    """
    seeds = differences.shape[1]
    flipped = every_flip(seeds)[1:] < 0  # all sign flips but the first, which flips nothing
    means = [-(differences @ side.T) / side.sum(axis=1) for side in (flipped, ~flipped)]
    allowed = math.ceil(ALPHA * (len(flipped) + 1) - 1) - 1  # sign flips that may reach the observed sum
    bounds: Array = -np.partition(-np.maximum(*means), allowed)[:, allowed]
    return bounds


DRAWS = 1000  # simulated experiments of a design


@dataclass(frozen=True)
class Shown:
    """The gap that a design shows with a probability of 0.8, in standard deviations of a paired difference.

    `seeds` is the mean number of seeds used at this gap, `seeds_of_none` the mean number if all arms are equal.
    """

    gap: float
    seeds: float
    seeds_of_none: float


@functools.cache
def shown(arms: int, counts: tuple[int, ...], family: ArmPairs | None = None) -> Shown | None:
    """Return the gap that a design with looks at these numbers of seeds shows.

    One arm is ahead of the others, which are equal; the comparison that counts is the one that the correction makes
    hardest to show. Returns None if even the last look has fewer than three degrees of freedom.
    """
    if len(counts) == 1:
        unit = unit_gap(arms, counts[0], family)
        return None if unit is None else Shown(unit, counts[0], counts[0])
    if counts[-1] < 2 or (arms - 1) * (counts[-1] - 1) < LEAST_DF:
        return None
    pairs, plan = hardest_first(arms, family), Plan(counts)
    scores = np.random.default_rng(0).standard_normal((DRAWS, arms, counts[-1]))

    def simulated(gap: float) -> tuple[Array, Array]:
        moved = scores.copy()
        moved[:, 0] += gap
        return simulate(moved, plan, pairs)

    gap = _least_gap(lambda gap: float((simulated(gap)[0][:, 0] > 0).mean()), 12)
    return Shown(gap / np.sqrt(2), float(simulated(gap)[1].mean()), float(simulated(0.0)[1].mean()))


def simulate(scores: Array, plan: Plan, family: ArmPairs) -> tuple[Array, Array]:
    """Simulate the planned looks at experiments (draws, arms, seeds); each stops as soon as no comparison is open.

    Returns the sign of each decided comparison (draws, comparisons), 0 for one that is not decided, and the number of
    seeds used (draws,).
    """
    draws, arms, _ = scores.shape
    first, second, columns = _pairs_of(arms, family)
    signs = np.array([1.0 if a < b else -1.0 for a, b in family])
    reach = reach_of(family)
    decided, seeds_used = np.zeros((draws, len(family))), np.full(draws, plan.seeds[-1])
    going = np.ones(draws, dtype=bool)
    for index, (count, share) in enumerate(zip(plan.seeds, plan.shares, strict=True)):
        df = (arms - 1) * (count - 1)
        gaps = scores[:, first, :count] - scores[:, second, :count]
        noise = pair_noise(gaps.var(axis=2, ddof=1), np.full(len(first), float(count)), arms, df)
        means = gaps.mean(axis=2)[:, columns] * signs
        kinds = ((noise.shared, df), (noise.own[:, columns], noise.own_df[:, columns]))
        by_shared, by_own = (
            np.minimum(1.0, two_sided(means, variance, np.array(float(count)), freedom) / share)
            for variance, freedom in kinds
        )
        significant = (adjusted(by_shared, by_own, reach) < ALPHA) & going[:, None] & (df >= LEAST_DF)
        if FEWEST_PAIRS <= count <= FLIPPED and significant.any():  # the permutation test must agree
            positive = gaps[:, columns] * np.sign(means)[..., None] * signs[:, None]
            significant[significant] = flip_bounds(positive[significant]) < 0
        decided = np.where(significant & (decided == 0), np.sign(means), decided)
        if count < plan.seeds[-1]:
            probability = still_shown(plan, index, means, np.sqrt(noise.shared), df, arms, reach)
            open_ = ((decided == 0) & ((probability >= NEGLIGIBLE) | (df < LEAST_DF))).any(axis=1)
            seeds_used = np.where(going & ~open_, count, seeds_used)
            going = going & open_
    return decided, seeds_used


@dataclass(frozen=True)
class Noise:
    """How far scores scatter at one budget: standard deviations within arms, in points.

    `finetuning` is between fine-tuning seeds of one run, `pretraining` between pre-training seeds of one arm, `paired`
    between paired differences of two arms (with `df` degrees of freedom), and `examples` what another sample of test
    examples would add (for accuracies). `gap` is the true difference between two arms that the rule of
    `paired_comparison` shows over `n` seeds with a probability of 0.8 if all arms have the same noise, and `widest_gap`
    the difference with which every comparison is shown, whatever the noise of its two arms.
    """

    name: str
    finetuning: float | None
    pretraining: float | None
    paired: float | None
    examples: float | None
    n: int
    df: int
    gap: float | None
    widest_gap: float | None


def noise_rows(
    tuned: Tuned, suite: tuple[str, ...], tasks: Iterable[str], arms: Mapping[str, tuple[str, ...]],
    seeds: Mapping[str, int], examples: Mapping[str, float], declared: Sequence[tuple[str, str]] = (),
    statistic: str = "mean", plan: Plan | None = None,
) -> Iterator[Noise]:  # fmt: skip
    """Yield the noise of the mean score over the tasks of `suite`, then the noise of each task.

    `arms` maps an arm to its runs at one budget, and `examples` a task to its number of test examples if its metric is
    an accuracy; the `statistic` averages the fine-tuning seeds of a run. The smallest gap holds for the comparisons
    that were `declared` beforehand, or else for all pairs, and for all looks of a `plan`.
    """
    each = [(task, (task,)) for task in tasks]
    for name, parts in (("mean", suite), *(each if len(each) > 1 else ())):
        measured = {arm: [r for r in ids if all(p in tuned.get(r, {}) for p in parts)] for arm, ids in arms.items()}
        names, runs = [arm for arm in measured if measured[arm]], [ids for ids in measured.values() if ids]
        shared = {r: sorted(set.intersection(*(set(tuned[r][p]) for p in parts))) for arm in runs for r in arm}
        within = [[plain.fmean(tuned[r][p][seed] for p in parts) for seed in shared[r]] for r in shared]
        values = [{seeds[r]: plain.fmean(score_of(tuned, r, p, statistic) for p in parts) for r in arm} for arm in runs]
        gaps = [[a[s] - b[s] for s in sorted(a.keys() & b.keys())] for a, b in itertools.combinations(values, 2)]
        paired, n = pooled_sd(gaps), min(map(len, gaps), default=0)
        df = residual_df([frozenset(v) for v in values])
        family = family_of(names, declared)
        gap = smallest_gap(paired, len(runs), n, family, plan)
        yield Noise(
            name, pooled_sd(within), pooled_sd([list(v.values()) for v in values]), paired,
            _examples(tuned, list(shared), parts, examples, statistic), n, df, gap,
            None if gap is None else max(gap, *_widest_gaps(dict(zip(names, values, strict=True)), n, family, plan)),
        )  # fmt: skip


def _widest_gaps(arms: Mapping[str, Scores], seeds: int, family: ArmPairs | None, plan: Plan | None) -> Iterator[float]:
    """Yield the gaps that comparisons need with the noise of their two arms, with the widest gap among them.

    A gap grows with the noise, falls with its degrees of freedom, and takes milliseconds to compute, so pairs are left
    out if another one has as much noise and as few degrees of freedom.
    """
    names, noises, least = list(arms), own_noises(arms), math.inf
    yield 0.0
    pairs = [frozenset((names[a], names[b])) for a, b in family or itertools.combinations(range(len(names)), 2)]
    known = [noises[pair] for pair in pairs if pair in noises]
    for own in sorted(known, key=lambda own: (-own.sd, own.df_of_seed)):
        if own.df_of_seed < least:
            least = own.df_of_seed
            yield _gap(own, len(names), seeds, family, plan)


def gap_of(arms: Mapping[str, Scores], a: str, b: str, seeds: int, family: ArmPairs | None, plan: Plan | None) -> float:
    """Return the gap between arms a and b that is shown with power 0.8, by their noise; 0 below two common seeds."""
    own = own_noises(arms).get(frozenset((a, b)))
    return 0.0 if own is None else _gap(own, len(arms), seeds, family, plan)


def _gap(own: OwnNoise, arms: int, seeds: int, family: ArmPairs | None, plan: Plan | None) -> float:
    last, share = (seeds, 1.0) if plan is None else (plan.seeds[-1], plan.shares[-1])
    return gap_by_own_noise(own, last, reach_of(hardest_first(arms, family)), share)


def _examples(
    tuned: Tuned, runs: list[str], parts: tuple[str, ...], examples: Mapping[str, float], statistic: str
) -> float | None:
    """Return the standard deviation that test examples add to a mean over tasks; None if one is not an accuracy."""
    if not runs or any(part not in examples for part in parts):
        return None
    deviations = [example_sd(plain.fmean(score_of(tuned, r, p, statistic) for r in runs), examples[p]) for p in parts]
    return None if None in deviations else math.hypot(*(sd for sd in deviations if sd is not None)) / len(parts)
