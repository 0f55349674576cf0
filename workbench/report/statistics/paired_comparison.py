"""The rule by which a report says that one arm is ahead of another, and the intervals that go with it.

Scores are in points (0 to 100). The unit of evidence is the pre-training run: the scores of its fine-tuning seeds are
averaged first, so an interval holds for a new pre-training seed.

A family is a set of comparisons between arms, by default every pair of k arms. Over n seeds that all arms share:

1. Shared noise: the model score = arm + seed + residual, with one residual variance for all arms, has
   (k - 1) * (n - 1) degrees of freedom. Student's t test with this noise is adjusted by Holm's method over the family.
2. Own noise: a t test uses the residual variances of the two arms alone, or the sample variance of their differences
   if that is larger, with degrees of freedom by Welch and Satterthwaite. Its p is multiplied by the number of
   comparisons that an arm takes part in. This controls the rate of false claims if arms have unequal variances, or if
   some arms are correlated. The larger of 1 and 2 is the adjusted p.
3. From six seeds on, the permutation test of the pair must have p below 5 % as well.

The report says "ahead" if the adjusted p is below 5 % and test 3, if it is made, agrees. With fewer than three
residual degrees of freedom, nothing is claimed and no interval is given. The interval of a difference is the wider of
the intervals of 1 and 2, so it holds its level in both cases, and no claim stands beside an interval that contains
zero. Simulated rates: docs/decisions/0009.

Functions of noise work on arrays (draws, pairs) of variances of paired differences, so that a report and the
simulations of its power use the same code. A draw is one whole experiment; pairs are in the order of
`numpy.triu_indices`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from workbench.report.statistics.intervals import ALPHA, Array, Estimate, Scores, mean_and_sd, t_above

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
    """Return both kinds of noise from the sample variances of every pair's differences (draws, pairs).

    `seeds` (pairs,) are the seeds that both arms of a pair have; a pair with fewer than two has NaN.
    """
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
    """The noise of two arms alone: the standard deviation of their differences.

    `df_of_seed` are the degrees of freedom that each seed after the first one adds to it.
    """

    sd: float
    df_of_seed: float


def own_noises(arms: Mapping[str, Mapping[int, float]]) -> dict[frozenset[str], OwnNoise]:
    """Return the own noise of every two arms that share two seeds; `arms` maps an arm to its scores by seed."""
    _, variances, counts = variances_of(list(arms.values()))
    own, own_df = _own(variances, np.maximum(counts - 1, 0), len(arms))
    return {
        frozenset(pair): OwnNoise(float(own[0, i]) ** 0.5, float(own_df[0, i] / (counts[i] - 1)))
        for i, pair in enumerate(itertools.combinations(arms, 2))
        if counts[i] > 1
    }


def residual_df(seeds_of_arms: Sequence[frozenset[int]]) -> int:
    """Return the residual degrees of freedom of score = arm + seed + residual.

    This is (arms - 1) * (seeds - 1) if every arm has every seed. A seed that only one arm has adds none.
    """
    present = [own_seeds for own_seeds in seeds_of_arms if own_seeds]
    # The rank of the design is the number of effects less one for each group of arms that share no seed with others:
    # it is the incidence matrix of a bipartite graph. Computing it by linear algebra takes the cube of their number.
    groups: list[frozenset[int]] = []
    for own_seeds in present:
        joined = own_seeds.union(*(group for group in groups if group & own_seeds))
        groups = [*(group for group in groups if not group & own_seeds), joined]
    return sum(map(len, present)) - len(present) - sum(map(len, groups)) + len(groups)


def adjusted(p_shared: Array, p_own: Array, reach: int) -> Array:
    """Return p values (draws, comparisons) that control the family-wise error rate, also if variances differ by arm.

    Each is the larger of two: Holm's adjustment of the test with shared noise, and Bonferroni's adjustment of the test
    with the pair's own noise over the `reach` comparisons of one arm. If one arm is much noisier than the others, the
    false claims are among its comparisons, which only the second corrects.
    """
    return np.maximum(holm(p_shared), np.minimum(1.0, reach * p_own))


def holm(p: Array) -> Array:
    """Return p values adjusted by Holm's method (1979) along the last axis."""
    order = np.argsort(p)
    factors = np.arange(p.shape[-1], 0, -1)
    steps = np.minimum(1.0, np.take_along_axis(p, order, -1) * factors)
    result = np.empty_like(p)
    np.put_along_axis(result, order, np.maximum.accumulate(steps, axis=-1), -1)
    return result


def two_sided(means: Array, variances: Array, seeds: Array, df: Array | int) -> Array:
    """Return the two-sided p of Student's t test. Without any noise, p is 0 for a difference and 1 for none."""
    from scipy.special import stdtr

    error = np.sqrt(variances / seeds)
    ratio = np.divide(np.abs(means), error, out=np.where(means == 0, 0.0, np.inf), where=error > 0)
    p: Array = np.multiply(2, stdtr(df, -ratio))
    return p


def wider(shared: Array, shared_df: int, own: Array, own_df: Array, seeds: Array, alpha: float) -> tuple[Array, Array]:
    """Return half the width and the df, (pairs,) each, of the wider of the intervals by shared and by own noise."""
    halves = [
        t_above(alpha / 2, df) * np.sqrt(variance[0] / seeds)
        for variance, df in ((shared, float(shared_df)), (own, own_df[0]))
    ]
    return np.maximum(*halves), np.where(halves[0] >= halves[1], float(shared_df), own_df[0])


def reach_of(comparisons: Sequence[tuple[Any, Any]]) -> int:
    """Return how many comparisons count in Bonferroni's correction of tests with a pair's own noise (see `adjusted`).

    It is the largest number of comparisons of one arm, and at least the smaller of two numbers: all comparisons, and
    all arms but one. Comparisons that share no arm therefore all count.
    """
    counts = Counter(arm for pair in comparisons for arm in pair)
    return max(1, *counts.values(), min(len(comparisons), len(counts) - 1))


def variances_of(scores: Sequence[Mapping[int, float]]) -> tuple[Array, Array, Array]:
    """Return mean and variance of the differences of every pair, (1, pairs) each, and the shared seeds (pairs,)."""
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


Verdict = Literal["ahead", "behind", "open"]


@dataclass(frozen=True)
class Compared:
    """One comparison of a family, by the rule in the docstring of this module.

    `estimate` is the mean difference of two arms over the `seeds` that both have, in points. `p` is the larger of the
    two p values of the rule, not adjusted for other comparisons; it is below 5 % if the interval leaves out zero, and
    None with fewer than three degrees of freedom, and without any noise. `adjusted` is the adjusted p, and `flip` the p
    of the permutation test (from six seeds on). `order` is the almost stochastic order if it was requested (smaller is
    clearer). `noise` is the standard deviation of paired differences, estimated from all arms, and `df` its degrees of
    freedom. `declared` is false for a pair that an experiment with declared comparisons did not name: such a pair is
    exploratory, and nothing is claimed about it.
    """

    estimate: Estimate
    seeds: tuple[int, ...]
    p: float | None
    adjusted: float | None
    flip: float | None
    order: float | None
    noise: float | None
    df: int
    declared: bool = True

    @property
    def verdict(self) -> Verdict:
        """What can be said of the first arm; "open" does not mean that both arms are equal."""
        sure = self.adjusted is not None and self.adjusted < ALPHA and (self.flip is None or self.flip < ALPHA)
        if not sure:
            return "open"
        return "ahead" if self.estimate.mean > 0 else "behind"

    @property
    def claimed(self) -> bool:
        """Whether a report may say that the first arm is ahead of the second."""
        return self.declared and self.verdict == "ahead"


def pairwise(
    arms: Mapping[str, Scores], order: bool = False, family: Sequence[tuple[str, str]] | None = None, share: float = 1.0
) -> dict[tuple[str, str], Compared]:
    """Compare every two arms, the higher mean first, or only the pairs of `family`; correct p for all of them.

    Noise is estimated from all `arms`, also from those that no pair of the family contains. `share` is the share of
    the error rate that this look at the experiment may spend (see `group_sequential`): every p is divided by it, and
    the intervals are wider to match. `order` adds the almost stochastic order.
    """
    ordered = sorted(arms, key=lambda arm: -mean_and_sd(list(arms[arm].values()))[0])
    comparisons = list(itertools.combinations(ordered, 2)) if family is None else list(family)
    if not comparisons:
        return {}
    df = residual_df([frozenset(arms[arm]) for arm in ordered])
    means, variances, counts = variances_of([arms[arm] for arm in ordered])
    noise = pair_noise(variances, counts, len(ordered), df)
    place = {frozenset(pair): i for i, pair in enumerate(itertools.combinations(ordered, 2))}
    columns = np.array([place[frozenset(pair)] for pair in comparisons])
    rounding = 1e-12 * max((abs(score) for scores in arms.values() for score in scores.values()), default=0.0)
    enough = df >= LEAST_DF and float(noise.shared[0, 0]) > rounding**2
    tests = _t_tests(means, noise, counts, columns, (counts[columns] > 1) & enough, reach_of(comparisons), share)
    shared = [tuple(sorted(arms[a].keys() & arms[b].keys())) for a, b in comparisons]
    gaps = [[arms[a][s] - arms[b][s] for s in seeds] for (a, b), seeds in zip(comparisons, shared, strict=True)]
    flips = flip_tests([each if test[0] is not None else [] for each, test in zip(gaps, tests, strict=True)])
    results = {}
    for i, (a, b) in enumerate(comparisons):
        (mean, sd), (half, freedom, p, corrected) = mean_and_sd(gaps[i]), tests[i]
        results[a, b] = Compared(
            Estimate(mean, half, sd, len(gaps[i]), freedom), shared[i], p, corrected, flips[i],
            almost_order(list(arms[a].values()), list(arms[b].values())) if order else None,
            math.sqrt(float(noise.shared[0, 0])) if df > 0 else None, df,
        )  # fmt: skip
    return results


def _t_tests(
    means: Array, noise: PairNoise, counts: Array, columns: Array, testable: Array, reach: int, share: float
) -> list[tuple[float | None, ...]]:
    """Return half width, df, p and corrected p of the comparisons in these `columns`, None if not `testable`."""
    used = columns[testable]
    own, own_df = noise.own[:, used], noise.own_df[:, used]
    p_shared, p_own = np.ones((2, 1, len(columns)))
    for p, variance, df in ((p_shared, noise.shared, noise.shared_df), (p_own, own, own_df)):
        p[:, testable] = np.minimum(1.0, two_sided(means[:, used], variance, counts[used], df) / share)
    half, freedom = np.zeros((2, len(columns)))
    half[testable], freedom[testable] = wider(noise.shared, noise.shared_df, own, own_df, counts[used], ALPHA * share)
    values = zip(half, freedom, np.maximum(p_shared, p_own)[0], adjusted(p_shared, p_own, reach)[0], strict=True)
    return [tuple(map(float, row)) if test else (None,) * 4 for test, row in zip(testable, values, strict=True)]


FEWEST_PAIRS = 6  # pairs; with five, the smallest p of the permutation test is 1/16
MOST_EXACT = 16  # pairs up to which all 2^(n-1) sign flips are tried; with more, 2^15 random ones
FLIPS_AT_A_TIME = 4096  # sign flips that are drawn or used at a time, since n pairs take n * 32 KiB of them
BOOTSTRAP = 1000  # samples in `almost_order`


def flip_tests(comparisons: Sequence[Sequence[float]]) -> list[float | None]:
    """Return the two-sided p of the paired permutation test for each of several comparisons.

    It is the share of sign flips that reach the observed sum. All sign flips are tried for up to 16 pairs, and 2^15
    random ones (always the same) for more; it is None for fewer than six pairs.
    """
    p_values: list[float | None] = [None] * len(comparisons)
    for n in {len(gaps) for gaps in comparisons if len(gaps) >= FEWEST_PAIRS}:
        places = [place for place, gaps in enumerate(comparisons) if len(gaps) == n]
        values = np.array([comparisons[place] for place in places]).T  # (pairs, comparisons)
        signs = every_flip(n) if n <= MOST_EXACT else _random_flips(n)
        least = np.abs(values.sum(0)) - 1e-12 * np.abs(values).sum(0)
        counts = np.zeros(len(places))
        for start in range(0, len(signs), FLIPS_AT_A_TIME):
            counts += (np.abs(signs[start : start + FLIPS_AT_A_TIME] @ values) >= least).sum(0)
        for place, p in zip(places, counts / len(signs), strict=True):
            p_values[place] = float(p)
    return p_values


@functools.lru_cache(maxsize=1)
def _random_flips(n: int) -> npt.NDArray[np.int8]:
    """Return 2^15 random sign flips of n pairs (2^15, n), always the same; the first one changes no sign."""
    random = np.random.default_rng(0)
    parts = [
        random.choice([-1, 1], (FLIPS_AT_A_TIME, n)).astype(np.int8)
        for _ in range(2 ** (MOST_EXACT - 1) // FLIPS_AT_A_TIME)
    ]
    parts[0][0] = 1
    return np.concatenate(parts)


def every_flip(n: int) -> npt.NDArray[np.int64]:
    """Return all sign flips of n pairs (2^(n-1), n), the one without a flip first; by symmetry the first sign is +1."""
    codes = np.arange(2 ** (n - 1))[:, None]
    return np.hstack([np.ones_like(codes), 1 - 2 * ((codes >> np.arange(n - 1)) & 1)])


def almost_order(a: Sequence[float], b: Sequence[float], level: float = 0.95, draws: int = BOOTSTRAP) -> float | None:
    """Return an upper bound on how far `a` is from being stochastically larger than `b`, from 0 (always) to 1 (never).

    Almost stochastic order (Dror et al. 2019; del Barrio et al. 2018): the share of the squared distance between the
    two quantile functions on which b's is the larger, plus a margin for its scatter, estimated by a bootstrap of
    `draws` samples, so that the bound has the confidence `level`. Scores are not paired. Returns None if either side
    has fewer than two values, and if all values of both are the same number.
    """
    from scipy.special import ndtri

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
    return float(min(1.0, max(0.0, violated - scatter * ndtri(1 - level))))


def _violation(x: Array, y: Array) -> Array:
    """Return the violation ratio (draws,) of sorted samples (draws, n) and (draws, m); NaN for two equal samples."""
    n, m = x.shape[1], y.shape[1]
    cuts = np.unique(np.concatenate([np.arange(n + 1) / n, np.arange(m + 1) / m]).round(12))
    width, middle = np.diff(cuts), (cuts[1:] + cuts[:-1]) / 2
    gap = x[:, (middle * n).astype(int)] - y[:, (middle * m).astype(int)]
    whole = (gap**2 * width).sum(axis=1)
    violated: Array = (np.minimum(gap, 0) ** 2 * width).sum(axis=1) / np.where(whole > 0, whole, np.nan)
    return violated
