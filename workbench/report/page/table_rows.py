"""The rows of a section's tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from workbench.report.comparison.boards import NO_BUDGET, UNTRAINED, Board, Cell, Pair
from workbench.report.comparison.doubts import doubted
from workbench.report.comparison.spending import unequal
from workbench.report.csv_tables import verdict
from workbench.report.statistics.paired_comparison import Estimate


@dataclass(frozen=True)
class ScoreRow:
    """One arm at a budget, as a row of the table of scores.

    `over_base` is its paired difference from the base arm, and `published_over` the same difference in the paper.
    `spent_more` is true if it is not at equal compute with the arm that spent least.
    """

    cell: Cell
    spent_more: bool
    over_base: Estimate | None
    published: float | None
    published_over: float | None


@dataclass(frozen=True)
class PairRow:
    """Two arms at a budget, the verdict on the first, and the label under which their comparison was declared."""

    pair: Pair
    verdict: str
    label: str


@dataclass(frozen=True)
class BudgetTables:
    """The tables of scores, spending and pairs at one budget; `base` is the arm that the others are compared with."""

    budget: str
    base: str
    rows: tuple[ScoreRow, ...]
    pairs: tuple[PairRow, ...]


@dataclass(frozen=True)
class TaskRow:
    """One task at the largest budget: `counted` is true if it is in the mean; `scores` has an entry for every arm."""

    task: str
    metric: str
    counted: bool
    baselines: tuple[float | None, ...]
    untrained: Estimate | None
    scores: tuple[Estimate | None, ...]


def at_budget(board: Board, budget: str) -> BudgetTables:
    """Return the tables of one budget."""
    cells, reference = board.at(budget), base(board, budget)
    more, shaky = unequal(board, budget), {cell.arm for cell in doubted(board, budget)}
    rows = [_row(board, cell, cell.arm in more, over(board, budget, cell.arm, reference)) for cell in cells]
    pairs = [
        PairRow(pair, _verdict(board, pair, pair.a in shaky), board.labels.get(frozenset((pair.a, pair.b)), ""))
        for pair in board.pairs[budget]
    ]
    return BudgetTables(budget, reference, tuple(rows), tuple(pairs))


def base(board: Board, budget: str) -> str:
    """Return the arm that the others are compared with: that of the paper if it is here, else the best."""
    arms = [cell.arm for cell in board.at(budget)]
    return board.published.base if board.published and board.published.base in arms else arms[0]


def over(board: Board, budget: str, arm: str, other: str) -> Estimate | None:
    """Return the paired difference of an arm and another, in either order of their means; None for the arm itself."""
    pairs = {(pair.a, pair.b): pair.difference.estimate for pair in board.pairs[budget]}
    if arm == other:
        return None
    if (arm, other) in pairs:
        return pairs[arm, other]
    reverse = pairs[other, arm]
    return replace(reverse, mean=-reverse.mean)


def _row(board: Board, cell: Cell, spent_more: bool, over_base: Estimate | None) -> ScoreRow:
    """Return the row of an arm, with the published score and difference if there are any."""
    column = board.published
    published = column.scores.get(cell.arm) if column else None
    if column is None or published is None or cell.arm == column.base:
        return ScoreRow(cell, spent_more, over_base, published, None)
    return ScoreRow(cell, spent_more, over_base, published, published - column.scores[column.base])


def _verdict(board: Board, pair: Pair, doubted: bool) -> str:
    """Return the verdict on the first arm of a pair, with a reference to the warnings if the arm is doubted."""
    if pair.compared.claimed and doubted:
        return f"{verdict(board, pair)}, but see “Before you rely on it”"
    return verdict(board, pair)


def by_task(board: Board) -> Iterator[TaskRow]:
    """Yield a row for every task at the largest budget, those that are in the mean first."""
    estimates = {(c.task, c.budget, c.arm): c.estimate for c in board.task_cells}
    arms = [cell.arm for cell in board.at(board.budget)]
    for task, metric in board.metrics.items():
        yield TaskRow(
            task,
            metric,
            task in board.tasks,
            tuple(values.get(task) for values in board.baselines.values()),
            estimates.get((task, NO_BUDGET, UNTRAINED)),
            tuple(estimates.get((task, board.budget, arm)) for arm in arms),
        )
