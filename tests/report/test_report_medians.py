"""The score of published results next to the mean: for each task, the median over fine-tuning seeds."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from made import GLUE, PROBES, study

from workbench.report import csv_tables, write
from workbench.report.comparison.boards import boards
from workbench.report.load import frames


def test_table_has_the_mean_over_tasks_of_medians_over_fine_tuning_seeds(tmp_path: Path) -> None:
    """One fine-tuning of each run fails to learn: this lowers the mean, but not the median."""
    tasks = list(PROBES)

    def truth(arm: str, steps: int, task: str, seed: int, tuning: int) -> float:
        return 20.0 if tuning == 1 else 60.0 + seed + tuning + 10 * tasks.index(task)

    found = frames.read(*study(tmp_path, truth, arms=("rtd",), tunings=3))
    (board,) = boards(found)
    row = next(row for row in csv_tables.table(board) if row["arm"] == "rtd")
    expected = [
        statistics.median([truth("rtd", 60, task, seed, tuning) for tuning in range(3)])
        for task in tasks
        for seed in range(3)
    ]
    assert row["median"] == pytest.approx(statistics.fmean(expected))
    assert row["score"] < row["median"] - 5


def test_a_report_of_medians_says_so_and_changes_every_number(tmp_path: Path) -> None:
    """One fine-tuning of each run fails: means fall by it and medians do not, in scores, gains, pairs and metrics."""

    def truth(arm: str, steps: int, task: str, seed: int, tuning: int) -> float:
        return 20.0 if tuning == 1 else 60.0 + 2 * seed + tuning + (arm == "rtd") * (3 + seed % 2)

    made = {
        statistic: study(tmp_path / statistic, truth, ("rtd", "bert-mlm"), tunings=3, tasks=tuple(GLUE),
                         record={"tasks": {"names": ["glue"], "statistic": statistic}})
        for statistic in ("mean", "median")
    }  # fmt: skip
    for statistic, of_three in (("mean", statistics.fmean), ("median", statistics.median)):
        found = frames.read(*made[statistic])
        (board,) = boards(found)
        assert board.statistic == found.statistic == statistic
        row = next(row for row in csv_tables.table(board) if row["arm"] == "rtd")
        each = [of_three([truth("rtd", 60, "RTE", seed, n) for n in range(3)]) for seed in range(3)]
        assert row["score"] == pytest.approx(statistics.fmean(each)) and row["statistic"] == statistic
        assert row["gain"] == pytest.approx((3 + 4 + 3) / 3 * (2 / 3 if statistic == "mean" else 1))
        (pair,) = csv_tables.pairs(board)
        assert pair["difference"] == row["gain"] and pair["statistic"] == statistic
        assert {each["statistic"] for each in csv_tables.tasks(board)} == {statistic}
        written = write(*made[statistic], tmp_path / f"{statistic} report").read_text(encoding="utf-8")
        assert f"the {statistic} over fine-tuning seeds of a run" in written
