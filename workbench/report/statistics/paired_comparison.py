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
the two that belong to 1 and 2, so it holds its level in both cases, and no claim stands beside an interval that
contains zero. Simulated rates: docs/decisions/0009.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from workbench.report.statistics.noise import (
    LEAST_DF,
    adjusted,
    pair_noise,
    reach_of,
    residual_df,
    two_sided,
    variances_of,
    wider,
)
from workbench.report.statistics.resampling import almost_order, flip_tests

LEVEL = 0.95
ALPHA = 0.05
Scores = Mapping[int, float]  # pre-training seed -> score
Verdict = Literal["ahead", "behind", "open"]


@dataclass(frozen=True)
class Estimate:
    """The mean of `n` values with their sample standard deviation `sd` and the interval `mean` +/- `half`.

    `df` are the degrees of freedom of the interval; `half` and `df` are None if there is no interval.
    """

    mean: float
    half: float | None
    sd: float | None
    n: int
    df: float | None = None

    @property
    def low(self) -> float | None:
        """Return the lower end of the interval; None if there is no interval."""
        return None if self.half is None else self.mean - self.half

    @property
    def high(self) -> float | None:
        """Return the upper end of the interval; None if there is no interval."""
        return None if self.half is None else self.mean + self.half


@dataclass(frozen=True)
class Difference:
    """The mean difference a minus b of two arms over the seeds that both have, in points.

    `p` is the larger of the two p values of the rule, not adjusted for other comparisons; it is below 5 % if the
    interval leaves out zero. It is None with fewer than three degrees of freedom, and without any noise.
    """

    estimate: Estimate
    seeds: tuple[int, ...]
    p: float | None


@dataclass(frozen=True)
class Compared:
    """One comparison of a family, by the rule in the docstring of this module.

    `adjusted` is the adjusted p, and `flip` the p of the permutation test (from six seeds on). `order` is the almost
    stochastic order if it was requested (smaller is clearer). `noise` is the standard deviation of paired
    differences, estimated from all arms, and `df` its degrees of freedom. `declared` is false for a pair that an
    experiment with declared comparisons did not name: such a pair is exploratory, and nothing is claimed about it.
    """

    difference: Difference
    adjusted: float | None
    flip: float | None
    order: float | None
    noise: float | None
    df: int
    declared: bool = True

    @property
    def estimate(self) -> Estimate:
        """Return the mean difference with its interval."""
        return self.difference.estimate

    @property
    def verdict(self) -> Verdict:
        """Return what can be said of the first arm; "open" does not mean that both arms are equal."""
        sure = self.adjusted is not None and self.adjusted < ALPHA and (self.flip is None or self.flip < ALPHA)
        if not sure:
            return "open"
        return "ahead" if self.estimate.mean > 0 else "behind"

    @property
    def claimed(self) -> bool:
        """Return whether a report may say that the first arm is ahead of the second."""
        return self.declared and self.verdict == "ahead"


def mean_and_sd(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and the sample standard deviation (divided by n - 1); None for that of fewer than two values."""
    if not values:
        return math.nan, None
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


@functools.cache
def t_quantile(level: float, n: float) -> float:
    """Return half the width of a two-sided t interval of this level over n values, in standard errors."""
    from scipy import stats

    return float(stats.t.ppf(0.5 + level / 2, n - 1))


def t_interval(values: Iterable[float], level: float = LEVEL) -> Estimate:
    """Return Student's t interval for the mean; a single value has no interval."""
    values = list(values)
    mean, sd = mean_and_sd(values)
    if sd is None:
        return Estimate(mean, None, None, len(values))
    half = t_quantile(level, len(values)) * sd / math.sqrt(len(values))
    return Estimate(mean, half, sd, len(values), len(values) - 1)


def pairwise(
    arms: Mapping[str, Scores],
    order: bool = False,
    family: Sequence[tuple[str, str]] | None = None,
    share: float = 1.0,
) -> dict[tuple[str, str], Compared]:
    """Compare every two arms, the higher mean first, or only the pairs of `family`; correct p for all of them.

    Noise is estimated from all `arms`, also from those that no pair of the family contains. `share` is the share of
    the error rate that this look at the experiment may spend (see `group_sequential`): every p is divided by it, and
    the intervals are wider to match.
    """
    ordered = by_mean(arms)
    comparisons = list(itertools.combinations(ordered, 2)) if family is None else list(family)
    if not comparisons:
        return {}
    tests = _tests(arms, ordered, comparisons, share)
    tested = [pair for pair in comparisons if tests.adjusted[pair] is not None]
    flips = dict(zip(tested, flip_tests([_gaps(arms, a, b) for a, b in tested]), strict=True))
    return {
        (a, b): Compared(
            tests.differences[a, b],
            tests.adjusted[a, b],
            flips.get((a, b)),
            almost_order(list(arms[a].values()), list(arms[b].values())) if order else None,
            tests.noise,
            tests.df,
        )
        for a, b in comparisons
    }


def by_mean(arms: Mapping[str, Scores]) -> list[str]:
    """Return the names of the arms, the highest mean first."""
    return sorted(arms, key=lambda arm: -mean_and_sd(list(arms[arm].values()))[0])


@dataclass(frozen=True)
class _Tests:
    differences: dict[tuple[str, str], Difference]
    adjusted: dict[tuple[str, str], float | None]
    noise: float | None
    df: int


def _tests(arms: Mapping[str, Scores], ordered: list[str], comparisons: list[tuple[str, str]], share: float) -> _Tests:
    """Return both t tests of each comparison, and the adjusted p values."""
    import numpy as np

    df = residual_df([frozenset(arms[arm]) for arm in ordered])
    means, variances, counts = variances_of([arms[arm] for arm in ordered])
    noise = pair_noise(variances, counts, len(ordered), df)
    place = {frozenset(pair): i for i, pair in enumerate(itertools.combinations(ordered, 2))}
    columns = np.array([place[frozenset(pair)] for pair in comparisons])
    enough = df >= LEAST_DF and float(noise.shared[0, 0]) > _rounding(arms) ** 2
    testable = np.array([enough and counts[c] > 1 for c in columns])
    p_shared, p_own = np.ones((2, 1, len(columns)))
    half, freedom = np.zeros((2, len(columns)))
    if testable.any():
        used = columns[testable]
        own, own_df = noise.own[:, used], noise.own_df[:, used]
        p_shared[:, testable] = np.minimum(
            1.0, two_sided(means[:, used], noise.shared, counts[used], noise.shared_df) / share
        )
        p_own[:, testable] = np.minimum(1.0, two_sided(means[:, used], own, counts[used], own_df) / share)
        half[testable], freedom[testable] = wider(
            noise.shared, noise.shared_df, own, own_df, counts[used], ALPHA * share
        )
    corrected, raw = adjusted(p_shared, p_own, reach_of(comparisons))[0], np.maximum(p_shared, p_own)[0]
    return _Tests(
        {
            pair: _difference(arms, pair, (half[i], freedom[i], raw[i]) if testable[i] else None)
            for i, pair in enumerate(comparisons)
        },
        {pair: float(corrected[i]) if testable[i] else None for i, pair in enumerate(comparisons)},
        math.sqrt(float(noise.shared[0, 0])) if df > 0 else None,
        df,
    )


def _rounding(arms: Mapping[str, Scores]) -> float:
    """Return the standard deviation up to which scores may differ by rounding alone."""
    return 1e-12 * max(abs(score) for scores in arms.values() for score in scores.values())


def _gaps(arms: Mapping[str, Scores], a: str, b: str) -> list[float]:
    return [arms[a][s] - arms[b][s] for s in sorted(arms[a].keys() & arms[b].keys())]


def _difference(
    arms: Mapping[str, Scores], pair: tuple[str, str], test: tuple[float, float, float] | None
) -> Difference:
    """Return one paired difference.

    `test` holds half the width of its interval, the degrees of freedom and p; it is None if there was no test.
    """
    seeds = tuple(sorted(arms[pair[0]].keys() & arms[pair[1]].keys()))
    mean, sd = mean_and_sd(_gaps(arms, *pair))
    if test is None:
        return Difference(Estimate(mean, None, sd, len(seeds)), seeds, None)
    half, df, p = map(float, test)
    return Difference(Estimate(mean, half, sd, len(seeds), df), seeds, p)


def pooled_sd(groups: Iterable[Sequence[float]]) -> float | None:
    """Return the standard deviation within groups, each around its own mean; None if no group has two values."""
    squares, freedom = 0.0, 0
    for group in groups:
        _, sd = mean_and_sd(group)
        if sd is not None:
            squares += sd**2 * (len(group) - 1)
            freedom += len(group) - 1
    return math.sqrt(squares / freedom) if freedom else None
