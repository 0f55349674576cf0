"""What a handful of seeds can carry: Student intervals, paired differences, and how many seeds would be enough.

Scores are in points (0 to 100). The unit of evidence is the pre-training run: fine-tuning seeds are averaged within a
run before anything here sees them, so an interval holds for a fresh pre-training seed. `levels` has the same for whole
tables, `resampling` what leans on no bell curve.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from workbench.report.resampling import almost_order, flip_test

LEVEL = 0.95
POWER = 0.8
MOST_SEEDS = 1000  # beyond this a design is not "more seeds" but another experiment
Key = TypeVar("Key")
Verdict = Literal["ahead", "behind", "open"]


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval `mean` +/- `half`; `half` and `sd` are None when n < 2. All NaN-free unless n = 0."""

    mean: float
    half: float | None
    sd: float | None
    n: int

    @property
    def low(self) -> float | None:
        return None if self.half is None else self.mean - self.half

    @property
    def high(self) -> float | None:
        return None if self.half is None else self.mean + self.half


@dataclass(frozen=True)
class Difference:
    """Of two arms over the seeds they share, in points: a minus b. `p` is two-sided, of the paired t test.

    `p` is None without an interval: for one seed, and where every paired difference is the same number, which says
    more about rounding than about the arms.
    """

    estimate: Estimate
    seeds: tuple[int, ...]
    p: float | None

    @property
    def verdict(self) -> Verdict:
        """What the interval alone carries; "open" is never "equal"."""
        half = self.estimate.half
        if half is None or self.p is None or abs(self.estimate.mean) <= half:
            return "open"
        return "ahead" if self.estimate.mean > 0 else "behind"


@dataclass(frozen=True)
class Compared:
    """Two arms, the better mean first. `holm` is p adjusted for every pair of the table.

    `flip` is the p of the permutation test (from six pairs on), `order` the almost stochastic order (where asked for;
    smaller is clearer).
    """

    difference: Difference
    holm: float | None
    flip: float | None
    order: float | None

    @property
    def claimed(self) -> bool:
        """Whether "a is ahead of b" may be said.

        The paired interval leaves out zero, the t test stays below 5 % after Holm's correction, because the leader was
        picked by looking, and the permutation test, where there are seeds enough for one, doesn't object.
        """
        sure = self.holm is not None and self.holm < 1 - LEVEL
        return sure and self.difference.verdict == "ahead" and (self.flip is None or self.flip < 1 - LEVEL)


def mean_and_sd(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (n - 1 below); the latter None for fewer than two values."""
    if not values:
        return math.nan, None
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


@functools.cache
def t_quantile(level: float, n: int) -> float:
    """How many standard errors a two-sided interval of `level` over n values reaches."""
    from scipy import stats

    return float(stats.t.ppf(0.5 + level / 2, n - 1))


def t_interval(values: Iterable[float], level: float = LEVEL) -> Estimate:
    """Student's t interval for the mean; no interval for one value, because there is none."""
    values = list(values)
    mean, sd = mean_and_sd(values)
    half = None if sd is None else t_quantile(level, len(values)) * sd / math.sqrt(len(values))
    return Estimate(mean, half, sd, len(values))


def paired_difference(a: Mapping[int, float], b: Mapping[int, float], level: float = LEVEL) -> Difference:
    """a minus b by seed, over the seeds that both have: what varies with the seed alone cancels."""
    seeds = tuple(sorted(a.keys() & b.keys()))
    estimate = t_interval([a[s] - b[s] for s in seeds], level)
    scale = max((abs(v) for s in seeds for v in (a[s], b[s])), default=0.0)
    if estimate.sd is None or estimate.sd <= 1e-12 * scale:
        return Difference(estimate, seeds, None)
    from scipy import stats

    t = abs(estimate.mean) / (estimate.sd / math.sqrt(estimate.n))
    return Difference(estimate, seeds, float(2 * stats.t.sf(t, estimate.n - 1)))


def holm(p: Mapping[Key, float]) -> dict[Key, float]:
    """Adjusted p values (Holm 1979): the chance of any false claim among all of them stays below the level."""
    ordered = sorted(p.items(), key=lambda item: item[1])
    adjusted: dict[Key, float] = {}
    running = 0.0
    for rank, (key, value) in enumerate(ordered):
        running = max(running, min(1.0, (len(ordered) - rank) * value))
        adjusted[key] = running
    return adjusted


def pairwise(
    arms: Mapping[str, Mapping[int, float]], level: float = LEVEL, order: bool = False
) -> dict[tuple[str, str], Compared]:
    """Every two arms (scores by pre-training seed), the higher mean first, corrected for all of them together."""
    ordered = sorted(arms, key=lambda arm: -mean_and_sd(list(arms[arm].values()))[0])
    found = {(a, b): paired_difference(arms[a], arms[b], level) for a, b in itertools.combinations(ordered, 2)}
    adjusted = holm({key: d.p for key, d in found.items() if d.p is not None})
    return {
        (a, b): Compared(
            d,
            adjusted.get((a, b)),
            flip_test([arms[a][s] - arms[b][s] for s in d.seeds]) if d.p is not None else None,
            almost_order(list(arms[a].values()), list(arms[b].values())) if order else None,
        )
        for (a, b), d in found.items()
    }


def power(gap: float, sd: float, n: int, level: float = LEVEL) -> float:
    """Chance that n seeds show a true gap, when paired differences have this standard deviation (noncentral t)."""
    from scipy import stats

    shift = abs(gap) / sd * math.sqrt(n)
    reach = t_quantile(level, n)
    found = float(stats.nct.sf(reach, n - 1, shift))
    # nct loses its footing (NaN) far out in the tail, where the answer is a plain yes
    return found if math.isfinite(found) else float(shift > reach)


def needed_seeds(gap: float, sd: float, level: float = LEVEL, chance: float = POWER) -> int | None:
    """Least number of paired seeds that shows a gap of this size with the given chance.

    None beyond 1,000, and where there is no gap or no noise was seen.
    """
    if gap == 0 or sd == 0 or not math.isfinite(gap) or not math.isfinite(sd):
        return None
    low, high = 2, MOST_SEEDS
    if power(gap, sd, high, level) < chance:
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if power(gap, sd, middle, level) >= chance else (middle + 1, high)
    return low


def smallest_gap(sd: float, n: int, level: float = LEVEL, chance: float = POWER) -> float | None:
    """The true gap that n paired seeds would have shown with the given chance.

    None for n < 2, and where no noise was seen: equal differences are no evidence that there is none.
    """
    if n < 2 or sd == 0:
        return None
    low, high = 0.0, sd
    while power(high, sd, n, level) < chance:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle, sd, n, level) >= chance else (middle, high)
    return high


def pooled_sd(groups: Iterable[Sequence[float]]) -> float | None:
    """Standard deviation within groups, each around its own mean; None if no group has two values."""
    squares, freedom = 0.0, 0
    for group in groups:
        _, sd = mean_and_sd(group)
        if sd is not None:
            squares += sd**2 * (len(group) - 1)
            freedom += len(group) - 1
    return math.sqrt(squares / freedom) if freedom else None
