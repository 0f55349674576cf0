"""Who spent more than whom at one budget, and whether a comparison may be called one at equal compute."""

from __future__ import annotations

import math
import statistics as plain

from workbench.report.comparison.boards import Board
from workbench.report.load.frames import Frames
from workbench.report.load.run_files import FINISHED
from workbench.report.words import listing
from workbench.spec.experiment import EQUAL_WITHIN, asked

TOLERANCE = EQUAL_WITHIN


def ratios(board: Board, budget: str, convention: str | None = None) -> dict[str, float]:
    """What each arm spent at a budget over the one that spent least, best arm first; empty where that is nothing."""
    column = f"flops_{convention or board.convention(budget)}"
    spent = {cell.arm: cell.spent[column] for cell in board.at(budget)}
    least = min(spent.values(), default=0.0)
    return {arm: amount / least for arm, amount in spent.items()} if least > 0 else {}


def unequal(board: Board, budget: str) -> dict[str, float]:
    """The arms that spent more than the least under the convention of the budget, and how many times as much."""
    return {arm: ratio for arm, ratio in ratios(board, budget).items() if ratio > 1 + TOLERANCE}


def by_budget(frames: Frames) -> dict[str, dict[str, float]]:
    """Return budget -> arm -> mean FLOPs of its finished runs, under the convention of the budget."""
    found: dict[str, dict[str, list[float]]] = {}
    for run in frames.rows("runs"):
        if run["role"] == "arm" and run["state"] in FINISHED:
            spent = float(run[f"flops_{run['convention']}"])
            found.setdefault(run["budget"], {}).setdefault(run["arm"], []).append(spent)
    return {budget: {arm: plain.fmean(spent) for arm, spent in arms.items()} for budget, arms in found.items()}


def largest_ratios(frames: Frames) -> dict[str, float]:
    """Return the largest FLOPs of an arm over the smallest for each budget that several arms had."""
    several = {budget: list(arms.values()) for budget, arms in by_budget(frames).items() if len(arms) > 1}
    return {b: max(spent) / min(spent) if min(spent) > 0 else math.inf for b, spent in several.items()}


def question(frames: Frames) -> str:
    """Return the question of the experiment, which says "at equal compute" only where the arms spent the same.

    Where they did not, it says so, and what they got the same of.
    """
    found, text = largest_ratios(frames), str(frames.record.get("question") or "")
    apart = [budget for budget, ratio in found.items() if not ratio <= 1 + TOLERANCE]
    plainly = asked(text, bool(found) and not apart)
    if apart:
        whole = ", in whole steps" if any("FLOPs" in budget for budget in apart) else ""
        return f"{plainly} (not at equal compute: every run got {listing(apart)}{whole})"
    if not found and len({arm for arms in by_budget(frames).values() for arm in arms}) > 1:
        return f"{plainly} (not at equal compute: no two arms had one budget)"
    return plainly


def told(frames: Frames) -> str:
    """Return a sentence fragment on how far apart the arms' FLOPs are, and by which convention; "" for one arm."""
    found = largest_ratios(frames)
    if not found:
        return ""
    arms = [run for run in frames.rows("runs") if run["role"] == "arm" and run["state"] in FINISHED]
    conventions = listing(sorted({str(run["convention"]) for run in arms}))
    worst = max(found.values())
    if worst > 1 + TOLERANCE:
        return f"not equal: FLOPs ({conventions}) of one arm are up to {worst:.2f} times those of another"
    return f"equal: the arms\u2019 FLOPs ({conventions}) differ by less than {100 * (worst - 1) + 0.05:.1f} %"
