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
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.report.statistics.noise import LEAST_DF, OwnNoise, pair_noise, reach_of
from workbench.report.statistics.paired_comparison import ALPHA
from workbench.report.statistics.resampling import FEWEST, every_flip

if TYPE_CHECKING:
    from workbench.report.statistics.noise import Array

POWER = 0.8
MOST_SEEDS = 1000  # a design that needs more seeds than this is given as None
SIMULATED = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30)  # numbers of seeds; more are scaled from the last
FLIPPED = 10  # seeds; with more, the permutation test agrees with the t test and is left out
QUANTILES = 400  # of the distribution of an estimated standard deviation
NUMBERS = 100_000  # the most random numbers that one simulation draws


Family = tuple[tuple[int, int], ...]  # pairs of arms, each arm given by its number


def family_of(arms: Sequence[str], declared: Sequence[tuple[str, str]]) -> Family | None:
    """Return the declared comparisons of these arms by number; None, for all pairs, if none was declared."""
    place = {arm: number for number, arm in enumerate(arms)}
    return tuple((place[a], place[b]) for a, b in declared if a in place and b in place) or None


def smallest_gap(sd: float, arms: int, seeds: int, family: Family | int | None = None) -> float | None:
    """Return the smallest true gap, in points, that the rule shows with a probability of 0.8.

    `sd` is the standard deviation of paired differences. `family` are the comparisons that are made (by default every
    two arms), or their number. Returns None with fewer than three degrees of freedom, and if `sd` is 0: noise that
    was not observed may still exist.
    """
    unit = unit_gap(arms, seeds, family)
    return None if unit is None or sd == 0 else unit * sd


def needed_seeds(
    gap: float, sd: float, arms: int, family: Family | int | None = None, own: OwnNoise | None = None
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
    of the correction (`noise.reach_of`), and `share` that of the error rate that a look may spend. Degrees of freedom
    are taken to grow with the number of seeds.
    """
    import numpy as np
    from scipy import optimize, stats

    df = own.df_of_seed * (seeds - 1)
    estimated = np.sqrt(stats.chi2.ppf((np.arange(QUANTILES) + 0.5) / QUANTILES, df) / df)  # as a share of the true sd
    least = stats.t.isf(ALPHA * share / reach / 2, df) * estimated  # in standard errors
    ratio = optimize.brentq(lambda gap: stats.norm.cdf(gap - least).mean() - POWER, 0.0, float(least.max()) + 10)
    return float(ratio * own.sd / math.sqrt(seeds))


def reach_in(arms: int, family: Family | int | None) -> int:
    """Return the factor of the correction of the test with own noise, for a family of comparisons of `arms` arms."""
    return reach_of([(str(a), str(b)) for a, b in hardest_first(arms, family)])


def _needed_if_alike(gap: float, sd: float, arms: int, family: Family | int | None) -> int | None:
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
def unit_gap(arms: int, seeds: int, family: Family | int | None = None) -> float | None:
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


def hardest_first(arms: int, family: Family | int | None) -> Family:
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

    def __init__(self, arms: int, seeds: int, family: Family) -> None:
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
        if FEWEST <= seeds <= FLIPPED:
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
