"""Scores as functions of what was spent, interpolated at one amount for all arms.

Scores are interpolated for each pre-training seed by itself, and compared over seeds afterwards, so intervals and
pairs mean the same as elsewhere. `spent` is a column of the runs: FLOPs under a convention, tokens, steps or seconds.
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
from workbench.spec.experiment import EQUAL_WITHIN

Curve = tuple[tuple[float, float], ...]  # (amount spent, score), by rising amount
Curves = Mapping[str, Mapping[int, Curve]]  # arm -> seed -> its curve

NEAR = 1 + EQUAL_WITHIN  # amounts whose ratio is below this count as one, as in what a report calls equal


def curves(board: Board, frames: Frames, spent: str) -> Curves:
    """Return the curve of every arm and seed; runs that spent nothing of this unit are left out."""
    runs = frames.by_id()
    points_of: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for cell in board.cells:
        for run in cell.runs:
            amount = float(runs[run][spent])
            if amount > 0:
                seeds = points_of.setdefault(cell.arm, {})
                seeds.setdefault(int(runs[run]["seed"]), []).append((amount, board.run_scores[run]))
    return {arm: {s: tuple(sorted(points)) for s, points in seeds.items()} for arm, seeds in points_of.items()}


def common(curves: Curves) -> float | None:
    """Return the largest amount that every arm reached; None if there are no arms."""
    ends = [max(curve[-1][0] for curve in seeds.values()) for seeds in curves.values()]
    return min(ends) if ends else None


def read_off(curve: Curve, amount: float) -> float | None:
    """Return the score at an amount; None outside of the curve.

    Between two points, the score is linear in the logarithm of the amount.
    """
    if not curve[0][0] / NEAR <= amount <= curve[-1][0] * NEAR:
        return None
    amount = min(max(amount, curve[0][0]), curve[-1][0])
    for (x, y), (far, other) in itertools.pairwise(curve):
        if x <= amount <= far:
            share = math.log(amount / x) / math.log(far / x) if far > x else 0.0
            return y + share * (other - y)
    return curve[-1][1]


def at(curves: Curves, amount: float) -> dict[str, dict[int, float]]:
    """Return {arm: {seed: score}} at this amount, for the arms whose curves contain it."""
    scores = {
        arm: {s: y for s, curve in seeds.items() if (y := read_off(curve, amount)) is not None}
        for arm, seeds in curves.items()
    }
    return {arm: by_seed for arm, by_seed in scores.items() if by_seed}


def compared(
    scores: Mapping[str, Mapping[int, float]], family: Family
) -> tuple[list[str], dict[tuple[str, str], Compared]]:
    """Return the arms by mean score, the best first, and the comparison of every two of them.

    See `declared.compare` for the meaning of the family.
    """
    pairs = declared.compare(scores, family)
    wins = Counter(first for first, _ in pairs)  # every pair names the arm with the higher mean first
    return sorted(scores, key=lambda arm: -wins[arm]), pairs
