"""The score of published results next to the mean: for each task, the median over fine-tuning seeds."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from made import PROBES, study

from workbench.report import csv_tables
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
