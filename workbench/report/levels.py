"""The same statistics on whole tables: from fine-tunings to pre-training seeds to intervals and comparisons.

A table of scores has the columns `arm`, `seed` (of pre-training), `tuning` (seed of fine-tuning) and `score`, in
points; a table of runs the first two and `score`. Nothing here reads a file, and no table is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from workbench.report.statistics import LEVEL, pairwise

if TYPE_CHECKING:
    import pandas as pd


def by_run(scores: pd.DataFrame, statistic: Literal["mean", "median"] = "mean") -> pd.DataFrame:
    """A row a pre-training seed: its fine-tunings averaged, or their median taken, before anything else is done.

    Fine-tunings of one encoder are not independent evidence about its arm; treated so, intervals come out too narrow.
    """
    groups = scores.groupby(["arm", "seed"], sort=False)["score"]
    return groups.agg(score=statistic, tunings="count").reset_index()


def intervals(runs: pd.DataFrame, level: float = LEVEL) -> pd.DataFrame:
    """Student t intervals over pre-training seeds, a row an arm: n, mean, sd, low and high (NaN for one seed)."""
    import numpy as np
    from scipy import stats

    found = runs.groupby("arm", sort=False)["score"].agg(n="count", mean="mean", sd="std").reset_index()
    half = stats.t.ppf(0.5 + level / 2, found["n"] - 1) * found["sd"] / np.sqrt(found["n"])
    return found.assign(low=found["mean"] - half, high=found["mean"] + half)


def differences(runs: pd.DataFrame, level: float = LEVEL, order: bool = False) -> pd.DataFrame:
    """Every two arms, the better mean first, paired by seed: see `statistics.Compared` for the columns."""
    import pandas as pd

    arms = {
        str(arm): {int(s): float(v) for s, v in zip(part["seed"], part["score"], strict=True)}
        for arm, part in runs.groupby("arm", sort=False)
    }
    rows = [
        {
            "a": a, "b": b, "n": c.difference.estimate.n, "difference": c.difference.estimate.mean,
            "low": c.difference.estimate.low, "high": c.difference.estimate.high, "p": c.difference.p,
            "p_holm": c.holm, "p_flip": c.flip, "order": c.order, "ahead": c.claimed,
        }
        for (a, b), c in pairwise(arms, level, order).items()
    ]  # fmt: skip
    columns = ["a", "b", "n", "difference", "low", "high", "p", "p_holm", "p_flip", "order", "ahead"]
    return pd.DataFrame(rows, columns=columns)
