"""Noise of paired differences: estimated from all arms together, and from the two arms of a pair alone.

All functions work on arrays (draws, pairs) of variances of paired differences, so that a report and the simulations
of its power use the same code. A draw is one whole experiment; pairs are in the order of `numpy.triu_indices`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

# The part of a run's variance, beside arm and seed, that rounding alone makes: 1.10, 1.07 and 1.03 by three measures of
# two studies that were run twice with the same seeds and other rounding (docs/log.md, 2026-11-28).
ARITHMETIC_SHARE = 1.0
SHARE_IN_WORDS = "about as far as other seeds would, by studies at nano and micro that were run twice"
LEAST_DF = 3  # degrees of freedom; with fewer, a few differences that happen to be nearly equal would look certain


@dataclass(frozen=True)
class PairNoise:
    """Variances of paired differences, from all arms (`shared`) and from the two arms of each pair (`own`).

    `shared` is (draws, 1), and `shared_df` are the residual degrees of freedom of the model score = arm + seed +
    residual. `own` and its degrees of freedom `own_df` are (draws, pairs).
    """

    shared: Array
    shared_df: int
    own: Array
    own_df: Array


def pair_noise(variances: Array, seeds: Array, arms: int, residual_df: int) -> PairNoise:
    """Return both kinds of noise, from the sample variance of the differences of every pair (draws, pairs).

    `seeds` (pairs,) is the number of seeds that both arms of a pair have. The variance of a pair with fewer than two
    is NaN.
    """
    import numpy as np

    weights = np.maximum(seeds - 1, 0)
    shared = np.nansum(variances * weights, axis=1, keepdims=True) / max(1, weights.sum())
    own, own_df = _own(variances, weights, arms)
    return PairNoise(shared, residual_df, own, own_df)


def _own(variances: Array, df: Array, arms: int) -> tuple[Array, Array]:
    """Return the variance of each pair and its degrees of freedom, without assuming that arms have equal variances.

    With four arms or more, the residual variance of one arm is estimated from all pairs that contain it (unbiased,
    whatever the variances of the other arms are), and the variance of a pair is the sum of two of them, or its own
    sample variance if that is larger. The sum alone is too small for two arms whose residuals are less alike than
    those of other pairs, as where arms of one kind get the same seeds right: at its worst it was half of the truth
    (docs/decisions/0009). The degrees of freedom are those of Welch and Satterthwaite, reduced for the estimated
    effects of the seeds, and never below those of the pair alone. With fewer arms, or if some two arms share fewer
    than two seeds, the variance is the pair's own sample variance.
    """
    import numpy as np

    if arms < 4 or (df < 1).any():
        return variances, np.broadcast_to(np.maximum(df, 1.0), variances.shape)
    first, second = np.triu_indices(arms, 1)
    member = np.zeros((len(first), arms))
    member[np.arange(len(first)), first] = member[np.arange(len(first)), second] = 1
    total = variances.sum(axis=1, keepdims=True) / (arms - 1)
    each = np.maximum((variances @ member - total) / (arms - 2), 0)  # (draws, arms)
    one, two = each[:, first], each[:, second]
    squares = one**2 + two**2
    welch = df * (one + two) ** 2 / np.maximum(squares, np.finfo(float).tiny)
    return np.maximum(one + two, variances), np.maximum(df, welch * (arms - 2) / (arms - 1))


@dataclass(frozen=True)
class OwnNoise:
    """The noise of two arms alone: the standard deviation `sd` of their differences, and its degrees of freedom `df`.

    `seeds` is the number of seeds that both arms have.
    """

    sd: float
    df: float
    seeds: int

    @property
    def df_of_seed(self) -> float:
        """Return the degrees of freedom that each seed after the first one adds."""
        return self.df / (self.seeds - 1)


def own_noises(arms: Mapping[str, Mapping[int, float]]) -> dict[frozenset[str], OwnNoise]:
    """Return the own noise of every two arms that share two seeds; `arms` maps an arm to its scores by seed."""
    import itertools

    import numpy as np

    _, variances, counts = variances_of(list(arms.values()))
    own, own_df = _own(variances, np.maximum(counts - 1, 0), len(arms))
    return {
        frozenset(pair): OwnNoise(float(own[0, i]) ** 0.5, float(own_df[0, i]), int(counts[i]))
        for i, pair in enumerate(itertools.combinations(arms, 2))
        if counts[i] > 1
    }


def residual_df(seeds_of_arms: Sequence[frozenset[int]]) -> int:
    """Return the residual degrees of freedom of score = arm + seed + residual.

    This is (arms - 1) * (seeds - 1) if every arm has every seed. A seed that only one arm has adds none.
    """
    present = [own_seeds for own_seeds in seeds_of_arms if own_seeds]
    seeds = frozenset().union(*present)
    # The rank of the design is the number of effects less one for each group of arms that share no seed with others:
    # it is the incidence matrix of a bipartite graph. Computing it by linear algebra takes the cube of their number.
    rank = len(present) + len(seeds) - _groups(present)
    return sum(map(len, present)) - rank


def _groups(seeds_of_arms: Sequence[frozenset[int]]) -> int:
    """Return the number of groups of arms between which no seed is shared."""
    groups: list[set[int]] = []
    for own_seeds in seeds_of_arms:
        joined = set(own_seeds).union(*(group for group in groups if group & own_seeds))
        groups = [group for group in groups if not group & own_seeds] + [joined]
    return len(groups)


def adjusted(p_shared: Array, p_own: Array, reach: int) -> Array:
    """Return p values (draws, comparisons) that control the family-wise error rate, also if variances differ by arm.

    Each is the larger of two: Holm's adjustment of the test with shared noise over all comparisons, and Bonferroni's
    adjustment of the test with the pair's own noise over the `reach` comparisons that one arm takes part in. The
    second is needed if one arm is much noisier than the others, because then the false claims are among its
    comparisons.
    """
    import numpy as np

    return np.maximum(holm(p_shared), np.minimum(1.0, reach * p_own))


def holm(p: Array) -> Array:
    """Return p values adjusted by Holm's method (1979) along the last axis."""
    import numpy as np

    order = np.argsort(p)
    factors = np.arange(p.shape[-1], 0, -1)
    steps = np.minimum(1.0, np.take_along_axis(p, order, -1) * factors)
    result = np.empty_like(p)
    np.put_along_axis(result, order, np.maximum.accumulate(steps, axis=-1), -1)
    return result


def two_sided(means: Array, variances: Array, seeds: Array, df: Array | int) -> Array:
    """Return the two-sided p of Student's t test. Without any noise, p is 0 for a difference and 1 for none."""
    import numpy as np
    from scipy import stats

    error = np.sqrt(variances / seeds)
    ratio = np.divide(np.abs(means), error, out=np.where(means == 0, 0.0, np.inf), where=error > 0)
    p: Array = np.multiply(2, stats.t.sf(ratio, df))
    return p


def wider(shared: Array, shared_df: int, own: Array, own_df: Array, seeds: Array, alpha: float) -> tuple[Array, Array]:
    """Return half the width of the wider of two intervals of each pair, and its degrees of freedom, (pairs,) each.

    Both intervals have the level 1 - alpha: one uses the shared noise, the other the pair's own noise.
    """
    import numpy as np
    from scipy import stats

    halves = [
        stats.t.isf(alpha / 2, df) * np.sqrt(variance[0] / seeds)
        for variance, df in ((shared, float(shared_df)), (own, own_df[0]))
    ]
    return np.maximum(*halves), np.where(halves[0] >= halves[1], float(shared_df), own_df[0])


def reach_of(comparisons: Sequence[tuple[str, str]]) -> int:
    """Return how many comparisons count in Bonferroni's correction of tests with a pair's own noise (see `adjusted`).

    It is the largest number of comparisons that one arm takes part in, and at least the smaller of two numbers: all
    comparisons, and all arms but one. Comparisons that share no arm therefore all count.
    """
    arms = {arm for pair in comparisons for arm in pair}
    most = max((sum(arm in pair for pair in comparisons) for arm in arms), default=1)
    return max(most, min(len(comparisons), len(arms) - 1))


def variances_of(scores: Sequence[Mapping[int, float]]) -> tuple[Array, Array, Array]:
    """Return mean and variance of the differences of every pair, (1, pairs) each, and the shared seeds (pairs,)."""
    import itertools

    import numpy as np

    gaps = [np.array([a[s] - b[s] for s in sorted(a.keys() & b.keys())]) for a, b in itertools.combinations(scores, 2)]
    means = np.array([[gap.mean() if len(gap) else np.nan for gap in gaps]])
    variances = np.array([[gap.var(ddof=1) if len(gap) > 1 else np.nan for gap in gaps]])
    return means, variances, np.array([float(len(gap)) for gap in gaps])


def moved_by_arithmetic(paired: float, seeds: int) -> float:
    """Return how far another kind of arithmetic moves an arm's mean over the same seeds: one standard deviation.

    `paired` is the standard deviation of paired differences, in points. Beside the effects of arm and seed, a run's
    score has the variance paired^2 / 2. ARITHMETIC_SHARE of it is rounding, which is drawn again on each kind, so that
    scores of one run on two kinds differ by twice that part. A difference of two arms moves sqrt(2) times as far.
    """
    return paired * math.sqrt(ARITHMETIC_SHARE / seeds)
