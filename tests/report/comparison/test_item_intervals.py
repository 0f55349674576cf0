"""Intervals for new test items as well as new seeds: their parts, their coverage, and when there are none."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import made
import numpy as np
import pandas as pd
import pytest

from workbench.report import csv_tables
from workbench.report.comparison.boards import Board, board
from workbench.report.comparison.verdict import of_board
from workbench.report.load.frames import Frames
from workbench.report.page.facts import covers
from workbench.report.statistics.paired_comparison import t_quantile
from workbench.report.statistics.resampling import drawn_again

RIGHT = {"rtd": 0.75, "bert-mlm": 0.6, "untrained": 0.5}


def study(draw: random.Random, items: int = 300, seeds: int = 5, tasks: Sequence[str] = ("t",)) -> Frames:
    """Arms that are right on items of a difficulty of their own, in all seeds alike, with noise of each seed."""
    frames = made.in_memory(lambda *_: 0.0, ("rtd", "bert-mlm"), seeds, tunings=1)
    signs: dict[str, dict[str, list[str]]] = {}
    rows: list[dict[str, Any]] = []
    level = {arm: {t: [draw.gauss(0, 0.3) for _ in range(items)] for t in tasks} for arm in RIGHT}
    for run in frames.rows("runs"):
        for task in tasks:
            shift = draw.gauss(0, 0.03)
            right = [draw.random() < RIGHT[run["arm"]] + shift + hard for hard in level[run["arm"]][task]]
            signs.setdefault(run["run_id"], {})[task] = ["".join("-+"[one] for one in right)]
            score = 100 * sum(right) / items
            rows.append({"run_id": run["run_id"], "suite": "linear", "task": task, "metric": "accuracy", "seed": 0,
                         "value": score, "test_rows": items})  # fmt: skip
    return replace(frames, scores=pd.DataFrame(rows), items=signs)


def made_board(frames: Frames) -> Board:
    found = board(frames, "linear")
    assert found is not None
    return found


def test_the_variance_is_that_of_seeds_and_of_a_bootstrap_over_items() -> None:
    """The closed form agrees with items drawn again, the same ones for both arms and all seeds."""
    frames = study(random.Random(1), tasks=("t", "u"))
    found = made_board(frames)
    (pair,) = found.pairs[found.budget]
    (one,) = found.items[found.budget].values()
    e, random_items = pair.difference.estimate, np.random.default_rng(0)
    points = {
        (arm, task): np.mean(
            [[100.0 * (sign == "+") for sign in frames.items[f"{arm}-60-s{s}"][task][0]] for s in range(5)], axis=0
        )
        for arm in ("rtd", "bert-mlm") for task in ("t", "u")
    }  # fmt: skip
    again = np.zeros(4000)
    for task in ("t", "u"):
        gaps = points["rtd", task] - points["bert-mlm", task]
        again += gaps[random_items.integers(0, 300, (4000, 300))].mean(axis=1) / 2
    assert e.half is not None and e.df is not None
    half = np.hypot(e.half, t_quantile(0.95, e.df + 1) * again.std())
    assert one.items == 600 and (one.high - one.low) / 2 == pytest.approx(half, rel=0.03)
    assert (one.high + one.low) / 2 == pytest.approx(e.mean) and one.high - one.low > 2 * e.half
    (row,) = csv_tables.pairs(found)
    assert (row["items"], row["low_items"], row["high_items"]) == (600, one.low, one.high)
    verdict = of_board(found, "objective")
    assert (verdict.items, verdict.low_items, verdict.high_items) == (600, one.low, one.high)
    assert f"With the 600 test items drawn again as well, the difference of rtd and bert-mlm is {e.mean:.1f}" in covers(
        found
    )


def test_it_covers_the_difference_on_other_items_where_the_interval_over_seeds_does_not() -> None:
    narrow = wide = 0
    for number in range(200):
        found = made_board(study(random.Random(number), items=100, seeds=4))
        (pair,) = found.pairs[found.budget]
        (one,) = found.items[found.budget].values()
        low, high = pair.difference.estimate.low, pair.difference.estimate.high
        assert low is not None and high is not None
        expected = (pair.a == "rtd" and 15.0) or -15.0  # in expectation over items and seeds, before clipping
        narrow += low <= expected <= high
        wide += one.low <= expected <= one.high
    assert wide >= 185 > narrow


@pytest.mark.parametrize("lost", ["run", "length", "mean"])
def test_without_the_items_of_a_run_there_is_no_such_interval(lost: str) -> None:
    frames = study(random.Random(2))
    signs = {run: dict(tasks) for run, tasks in frames.items.items()}
    if lost == "run":
        del signs["rtd-60-s1"]
    else:
        (old,) = signs["rtd-60-s1"]["t"]
        signs["rtd-60-s1"]["t"] = [old + old] if lost == "length" else ["+" * len(old)]
    found = made_board(replace(frames, items=signs))
    (row,) = csv_tables.pairs(found)
    assert not found.items[found.budget] and "items" not in row and "drawn again" not in covers(found)


def test_no_items_have_no_scatter() -> None:
    assert np.isnan(drawn_again(np.array([]))) and drawn_again(np.array([1.0, 1.0])) == 0.0
