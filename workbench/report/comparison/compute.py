"""Scores as functions of what was spent, read off at one amount for all arms.

Everything is done for each pre-training seed by itself and compared over seeds afterwards, so that intervals and pairs
mean what they mean everywhere else. `spent` is a column of the runs: FLOPs under a convention, tokens, steps, seconds.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping

from workbench.report.comparison import declared
from workbench.report.comparison.boards import Board
from workbench.report.comparison.declared import Family
from workbench.report.load.frames import Frames
from workbench.report.statistics.paired_comparison import Compared

Curve = tuple[tuple[float, float], ...]  # (spent, score), by what was spent
Curves = Mapping[str, Mapping[int, Curve]]  # arm -> seed -> its curve

NEAR = 1.01  # amounts closer than this are one amount: steps are whole numbers


def curves(board: Board, frames: Frames, spent: str) -> Curves:
    """Every arm and seed; a budget that was spent nothing of has no place."""
    runs = frames.by_id()
    found: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for cell in board.cells:
        for run in cell.runs:
            amount = float(runs[run][spent])
            if amount > 0:
                seeds = found.setdefault(cell.arm, {})
                seeds.setdefault(int(runs[run]["seed"]), []).append((amount, board.run_scores[run]))
    return {arm: {s: tuple(sorted(points)) for s, points in seeds.items()} for arm, seeds in found.items()}


def common(found: Curves) -> float | None:
    """The largest amount that every arm reached; None without arms."""
    ends = [max(curve[-1][0] for curve in seeds.values()) for seeds in found.values()]
    return min(ends) if ends else None


def read_off(curve: Curve, amount: float) -> float | None:
    """The score at an amount, on straight lines over the logarithm of what was spent; None outside of the curve."""
    if not curve[0][0] / NEAR <= amount <= curve[-1][0] * NEAR:
        return None
    amount = min(max(amount, curve[0][0]), curve[-1][0])
    for (x, y), (far, other) in itertools.pairwise(curve):
        if x <= amount <= far:
            share = math.log(amount / x) / math.log(far / x) if far > x else 0.0
            return y + share * (other - y)
    return curve[-1][1]


def at(found: Curves, amount: float) -> dict[str, dict[int, float]]:
    """Arm -> seed -> score at this amount, for the arms that can be read off there."""
    scores = {
        arm: {s: y for s, curve in seeds.items() if (y := read_off(curve, amount)) is not None}
        for arm, seeds in found.items()
    }
    return {arm: by_seed for arm, by_seed in scores.items() if by_seed}


def compared(
    scores: Mapping[str, Mapping[int, float]], family: Family
) -> tuple[list[str], dict[tuple[str, str], Compared]]:
    """Return the arms by their mean, best first, and every two of them; see `declared.compare` for the family."""
    pairs = declared.compare(scores, family)
    wins = Counter(first for first, _ in pairs)  # every two are compared, the higher mean first
    return sorted(scores, key=lambda arm: -wins[arm]), pairs
