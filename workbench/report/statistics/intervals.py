"""Intervals: Student's t over pre-training seeds, and wider ones for new test items as well.

The intervals of `paired_comparison` hold for new pre-training seeds on the same test items. Another sample of items
changes all seeds alike, so no number of seeds shows it. Where scores keep the result of each item, the variance of a
mean difference over seeds is added to the variance of a bootstrap over the items, in which all arms and seeds get the
same items. Noise of single items is in both, so that interval is somewhat too wide. A bootstrap over a handful of
seeds is not offered: its intervals of 95 % cover the true value in 76 to 89 % of cases.
"""

from __future__ import annotations

import functools
import math
import statistics as plain
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
LEVEL = 0.95
ALPHA = 0.05
Scores = Mapping[int, float]  # pre-training seed -> score


@dataclass(frozen=True)
class Estimate:
    """The mean of `n` values, their sample standard deviation, and the interval `mean` +/- `half` if there is one.

    `df` are the degrees of freedom of the interval.
    """

    mean: float
    half: float | None
    sd: float | None
    n: int
    df: float | None = None

    @property
    def low(self) -> float | None:
        """The lower end of the interval; None without one."""
        return None if self.half is None else self.mean - self.half

    @property
    def high(self) -> float | None:
        """The upper end of the interval; None without one."""
        return None if self.half is None else self.mean + self.half


def mean_and_sd(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and the sample standard deviation (divided by n - 1); NaN and None of too few values."""
    if not values:
        return math.nan, None
    mean = math.fsum(values) / len(values)
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)) if len(values) > 1 else None
    return mean, sd


def t_above(share: float | Array, df: float | Array) -> Array:
    """Return the value that Student's t with `df` degrees of freedom exceeds with probability `share`; inf for 0."""
    from scipy.special import stdtrit  # scipy.stats has the same, and needs 60 MB more

    return np.where(np.asarray(share) > 0, -stdtrit(df, share), np.inf)


@functools.cache
def t_quantile(level: float, n: float) -> float:
    """Return half the width of a two-sided t interval of this level over n values, in standard errors."""
    from scipy.special import stdtrit

    return float(stdtrit(n - 1, 0.5 + level / 2))


def t_interval(values: Iterable[float], level: float = LEVEL) -> Estimate:
    """Return Student's t interval for the mean; a single value has no interval."""
    values = list(values)
    mean, sd = mean_and_sd(values)
    if sd is None:
        return Estimate(mean, None, None, len(values))
    half = t_quantile(level, len(values)) * sd / math.sqrt(len(values))
    return Estimate(mean, half, sd, len(values), len(values) - 1)


def pooled_sd(groups: Iterable[Sequence[float]]) -> float | None:
    """Return the standard deviation within groups, each around its own mean; None if no group has two values."""
    sds = [(sd, len(group) - 1) for group in groups if (sd := mean_and_sd(group)[1]) is not None]
    freedom = sum(df for _, df in sds)
    return math.sqrt(sum(sd**2 * df for sd, df in sds) / freedom) if freedom else None


# How the scores of a run with several fine-tuning seeds are averaged (`tasks.statistic`); GLUE publishes medians.
STATISTICS: Mapping[str, Callable[[Iterable[float]], float]] = {"mean": plain.fmean, "median": plain.median}
Tuned = Mapping[str, Mapping[str, Mapping[int, float]]]  # run -> task -> fine-tuning seed -> headline value


def score_of(tuned: Tuned, run_id: str, task: str, statistic: str) -> float:
    """Return the score of a run on a task: the mean over its fine-tuning seeds, or another of STATISTICS."""
    return STATISTICS[statistic](tuned[run_id][task].values())


def example_sd(accuracy: float, rows: float) -> float | None:
    """Return the standard deviation of an accuracy over other test sets of this size, both in points.

    Each example is right or wrong, so this is a bootstrap over the examples in closed form. None without rows, or if
    the accuracy is not between 0 and 100.
    """
    share = accuracy / 100
    return 100 * math.sqrt(share * (1 - share) / rows) if rows > 0 and 0 <= share <= 1 else None


FEW_ITEMS = 2000  # items below which their choice may matter as much as the seeds
POINTS_OF_SIGN = {"+": 100.0, "=": 50.0, "-": 0.0}
Signs = Mapping[str, Mapping[str, Sequence[str]]]  # run id -> task -> for each fine-tuning seed, a sign for each item


@dataclass(frozen=True)
class ItemInterval:
    """The interval of a difference for new seeds and new test items, in points, and the number of items."""

    items: int
    low: float
    high: float


def points_of_items(signs: Signs, run_id: str, tasks: Sequence[str], scores: Mapping[str, float]) -> list[Array] | None:
    """Return for each task the points (items,) of a run, the mean over its fine-tuning seeds.

    None if a task has no items, or if their mean is not the run's score, as for a mean over groups of unequal size.
    """
    each = []
    for task in tasks:
        rows = list(signs.get(run_id, {}).get(task, ()))
        if not rows or len({len(row) for row in rows}) != 1 or not rows[0]:
            return None
        points = np.array([[POINTS_OF_SIGN[sign] for sign in row] for row in rows]).mean(axis=0)
        if abs(points.mean() - scores[task]) > 1e-6:
            return None
        each.append(points)
    return each


def item_interval(
    e: Estimate, pairs: Sequence[tuple[str, str]], points: Mapping[str, Sequence[Array]], level: float
) -> ItemInterval | None:
    """Return the interval of a difference for new seeds and new items; None without an interval over seeds or items.

    `pairs` are the runs of both arms at each seed, `points` the points of the items by run (`points_of_items`), and
    `level` is in %. Drawing items again is a bootstrap, here in closed form.
    """
    if e.half is None or e.df is None or not all(run in points for pair in pairs for run in pair):
        return None
    if len({tuple(map(len, points[run])) for pair in pairs for run in pair}) > 1:
        return None
    by_seed = [[a - b for a, b in zip(points[one], points[two], strict=True)] for one, two in pairs]
    tasks = [sum(differences) / len(by_seed) for differences in zip(*by_seed, strict=True)]
    sd = math.hypot(*(float(np.std(items)) / math.sqrt(len(items)) for items in tasks)) / len(tasks)
    half = math.hypot(e.half, t_quantile(level / 100, e.df + 1) * sd)
    return ItemInterval(sum(map(len, tasks)), e.mean - half, e.mean + half)
