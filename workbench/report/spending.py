"""Who spent more than whom at one budget."""

from __future__ import annotations

from workbench.report.curves import CONVENTIONS
from workbench.report.tables import Board

TOLERANCE = 0.01  # steps are whole numbers, so equal compute is equal to a step's worth


def main_convention(budget: str) -> str:
    """The one that a budget was counted under; the paper's for budgets in steps, tokens or seconds."""
    return next((c for c in CONVENTIONS if f"({c})" in budget), "paper")


def ratios(board: Board, budget: str, convention: str | None = None) -> dict[str, float]:
    """What each arm spent at a budget over the one that spent least, best arm first; empty where that is nothing."""
    column = f"flops_{convention or main_convention(budget)}"
    spent = {cell.arm: cell.spent[column] for cell in board.at(budget)}
    least = min(spent.values(), default=0.0)
    return {arm: amount / least for arm, amount in spent.items()} if least > 0 else {}


def unequal(board: Board, budget: str) -> dict[str, float]:
    """The arms that spent more than the least under the convention of the budget, and how many times as much."""
    return {arm: ratio for arm, ratio in ratios(board, budget).items() if ratio > 1 + TOLERANCE}
