"""Between which budgets two arms change places, where both orders are shown."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.report.marks import Axis
from workbench.report.spending import TOLERANCE
from workbench.report.statistics import LEVEL, Difference
from workbench.report.tables import Board, Cell, Pair
from workbench.report.words import interval


@dataclass(frozen=True)
class Crossing:
    """`before` is ahead at the amount `low` and `after` at `high`, so their curves cross between the two.

    No curve is assumed. The bracket is wrong only if one of the two claims is, and each is corrected for every pair and
    every budget.
    """

    before: str
    after: str
    low: float
    high: float
    at_low: Difference
    at_high: Difference


def crossings(board: Board, column: str) -> list[Crossing]:
    """Every change of places between arms that spent the same of a column of the runs."""
    compared = []
    for budget in board.budgets:
        cells = {cell.arm: cell for cell in board.at(budget)}
        same = [pair for pair in board.pairs[budget] if _equal(cells[pair.a], cells[pair.b], column)]
        compared.append((next(iter(cells.values())).spent[column], same))
    return between(compared)


def between(compared: Sequence[tuple[float, Sequence[Pair]]]) -> list[Crossing]:
    """The same from an amount and the pairs compared at it, for each budget: the closest two that show each change."""
    claims: dict[frozenset[str], list[tuple[float, Pair]]] = {}
    comparisons = sum(len(pairs) for _, pairs in compared)
    for amount, pairs in sorted(compared, key=lambda one: one[0]):
        for pair in pairs:
            if _shown(pair, comparisons):
                claims.setdefault(frozenset((pair.a, pair.b)), []).append((amount, pair))
    found = [
        Crossing(one.a, two.a, low, high, one.difference, two.difference)
        for of_pair in claims.values()
        for (low, one), (high, two) in itertools.pairwise(of_pair)
        if one.a != two.a
    ]
    return sorted(found, key=lambda crossing: crossing.low)


def _shown(pair: Pair, comparisons: int) -> bool:
    """Whether the pair is told apart even after a correction for every pair at every budget (Bonferroni)."""
    p = pair.difference.p
    return pair.compared.claimed and p is not None and p * comparisons < 1 - LEVEL


def _equal(a: Cell, b: Cell, column: str) -> bool:
    low, high = sorted((a.spent[column], b.spent[column]))
    return 0 < high <= low * (1 + TOLERANCE)


def sentence(crossing: Crossing, axis: Axis) -> str:
    """Between which amounts two arms change places, and by how much each was ahead."""
    before, after = crossing.at_low.estimate, crossing.at_high.estimate
    return (
        f"{crossing.after} overtakes {crossing.before} between {axis.say(crossing.low)}, where {crossing.before} is "
        f"ahead by {interval(before.mean, before.half)} points, and {axis.say(crossing.high)}, where {crossing.after} "
        f"is ahead by {interval(after.mean, after.half)} (paired; corrected for every pair and budget)."
    )
