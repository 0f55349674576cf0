"""Noise of paired differences: what all arms share, and what two arms have of their own.

Everything works on arrays (draws, pairs) of variances of paired differences, so that a report and the simulations
behind its power use the same code. A draw is one whole experiment, the pairs are those of `numpy.triu_indices`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

LEAST_DF = 3  # degrees of freedom; with fewer, two or three nearly equal differences would look like certainty


@dataclass(frozen=True)
class PairNoise:
    """Variances of paired differences: `shared` (draws, 1) by all arms, `own` and `own_df` (draws, pairs) of two.

    `shared_df` are the residual degrees of freedom of the model score = arm + seed + residual.
    """

    shared: Array
    shared_df: int
    own: Array
    own_df: Array


def pair_noise(variances: Array, seeds: Array, arms: int, residual_df: int) -> PairNoise:
    """Return both kinds of noise from the sample variance of every pair's differences (draws, pairs).

    `seeds` (pairs,) is the number of seeds that two arms share. Pairs with fewer than two have no variance (NaN).
    """
    import numpy as np

    weights = np.maximum(seeds - 1, 0)
    shared = np.nansum(variances * weights, axis=1, keepdims=True) / max(1, weights.sum())
    own, own_df = _own(variances, weights, arms)
    return PairNoise(shared, residual_df, own, own_df)


def _own(variances: Array, df: Array, arms: int) -> tuple[Array, Array]:
    """Variance of each pair without the assumption that all arms scatter alike, and its degrees of freedom.

    From four arms on, the variance of one arm's residuals follows from all pairs that it is in (unbiased, whatever the
    other arms' variances are), and a pair has the sum of two of them. The degrees of freedom are Welch's and
    Satterthwaite's, less what the estimated effects of the seeds take, and never below those of the pair alone. With
    three arms, or where two arms share no two seeds, that is the pair's own sample variance.
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
    welch = np.divide(df * (one + two) ** 2, squares, out=np.ones_like(squares) * df, where=squares > 0)
    return one + two, np.maximum(df, welch * (arms - 2) / (arms - 1))


def residual_df(seeds_of_arms: Sequence[frozenset[int]]) -> int:
    """Residual degrees of freedom of score = arm + seed + residual, over the seeds that two arms or more have.

    That is (arms - 1) * (seeds - 1) where every arm has every seed.
    """
    import numpy as np

    seeds = sorted({s for mine in seeds_of_arms for s in mine if sum(s in other for other in seeds_of_arms) > 1})
    cells = [(arm, seeds.index(s)) for arm, mine in enumerate(seeds_of_arms) for s in mine if s in seeds]
    design = np.zeros((len(cells), len(seeds_of_arms) + len(seeds)))
    for row, (arm, seed) in enumerate(cells):
        design[row, arm] = design[row, len(seeds_of_arms) + seed] = 1
    return len(cells) - int(np.linalg.matrix_rank(design)) if cells else 0


def adjusted(p_shared: Array, p_own: Array, reach: int) -> Array:
    """Return p values (draws, comparisons) that keep the family-wise rate, whether or not all arms scatter alike.

    The larger of Holm's adjustment of the test on shared noise over all comparisons, and Bonferroni's adjustment of the
    test on a pair's own noise over the `reach` comparisons that one arm takes part in: where one arm is much noisier
    than the others, its comparisons are the ones in danger.
    """
    import numpy as np

    return np.maximum(holm(p_shared), np.minimum(1.0, reach * p_own))


def holm(p: Array) -> Array:
    """Return p values adjusted by Holm's method (1979) along the last axis."""
    import numpy as np

    order = np.argsort(p, axis=-1)
    factors = np.arange(p.shape[-1], 0, -1)
    steps = np.minimum(1.0, np.take_along_axis(p, order, -1) * factors)
    result = np.empty_like(p)
    np.put_along_axis(result, order, np.maximum.accumulate(steps, axis=-1), -1)
    return result


def two_sided(means: Array, variances: Array, seeds: Array, df: Array | int) -> Array:
    """Return the two-sided p of Student's t test; 0 for a difference without any noise, 1 where there is none."""
    import numpy as np
    from scipy import stats

    error = np.sqrt(variances / seeds)
    ratio = np.divide(np.abs(means), error, out=np.where(means == 0, 0.0, np.inf), where=error > 0)
    return np.asarray(2 * stats.t.sf(ratio, df), dtype=float)


def wider(
    shared: Array, shared_df: int, own: Array, own_df: Array, seeds: Array, alpha: float = 0.05
) -> tuple[Array, Array]:
    """Return half of the wider of both intervals of 1 - alpha, and the degrees of freedom of that one, of each pair."""
    import numpy as np
    from scipy import stats

    halves = [
        stats.t.isf(alpha / 2, df) * np.sqrt(variance[0] / seeds)
        for variance, df in ((shared, float(shared_df)), (own, own_df[0]))
    ]
    return np.maximum(*halves), np.where(halves[0] >= halves[1], float(shared_df), own_df[0])


def reach_of(comparisons: Sequence[tuple[str, str]]) -> int:
    """How many comparisons the arm in most of them takes part in, or all of them where no two share an arm."""
    arms = {arm for pair in comparisons for arm in pair}
    most = max((sum(arm in pair for pair in comparisons) for arm in arms), default=1)
    return max(most, min(len(comparisons), len(arms) - 1))


def variances_of(scores: Sequence[Mapping[int, float]]) -> tuple[Array, Array, Array]:
    """Mean and sample variance of every pair's differences (1, pairs), and how many seeds each has (pairs,)."""
    import itertools

    import numpy as np

    gaps = [np.array([a[s] - b[s] for s in sorted(a.keys() & b.keys())]) for a, b in itertools.combinations(scores, 2)]
    means = np.array([[gap.mean() if len(gap) else np.nan for gap in gaps]])
    variances = np.array([[gap.var(ddof=1) if len(gap) > 1 else np.nan for gap in gaps]])
    return means, variances, np.array([len(gap) for gap in gaps], dtype=float)
