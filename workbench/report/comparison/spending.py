"""What each arm spent at one budget, and whether a comparison may be called one at equal compute."""

from __future__ import annotations

import math
import statistics as plain

from workbench.report.comparison.boards import Board
from workbench.report.formatting import listing
from workbench.report.load.frames import Frames
from workbench.report.load.run_files import FINISHED
from workbench.spec.experiment import EQUAL_WITHIN, question_text
from workbench.spec.parts import CONVENTIONS

TOLERANCE = EQUAL_WITHIN


def ratios(board: Board, budget: str, convention: str | None = None) -> dict[str, float]:
    """Return what each arm spent at a budget, divided by the smallest amount, the best arm first.

    Empty if the smallest amount is zero.
    """
    column = f"flops_{convention or board.convention(budget)}"
    spent = {cell.arm: cell.spent[column] for cell in board.at(budget)}
    least = min(spent.values(), default=0.0)
    return {arm: amount / least for arm, amount in spent.items()} if least > 0 else {}


def unequal(board: Board, budget: str) -> dict[str, float]:
    """Return the arms that spent more than the least under the budget's convention, and how many times as much."""
    return {arm: ratio for arm, ratio in ratios(board, budget).items() if ratio > 1 + TOLERANCE}


def by_budget(frames: Frames) -> dict[str, dict[str, float]]:
    """Return {budget: {arm: mean FLOPs of its finished runs}}, under the convention of each budget."""
    flops_of: dict[str, dict[str, list[float]]] = {}
    for run in frames.rows("runs"):
        if run["role"] == "arm" and run["state"] in FINISHED:
            spent = float(run[f"flops_{run['convention']}"])
            flops_of.setdefault(run["budget"], {}).setdefault(run["arm"], []).append(spent)
    return {budget: {arm: plain.fmean(spent) for arm, spent in arms.items()} for budget, arms in flops_of.items()}


def largest_ratios(frames: Frames) -> dict[str, float]:
    """Return the largest FLOPs of an arm over the smallest, for each budget with several arms."""
    several = {budget: list(arms.values()) for budget, arms in by_budget(frames).items() if len(arms) > 1}
    return {b: max(spent) / min(spent) if min(spent) > 0 else math.inf for b, spent in several.items()}


def question(frames: Frames) -> str:
    """Return the question of the experiment, with "at equal compute" only if the arms spent the same.

    If they did not, the question names the unit of which they got the same amount.
    """
    largest, text = largest_ratios(frames), str(frames.record.get("question") or "")
    apart = [budget for budget, ratio in largest.items() if not ratio <= 1 + TOLERANCE]
    wording = question_text(text, bool(largest) and not apart)
    if apart:
        rounding = ", in whole steps" if any("FLOPs" in budget for budget in apart) else ""
        return f"{wording} (not at equal compute: every run got {listing(apart)}{rounding})"
    if not largest and len({arm for arms in by_budget(frames).values() for arm in arms}) > 1:
        return f"{wording} (not at equal compute: no two arms had one budget)"
    return wording


def counted(frames: Frames) -> str:
    """Return the convention by which the budgets of all arms are counted; "paper" if they differ or are not known."""
    conventions = {str(run["convention"]) for run in frames.rows("runs") if run["role"] == "arm"}
    return conventions.pop() if len(conventions) == 1 and conventions <= set(CONVENTIONS) else "paper"


def compute_text(frames: Frames) -> str:
    """Return a clause on how much the FLOPs of the arms differ, and under which convention; "" for a single arm."""
    largest = largest_ratios(frames)
    if not largest:
        return ""
    arms = [run for run in frames.rows("runs") if run["role"] == "arm" and run["state"] in FINISHED]
    conventions = listing(sorted({str(run["convention"]) for run in arms}))
    worst = max(largest.values())
    if worst > 1 + TOLERANCE:
        return f"not equal: FLOPs ({conventions}) of one arm are up to {worst:.2f} times those of another"
    return f"equal: the arms\u2019 FLOPs ({conventions}) differ by less than {100 * (worst - 1) + 0.05:.1f} %"
