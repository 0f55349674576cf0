"""Intervals of differences for new test items as well as for new seeds, where scores keep the result of each item.

The intervals of `paired_comparison` hold for new pre-training seeds on the same test items. Another sample of items
changes all seeds alike, so no number of seeds shows it. Here the variance of a mean difference is that over seeds plus
the variance of a bootstrap over the items, in which all arms and seeds get the same items. Noise of single items is in
both, so the interval is somewhat too wide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.report.statistics.paired_comparison import Difference, t_quantile
from workbench.report.statistics.resampling import drawn_again

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

FEW = 2000  # items below which their choice may matter as much as the seeds
VALUES = {"+": 100.0, "=": 50.0, "-": 0.0}
Signs = Mapping[str, Mapping[str, Sequence[str]]]  # run id -> task -> for each fine-tuning seed, a sign for each item


@dataclass(frozen=True)
class ItemInterval:
    """The interval of a difference for new seeds and new test items, in points, and the number of items."""

    items: int
    low: float
    high: float


def points_of_items(signs: Signs, run_id: str, tasks: Sequence[str], scores: Mapping[str, float]) -> list[Array] | None:
    """Return for each task the points (items,) of a run, the mean over its fine-tuning seeds.

    None if a task has no items, or if their mean is not the score of the run on the task, such as a mean over groups of
    unequal size.
    """
    import numpy as np

    each = []
    for task in tasks:
        rows = list(signs.get(run_id, {}).get(task, ()))
        if not rows or len({len(row) for row in rows}) != 1 or not rows[0]:
            return None
        points = np.array([[VALUES[sign] for sign in row] for row in rows]).mean(axis=0)
        if abs(points.mean() - scores[task]) > 1e-6:
            return None
        each.append(points)
    return each


def interval_of(
    difference: Difference, runs: tuple[Mapping[int, str], Mapping[int, str]], points: Mapping[str, Sequence[Array]],
    level: float,
) -> ItemInterval | None:  # fmt: skip
    """Return the interval of one difference whose own has this level in %; None without an interval or items.

    `runs` are the runs of both arms by seed, and `points` the points of the items by run (`points_of_items`).
    """
    e = difference.estimate
    pairs = [(runs[0][seed], runs[1][seed]) for seed in difference.seeds]
    if e.half is None or e.df is None or not all(run in points for pair in pairs for run in pair):
        return None
    if len({tuple(map(len, points[run])) for pair in pairs for run in pair}) > 1:
        return None
    by_seed = [[a - b for a, b in zip(points[one], points[two], strict=True)] for one, two in pairs]
    tasks = [sum(differences) / len(by_seed) for differences in zip(*by_seed, strict=True)]
    sd = math.hypot(*(drawn_again(differences) for differences in tasks)) / len(tasks)
    half = math.hypot(e.half, t_quantile(level / 100, e.df + 1) * sd)
    return ItemInterval(sum(len(differences) for differences in tasks), e.mean - half, e.mean + half)
