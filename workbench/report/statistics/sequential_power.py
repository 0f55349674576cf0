"""What a design that adds seeds could show, and how many it takes, by simulating its looks at many experiments."""

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

    `seeds` is the mean number of seeds that it takes then, `seeds_of_none` that where no arm differs from another.
    """

    gap: float
    seeds: float
    seeds_of_none: float


@functools.cache
def shown(arms: int, counts: tuple[int, ...], family: Family | None = None) -> Shown | None:
    """Return what a design with looks at these numbers of seeds shows; None where no look has enough to go by.

    One arm is ahead of the others, which are level; counted is the comparison that the correction makes hardest.
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
        found, _ = simulate(_moved(scores, gap), plan, pairs)
        return float((found[:, 0] > 0).mean())

    low, high = 0.0, 4.0
    while ahead(high) < POWER:
        low, high = high, 2 * high
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if ahead(middle) >= POWER else (middle, high)
    used, idle = (simulate(_moved(scores, gap), plan, pairs)[1].mean() for gap in (high, 0.0))
    return Shown(high / np.sqrt(2), float(used), float(idle))


def _moved(scores: Array, gap: float) -> Array:
    """Return the scores with arm 0 so much higher."""
    moved = scores.copy()
    moved[:, 0] += gap
    return moved


def simulate(scores: Array, plan: Plan, family: Family) -> tuple[Array, Array]:
    """Look at experiments (draws, arms, seeds) as planned, and stop each where nothing is open.

    Return the sign of what was decided of each comparison (draws, comparisons), 0 for nothing, and the seeds used.
    """
    import numpy as np

    draws, arms, _ = scores.shape
    first, second = np.triu_indices(arms, 1)
    place = {pair: i for i, pair in enumerate(zip(first.tolist(), second.tolist(), strict=True))}
    columns = [place[min(pair), max(pair)] for pair in family]
    turned = np.array([1.0 if a < b else -1.0 for a, b in family])
    reach = reach_of([(str(a), str(b)) for a, b in family])
    decided, used, going = np.zeros((draws, len(family))), np.full(draws, plan.most), np.ones(draws, dtype=bool)
    for index, (count, share) in enumerate(zip(plan.seeds, plan.shares, strict=True)):
        df = (arms - 1) * (count - 1)
        gaps = scores[:, first, :count] - scores[:, second, :count]
        noise = pair_noise(gaps.var(axis=2, ddof=1), np.full(len(first), float(count)), arms, df)
        means = gaps.mean(axis=2)[:, columns] * turned
        kinds = ((noise.shared, df), (noise.own[:, columns], noise.own_df[:, columns]))
        by_shared, by_own = (
            np.minimum(1.0, two_sided(means, variance, np.array(float(count)), freedom) / share)
            for variance, freedom in kinds
        )
        sure = (adjusted(by_shared, by_own, reach) < ALPHA) & going[:, None] & (df >= LEAST_DF)
        if FEWEST <= count <= FLIPPED:
            sure &= _borne_out(gaps[:, columns] * np.sign(means)[..., None] * turned[:, None], sure)
        decided = np.where(sure & (decided == 0), np.sign(means), decided)
        if count < plan.most:
            chance = still_shown(plan, index, means, np.sqrt(noise.shared), df, arms, reach)
            left = ((decided == 0) & ((chance >= NEGLIGIBLE) | (df < LEAST_DF))).any(axis=1)
            used = np.where(going & ~left, count, used)
            going = going & left
    return decided, used


def _borne_out(gaps: Array, asked: Array) -> Array:
    """Return where the permutation test of differences (draws, comparisons, seeds) agrees that they are positive."""
    import numpy as np

    found = np.zeros(asked.shape, dtype=bool)
    if asked.any():
        found[asked] = flip_bounds(gaps[asked]) < 0
    return found
