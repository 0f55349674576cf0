"""Rows of the page's tables: every arm beside the base, the paper's numbers beside ours, and unequal compute marked."""

from __future__ import annotations

import statistics

import made
import pytest

from workbench.report.comparison.boards import Board, board
from workbench.report.page import table_rows

ARMS = ("rtd", "electra-15", "bert-mlm", "my_idea")
LEVELS = {"rtd": 70.0, "electra-15": 61.0, "bert-mlm": 65.0, "my_idea": 63.0, "untrained": 60.0}
PRICE = {"rtd": 1.5e9}


@pytest.fixture(scope="module")
def results() -> Board:
    """Two budgets; the base of the paper's table, bert-mlm, is neither the best nor the worst. rtd costs more."""
    found = made.in_memory(
        made.noisy(LEVELS),
        ARMS,
        4,
        budgets=(60, 120),
        price=lambda arm: dict.fromkeys(("paper", "paper-sparse", "matmul"), PRICE.get(arm, 1e9)),
    )
    made_of_it = board(found, "probes")
    assert made_of_it is not None
    return made_of_it


@pytest.mark.parametrize("budget", ["60 steps", "120 steps"])
def test_every_arm_is_compared_with_the_base_whether_it_is_better_or_worse(results: Board, budget: str) -> None:
    tables = table_rows.at_budget(results, budget)
    assert tables.base == "bert-mlm" and tables.budget == budget
    scores = {cell.arm: cell.scores for cell in results.at(budget)}
    found = {row.cell.arm: row.over_base for row in tables.rows}
    assert list(found) == sorted(ARMS, key=lambda arm: -statistics.fmean(scores[arm].values()))
    assert found.pop("bert-mlm") is None
    for arm, estimate in found.items():
        gaps = [scores[arm][seed] - scores["bert-mlm"][seed] for seed in range(4)]
        assert estimate is not None and estimate.mean == pytest.approx(statistics.fmean(gaps))
    assert [found[arm].mean > 0 for arm in ("rtd", "electra-15")] == [True, False]  # type: ignore[union-attr]


def test_the_papers_numbers_stand_beside_the_arms_that_it_has(results: Board) -> None:
    rows = {row.cell.arm: row for row in table_rows.at_budget(results, results.budget).rows}
    assert rows["my_idea"].published is None and rows["my_idea"].published_over is None
    assert rows["bert-mlm"].published == 82.2 and rows["bert-mlm"].published_over is None
    assert rows["rtd"].published == 85.0 and rows["rtd"].published_over == pytest.approx(85.0 - 82.2)


def test_arms_that_spent_more_than_the_least_are_marked(results: Board) -> None:
    rows = table_rows.at_budget(results, results.budget).rows
    assert [row.cell.arm for row in rows if row.spent_more] == ["rtd"]


def test_tasks_are_of_the_largest_budget_with_arms_in_the_order_of_the_table(results: Board) -> None:
    arms = [cell.arm for cell in results.at("120 steps")]
    rows = list(table_rows.by_task(results))
    assert [row.task for row in rows] == list(results.metrics) and all(row.counted for row in rows)
    for row in rows:
        cells = {c.arm: c for c in results.task_cells if c.task == row.task and c.budget == "120 steps"}
        assert [s and s.mean for s in row.scores] == [cells[arm].estimate.mean for arm in arms]
        assert row.untrained is not None and row.untrained.mean < 63
