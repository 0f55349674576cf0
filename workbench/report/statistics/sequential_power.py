"""Power of designs that add seeds: the gap they show and the seeds they take, by simulating their looks."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.report.statistics.group_sequential import NEGLIGIBLE, Plan, still_shown
from workbench.report.statistics.noise import LEAST_DF, adjusted, pair_noise, reach_of, two_sided
from workbench.report.statistics.paired_comparison import ALPHA
from workbench.report.statistics.power import FLIPPED, POWER, Family, flip_bounds, hardest_first, unit_gap
from workbench.report.statistics.resampling import FEWEST

if TYPE_CHECKING:
    from workbench.report.statistics.noise import Array

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
def shown(arms: int, counts: tuple[int, ...], family: Family | None = None) -> Shown | None:
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

    def ahead(gap: float) -> float:
        signs, _ = simulate(_moved(scores, gap), plan, pairs)
        return float((signs[:, 0] > 0).mean())

    low, high = 0.0, 4.0
    while ahead(high) < POWER:
        low, high = high, 2 * high
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if ahead(middle) >= POWER else (middle, high)
    with_gap, without_gap = (simulate(_moved(scores, gap), plan, pairs)[1].mean() for gap in (high, 0.0))
    return Shown(high / np.sqrt(2), float(with_gap), float(without_gap))


def _moved(scores: Array, gap: float) -> Array:
    """Return a copy of the scores in which those of arm 0 are higher by `gap`."""
    moved = scores.copy()
    moved[:, 0] += gap
    return moved


def simulate(scores: Array, plan: Plan, family: Family) -> tuple[Array, Array]:
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
        if FEWEST <= count <= FLIPPED:
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
