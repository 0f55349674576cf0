"""The rule by which a report says that one arm is ahead of another, and the intervals that go with it.

Scores are in points (0 to 100). The unit of evidence is the pre-training run: fine-tuning seeds are averaged within a
run before anything here sees them, so an interval holds for a fresh pre-training seed.

A family is a number of comparisons between arms, by default every two of k arms. Over n seeds that all arms share:

1. Shared noise: the model score = arm + seed + residual, with one residual variance for all arms, has
   (k - 1) * (n - 1) degrees of freedom. Student's t with that noise, adjusted by Holm's method over the family.
2. Own noise: the residual variances of the two arms alone, with degrees of freedom by Welch and Satterthwaite. Its p is
   multiplied by the number of comparisons an arm takes part in. This keeps the rate of false claims where arms do not
   scatter alike; the larger of 1 and 2 is the adjusted p.
3. From six seeds, the permutation test of the pair has p below 5 % as well.

"Ahead" is said where the adjusted p is below 5 % and 3 does not object. Below three residual degrees of freedom nothing
is claimed and no interval given. The interval of a difference is the wider of those by 1 and 2, so that it covers in
both cases, and a claim never stands beside an interval that holds zero. Simulated rates: docs/decisions/0009.
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
from workbench.report.statistics.resampling import almost_order, flip_test

LEVEL = 0.95
ALPHA = 0.05
Scores = Mapping[int, float]  # pre-training seed -> score
Verdict = Literal["ahead", "behind", "open"]


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval `mean` +/- `half` and the degrees of freedom behind it; `half` is None without one."""

    mean: float
    half: float | None
    sd: float | None
    n: int
    df: float | None = None

    @property
    def low(self) -> float | None:
        return None if self.half is None else self.mean - self.half

    @property
    def high(self) -> float | None:
        return None if self.half is None else self.mean + self.half


@dataclass(frozen=True)
class Difference:
    """The difference a minus b of two arms over the seeds they share, in points.

    `p` is the larger of the two p values of the rule, not adjusted for other comparisons: below 5 % where the interval
    leaves out zero. It is None where there are fewer than three degrees of freedom or no noise at all.
    """

    estimate: Estimate
    seeds: tuple[int, ...]
    p: float | None


@dataclass(frozen=True)
class Compared:
    """One comparison of a family: see the module for the rule.

    `adjusted` is the adjusted p, `flip` the p of the permutation test (from six seeds), `order` the almost stochastic
    order (where it was asked for; smaller is clearer), `noise` the standard deviation of paired differences shared by
    all arms and `df` its degrees of freedom. `declared` is false for a pair that an experiment which declared its
    comparisons did not name: such a pair is exploratory, and nothing is claimed of it.
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
        return self.difference.estimate

    @property
    def verdict(self) -> Verdict:
        """What may be said of the first arm; "open" is never "equal"."""
        sure = self.adjusted is not None and self.adjusted < ALPHA and (self.flip is None or self.flip < ALPHA)
        if not sure:
            return "open"
        return "ahead" if self.estimate.mean > 0 else "behind"

    @property
    def claimed(self) -> bool:
        """Whether "a is ahead of b" may be said."""
        return self.declared and self.verdict == "ahead"


def mean_and_sd(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and the sample standard deviation (n - 1 below); the latter is None for fewer than two values."""
    if not values:
        return math.nan, None
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


@functools.cache
def t_quantile(level: float, n: float) -> float:
    """How many standard errors a two-sided interval of `level` over n values (n - 1 degrees of freedom) reaches."""
    from scipy import stats

    return float(stats.t.ppf(0.5 + level / 2, n - 1))


def t_interval(values: Iterable[float], level: float = LEVEL) -> Estimate:
    """Return Student's t interval for the mean; one value has none."""
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
    """Compare every two arms, the higher mean first, or the declared `family` of comparisons, adjusted for all of them.

    Noise is estimated from all `arms`, also those that no comparison of the family names. `share` is how much of the
    error rate this look at the experiment may spend (see `group_sequential`): every p is divided by it, and intervals
    are as wide as that takes.
    """
    ordered = by_mean(arms)
    comparisons = list(itertools.combinations(ordered, 2)) if family is None else list(family)
    if not comparisons:
        return {}
    tests = _tests(arms, ordered, comparisons, share)
    return {
        (a, b): Compared(
            tests.differences[a, b],
            tests.adjusted[a, b],
            flip_test(_gaps(arms, a, b)) if tests.adjusted[a, b] is not None else None,
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
    """Return both t tests of each comparison and their adjusted p."""
    import numpy as np

    df = residual_df([frozenset(arms[arm]) for arm in ordered])
    means, variances, counts = variances_of([arms[arm] for arm in ordered])
    noise = pair_noise(variances, counts, len(ordered), df)
    place = {frozenset(pair): i for i, pair in enumerate(itertools.combinations(ordered, 2))}
    columns = np.array([place[frozenset(pair)] for pair in comparisons])
    known = df >= LEAST_DF and float(noise.shared[0, 0]) > _rounding(arms) ** 2
    found = np.array([known and counts[c] > 1 for c in columns])
    p_shared, p_own = np.ones((2, 1, len(columns)))
    half, freedom = np.zeros((2, len(columns)))
    if found.any():
        used = columns[found]
        own, own_df = noise.own[:, used], noise.own_df[:, used]
        p_shared[:, found] = np.minimum(
            1.0, two_sided(means[:, used], noise.shared, counts[used], noise.shared_df) / share
        )
        p_own[:, found] = np.minimum(1.0, two_sided(means[:, used], own, counts[used], own_df) / share)
        half[found], freedom[found] = wider(noise.shared, noise.shared_df, own, own_df, counts[used], ALPHA * share)
    total, raw = adjusted(p_shared, p_own, reach_of(comparisons))[0], np.maximum(p_shared, p_own)[0]
    return _Tests(
        {
            pair: _difference(arms, pair, (half[i], freedom[i], raw[i]) if found[i] else None)
            for i, pair in enumerate(comparisons)
        },
        {pair: float(total[i]) if found[i] else None for i, pair in enumerate(comparisons)},
        math.sqrt(float(noise.shared[0, 0])) if df > 0 else None,
        df,
    )


def _rounding(arms: Mapping[str, Scores]) -> float:
    """Return the standard deviation up to which scores differ by rounding alone."""
    return 1e-12 * max(abs(score) for scores in arms.values() for score in scores.values())


def _gaps(arms: Mapping[str, Scores], a: str, b: str) -> list[float]:
    return [arms[a][s] - arms[b][s] for s in sorted(arms[a].keys() & arms[b].keys())]


def _difference(
    arms: Mapping[str, Scores], pair: tuple[str, str], found: tuple[float, float, float] | None
) -> Difference:
    """One paired difference; `found` is half its interval, the degrees of freedom and p, or None without noise."""
    seeds = tuple(sorted(arms[pair[0]].keys() & arms[pair[1]].keys()))
    mean, sd = mean_and_sd(_gaps(arms, *pair))
    if found is None:
        return Difference(Estimate(mean, None, sd, len(seeds)), seeds, None)
    half, df, p = map(float, found)
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
