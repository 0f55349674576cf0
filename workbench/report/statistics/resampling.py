"""Checks that assume no normal distribution: permutation test, almost stochastic order, scatter over test examples.

A bootstrap over a handful of seeds is not offered: its intervals of 95 % cover the true value in 76 to 89 % of cases.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

FEWEST = 6  # pairs; with five, the smallest p of the permutation test is 1/16
EXACT = 16  # pairs up to which all 2^(n-1) sign flips are tried; with more, 2^15 random ones
PART = 4096  # sign flips that are drawn or used at a time, since n pairs take n * 32 KiB of them
BOOTSTRAP = 1000  # samples in `almost_order`
TAU = 0.2  # an order counts as almost stochastic below this (Ulmer et al. 2022; Dror et al. 2019 allow 0.5)


def flip_test(differences: Sequence[float]) -> float | None:
    """Return the two-sided p of the paired permutation test: the share of sign flips that reach the observed sum.

    All sign flips are tried for up to 16 pairs, and 2^15 random ones (always the same) for more. Returns None for
    fewer than six pairs.
    """
    return flip_tests([differences])[0]


def flip_tests(comparisons: Sequence[Sequence[float]]) -> list[float | None]:
    """Return the p of `flip_test` for each of several comparisons; those over equally many pairs are made together."""
    p_values: list[float | None] = [None] * len(comparisons)
    for n in {len(differences) for differences in comparisons if len(differences) >= FEWEST}:
        places = [place for place, differences in enumerate(comparisons) if len(differences) == n]
        for place, p in zip(places, _flipped([comparisons[place] for place in places]), strict=True):
            p_values[place] = float(p)
    return p_values


def _flipped(comparisons: Sequence[Sequence[float]]) -> Array:
    """Return the p of each comparison; all have equally many pairs."""
    import numpy as np

    values = np.array(comparisons).T  # (pairs, comparisons)
    n = len(values)
    signs = every_flip(n) if n <= EXACT else _random_flips(n)
    least = np.abs(values.sum(0)) - 1e-12 * np.abs(values).sum(0)
    counts = np.zeros(values.shape[1])
    for start in range(0, len(signs), PART):
        counts += (np.abs(signs[start : start + PART] @ values) >= least).sum(0)
    return counts / len(signs)


@functools.lru_cache(maxsize=1)
def _random_flips(n: int) -> npt.NDArray[np.int8]:
    """Return 2^15 random sign flips of n pairs (2^15, n), always the same; the first one changes no sign.

    They take n * 32 KiB, and are kept because most comparisons of an experiment are over equally many seeds.
    """
    import numpy as np

    random = np.random.default_rng(0)
    parts = [random.choice([-1, 1], (PART, n)).astype(np.int8) for _ in range(2 ** (EXACT - 1) // PART)]
    parts[0][0] = 1
    return np.concatenate(parts)


def every_flip(n: int) -> npt.NDArray[np.int64]:
    """Return all sign flips of n pairs (2^(n-1), n), the one without a flip first; by symmetry the first sign is +1."""
    import numpy as np

    codes = np.arange(2 ** (n - 1))[:, None]
    return np.hstack([np.ones_like(codes), 1 - 2 * ((codes >> np.arange(n - 1)) & 1)])


def almost_order(a: Sequence[float], b: Sequence[float], level: float = 0.95, draws: int = BOOTSTRAP) -> float | None:
    """Return an upper bound on how far `a` is from being stochastically larger than `b`, from 0 (always) to 1 (never).

    Almost stochastic order (Dror et al. 2019; del Barrio et al. 2018): the share of the squared distance between the
    two quantile functions on which b's is the larger, plus a margin for its scatter, estimated by a bootstrap of
    `draws` samples, so that the bound has the confidence `level`. Scores are not paired. Returns None if either side
    has fewer than two values, and if all values of both are the same number.
    """
    import numpy as np
    from scipy import stats

    x, y = np.sort(a), np.sort(b)
    if min(len(x), len(y)) < 2:
        return None
    violated = _violation(x[None], y[None])[0]
    if not math.isfinite(violated):
        return None
    random = np.random.default_rng(0)
    resampled = _violation(np.sort(random.choice(x, (draws, len(x)))), np.sort(random.choice(y, (draws, len(y)))))
    ratios = resampled[np.isfinite(resampled)]  # two equal samples have no ratio
    scatter = float(ratios.std()) if len(ratios) else 0.0  # the factor sqrt(nm/(n+m)) of the theory cancels
    return float(min(1.0, max(0.0, violated - scatter * stats.norm.ppf(1 - level))))


def _violation(x: Array, y: Array) -> Array:
    """Return the violation ratio (draws,) of sorted samples (draws, n) and (draws, m); NaN for two equal samples."""
    import numpy as np

    n, m = x.shape[1], y.shape[1]
    cuts = np.unique(np.concatenate([np.arange(n + 1) / n, np.arange(m + 1) / m]).round(12))
    width, middle = np.diff(cuts), (cuts[1:] + cuts[:-1]) / 2
    gap = x[:, (middle * n).astype(int)] - y[:, (middle * m).astype(int)]
    whole = (gap**2 * width).sum(axis=1)
    violated: Array = (np.minimum(gap, 0) ** 2 * width).sum(axis=1) / np.where(whole > 0, whole, np.nan)
    return violated


def drawn_again(differences: Array) -> float:
    """Return the standard deviation of the mean of differences (items,) if the items were drawn again.

    This is the standard deviation of a bootstrap over the items in closed form. NaN without items.
    """
    import numpy as np

    return float(np.std(differences)) / math.sqrt(len(differences)) if len(differences) else math.nan


def example_sd(accuracy: float, rows: float) -> float | None:
    """Return the standard deviation of an accuracy over other test sets of this size, both in points.

    This is the standard deviation of a bootstrap over the examples in closed form, since each is either right or
    wrong. Returns None if there are no rows or the accuracy is not between 0 and 100.
    """
    share = accuracy / 100
    if not (rows > 0 and 0 <= share <= 1):
        return None
    return 100 * math.sqrt(share * (1 - share) / rows)
