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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.report.statistics.group_sequential import NEGLIGIBLE, Plan, still_shown
from workbench.report.statistics.intervals import ALPHA, Scores, Tuned, example_sd, pooled_sd, score_of
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

if TYPE_CHECKING:
    from workbench.report.statistics.intervals import Array

POWER = 0.8
MOST_SEEDS = 1000  # a design that needs more seeds than this is given as None
SIMULATED = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30)  # numbers of seeds; more are scaled from the last
FLIPPED = 10  # seeds; with more, the permutation test agrees with the t test and is left out
QUANTILES = 400  # of the distribution of an estimated standard deviation
NUMBERS = 100_000  # the most random numbers that one simulation draws

ArmPairs = tuple[tuple[int, int], ...]  # pairs of arms, each arm given by its number


def family_of(arms: Sequence[str], declared: Sequence[tuple[str, str]]) -> ArmPairs | None:
    """Return the declared comparisons of these arms by number; None, for all pairs, if none was declared."""
    place = {arm: number for number, arm in enumerate(arms)}
    return tuple((place[a], place[b]) for a, b in declared if a in place and b in place) or None


def smallest_gap(sd: float, arms: int, seeds: int, family: ArmPairs | int | None = None) -> float | None:
    """Return the smallest true gap, in points, that the rule shows with a probability of 0.8.

    `sd` is the standard deviation of paired differences. `family` are the comparisons that are made (by default every
    two arms), or their number. Returns None with fewer than three degrees of freedom, and if `sd` is 0: noise that
    was not observed may still exist.
    """
    unit = unit_gap(arms, seeds, family)
    return None if unit is None or sd == 0 else unit * sd


def needed_seeds(
    gap: float, sd: float, arms: int, family: ArmPairs | int | None = None, own: OwnNoise | None = None
) -> int | None:
    """Return about how many seeds the rule needs to show a gap with a probability of 0.8.

    `own` is the noise of the two arms alone, if it is known. Without it, this is the smallest such number up to ten
    seeds, and beyond that within 10 %. Returns None above 1,000 seeds, and if `gap` or `sd` is 0 or not finite.
    """
    needed = _needed_if_alike(gap, sd, arms, family)
    if needed is None or own is None:
        return needed
    reach = reach_in(arms, family)
    enough = range(needed, MOST_SEEDS + 1)
    place = bisect.bisect_left(enough, -abs(gap), key=lambda seeds: -gap_by_own_noise(own, seeds, reach))
    return enough[place] if place < len(enough) else None


def gap_by_own_noise(own: OwnNoise, seeds: int, reach: int, share: float = 1.0) -> float:
    """Return the gap that the test with the noise of two arms alone shows with a probability of 0.8.

    It is the power of Student's t test, averaged over the distribution of the estimated noise. `reach` is the factor
    of the correction (`reach_of`), and `share` that of the error rate that a look may spend. Degrees of freedom
    are taken to grow with the number of seeds.
    """
    import numpy as np
    from scipy import optimize, stats

    df = own.df_of_seed * (seeds - 1)
    estimated = np.sqrt(stats.chi2.ppf((np.arange(QUANTILES) + 0.5) / QUANTILES, df) / df)  # as a share of the true sd
    least = stats.t.isf(ALPHA * share / reach / 2, df) * estimated  # in standard errors
    ratio = optimize.brentq(lambda gap: stats.norm.cdf(gap - least).mean() - POWER, 0.0, float(least.max()) + 10)
    return float(ratio * own.sd / math.sqrt(seeds))


def reach_in(arms: int, family: ArmPairs | int | None) -> int:
    """Return the factor of the correction of the test with own noise, for a family of comparisons of `arms` arms."""
    return reach_of([(str(a), str(b)) for a, b in hardest_first(arms, family)])


def _needed_if_alike(gap: float, sd: float, arms: int, family: ArmPairs | int | None) -> int | None:
    """Return about how many seeds show a gap if all arms have the same noise."""
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
def unit_gap(arms: int, seeds: int, family: ArmPairs | int | None = None) -> float | None:
    """Return the gap that is claimed in 80 % of the draws, in standard deviations of a paired difference."""
    if seeds < 2 or (arms - 1) * (seeds - 1) < LEAST_DF:
        return None
    if seeds > SIMULATED[-1]:
        last = unit_gap(arms, SIMULATED[-1], family)
        return None if last is None else last * math.sqrt(SIMULATED[-1] / seeds)
    draws = _Draws(arms, seeds, hardest_first(arms, family))
    low, high = 0.0, 4.0
    while draws.power(high) < POWER:
        low, high = high, 2 * high
    for _ in range(16):
        middle = (low + high) / 2
        low, high = (low, middle) if draws.power(middle) >= POWER else (middle, high)
    return high / math.sqrt(2)  # residuals have a standard deviation of 1, paired differences of sqrt(2)


def hardest_first(arms: int, family: ArmPairs | int | None) -> ArmPairs:
    """Return the comparisons with the arms renumbered: the first is of arms 0 and 1, and arm 0 is in the fewest.

    With arm 0 ahead of the others, which are equal, the correction makes this comparison the hardest to show.
    """
    every = tuple(itertools.combinations(range(arms), 2))
    if family is None or isinstance(family, int):
        return every[:family]
    counts = Counter(arm for pair in family for arm in pair)
    first = min(counts, key=lambda arm: (counts[arm], arm))
    second = next(a if b == first else b for a, b in family if first in (a, b))
    place = {arm: i for i, arm in enumerate([first, second, *(a for a in range(arms) if a not in (first, second))])}
    return tuple(sorted({(min(place[a], place[b]), max(place[a], place[b])) for a, b in family}))


class _Draws:
    """Simulated experiments without any gap, to which a gap between arm 0 and all others can be added."""

    def __init__(self, arms: int, seeds: int, family: ArmPairs) -> None:
        import numpy as np
        from scipy import stats

        first, second = np.triu_indices(arms, 1)
        place = {pair: i for i, pair in enumerate(zip(first.tolist(), second.tolist(), strict=True))}
        columns = [place[pair] for pair in family]
        draws = min(4000, max(1000, NUMBERS // (arms * seeds)))
        residuals = np.random.default_rng(0).standard_normal((draws, arms, seeds))
        centred = residuals - residuals.mean(axis=2, keepdims=True)
        products = centred @ centred.transpose(0, 2, 1) / (seeds - 1)  # (draws, arms, arms)
        each = np.diagonal(products, axis1=1, axis2=2)
        variances = each[:, first] + each[:, second] - 2 * products[:, first, second]
        noise = pair_noise(variances, np.full(len(first), float(seeds)), arms, (arms - 1) * (seeds - 1))
        means = residuals.mean(axis=2)
        reach = reach_of([(str(a), str(b)) for a, b in family])
        self.means = (means[:, first] - means[:, second])[:, columns]
        self.moved = 1.0 * (first[columns] == 0)
        self.error = np.sqrt(noise.shared / seeds)
        self.steps = stats.t.isf(ALPHA / 2 / np.arange(len(family), 0, -1), noise.shared_df)  # Holm's, largest first
        own = stats.t.isf(ALPHA / 2 / reach, noise.own_df[:, 0]) * np.sqrt(noise.own[:, 0] / seeds)
        self.least = own - self.means[:, 0]
        if FEWEST_PAIRS <= seeds <= FLIPPED:
            self.least = np.maximum(self.least, flip_bounds(residuals[:, 0] - residuals[:, 1]))

    def power(self, gap: float) -> float:
        """Return the share of draws in which the first comparison claims arm 0 to be ahead, at this true gap."""
        return float((self._by_holm(gap) & (gap > self.least)).mean())

    def _by_holm(self, gap: float) -> Array:
        import numpy as np

        ratios = np.abs(self.means + gap * self.moved) / self.error
        passed = np.logical_and.accumulate(-np.sort(-ratios) > self.steps, axis=1).sum(axis=1)
        place = (ratios > ratios[:, :1]).sum(axis=1)
        claimed: Array = place < passed
        return claimed


def flip_bounds(differences: Array) -> Array:
    """Return the gap above which the permutation test has p below 5 %, for each row of differences (draws, seeds).

    Flipping some signs reaches the observed sum if the mean of the flipped differences, or that of the others, is not
    positive. A gap added to all differences moves both means by the same amount.
    """
    import numpy as np

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
    import numpy as np

    if counts[-1] < 2 or (arms - 1) * (counts[-1] - 1) < LEAST_DF:
        return None
    if len(counts) == 1:
        unit = unit_gap(arms, counts[0], family)
        return None if unit is None else Shown(unit, counts[0], counts[0])
    pairs = hardest_first(arms, family)
    scores = np.random.default_rng(0).standard_normal((DRAWS, arms, counts[-1]))
    plan = Plan(counts)

    def simulated(gap: float) -> tuple[Array, Array]:
        moved = scores.copy()
        moved[:, 0] += gap
        return simulate(moved, plan, pairs)

    def ahead(gap: float) -> float:
        return float((simulated(gap)[0][:, 0] > 0).mean())

    low, high = 0.0, 4.0
    while ahead(high) < POWER:
        low, high = high, 2 * high
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if ahead(middle) >= POWER else (middle, high)
    with_gap, without_gap = (simulated(gap)[1].mean() for gap in (high, 0.0))
    return Shown(high / np.sqrt(2), float(with_gap), float(without_gap))


def simulate(scores: Array, plan: Plan, family: ArmPairs) -> tuple[Array, Array]:
    """Simulate the planned looks at experiments (draws, arms, seeds); each stops as soon as no comparison is open.

    Returns the sign of each decided comparison (draws, comparisons), 0 for one that is not decided, and the number of
    seeds used (draws,).
    """
    import numpy as np

    draws, arms, _ = scores.shape
    first, second = np.triu_indices(arms, 1)
    place = {pair: i for i, pair in enumerate(zip(first.tolist(), second.tolist(), strict=True))}
    columns = [place[min(pair), max(pair)] for pair in family]
    signs = np.array([1.0 if a < b else -1.0 for a, b in family])
    reach = reach_of([(str(a), str(b)) for a, b in family])
    decided, seeds_used, going = np.zeros((draws, len(family))), np.full(draws, plan.most), np.ones(draws, dtype=bool)
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
        if FEWEST_PAIRS <= count <= FLIPPED:
            significant &= _borne_out(gaps[:, columns] * np.sign(means)[..., None] * signs[:, None], significant)
        decided = np.where(significant & (decided == 0), np.sign(means), decided)
        if count < plan.most:
            probability = still_shown(plan, index, means, np.sqrt(noise.shared), df, arms, reach)
            open_ = ((decided == 0) & ((probability >= NEGLIGIBLE) | (df < LEAST_DF))).any(axis=1)
            seeds_used = np.where(going & ~open_, count, seeds_used)
            going = going & open_
    return decided, seeds_used


def _borne_out(gaps: Array, candidates: Array) -> Array:
    """Return for which differences (draws, comparisons, seeds) the permutation test agrees that they are positive.

    Only those that `candidates` (draws, comparisons) marks are tested; for the others the result is false.
    """
    import numpy as np

    positive = np.zeros(candidates.shape, dtype=bool)
    if candidates.any():
        positive[candidates] = flip_bounds(gaps[candidates]) < 0
    return positive


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


def noise_rows(
    tuned: Tuned, suite: tuple[str, ...], tasks: Iterable[str], arms: Mapping[str, tuple[str, ...]],
    seeds: Mapping[str, int], examples: Mapping[str, float], declared: Sequence[tuple[str, str]] = (),
    statistic: str = "mean", plan: Plan | None = None,
) -> Iterator[Noise]:  # fmt: skip
    """Yield the noise of the mean score over the tasks of `suite`, then the noise of each task.

    `arms` maps an arm to its runs at one budget, and `examples` a task to its number of test examples, if its metric
    is an accuracy; the `statistic` averages the fine-tuning seeds of a run. The smallest gap holds for the
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
            name, pooled_sd(within), pooled_sd([list(v.values()) for v in values]), paired,
            _examples(tuned, [r for arm in runs for r in arm], parts, examples, statistic), n, df, gap,
            None if gap is None else _widest(gap, dict(zip(names, values, strict=True)), n, family, plan),
        )  # fmt: skip


def _smallest(sd: float | None, arms: int, seeds: int, family: ArmPairs | None, plan: Plan | None) -> float | None:
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
    gap: float, arms: Mapping[str, Scores], seeds: int, family: ArmPairs | None, plan: Plan | None
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


def gap_of(arms: Mapping[str, Scores], a: str, b: str, seeds: int, family: ArmPairs | None, plan: Plan | None) -> float:
    """Return the gap that two arms can show with the noise of these two alone; 0 if they share fewer than two seeds.

    `arms` maps each arm of the comparisons to its scores by seed.
    """
    return _gap(own_noises(arms).get(frozenset((a, b))), len(arms), seeds, family, plan)


def _gap(own: OwnNoise | None, arms: int, seeds: int, family: ArmPairs | None, plan: Plan | None) -> float:
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
