"""What to choose for a budget of one's own, or that there is no telling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.parts import Budget
from workbench.report import compute
from workbench.report.answer import named
from workbench.report.compute import NEAR, REACH, Curves
from workbench.report.frames import Frames
from workbench.report.spending import unequal
from workbench.report.tables import UNTRAINED, Board
from workbench.report.words import count, duration, interval, listing, power, seeds


@dataclass(frozen=True)
class Amount:
    """So much of a column of the runs."""

    column: str
    value: float

    def __str__(self) -> str:
        if self.column.startswith("flops_"):
            return f"{power(self.value)} FLOPs ({self.column.removeprefix('flops_')})"
        return duration(self.value) if self.column == "seconds" else f"{count(self.value)} {self.column}"


def amount_of(budget: Budget) -> Amount:
    """A budget as the user gave it."""
    return Amount(f"flops_{budget.convention}" if budget.unit == "flops" else budget.unit, budget.amount)


def advise(board: Board, frames: Frames, budget: Budget | None, convention: str) -> str:
    """One paragraph: what the evidence recommends at the user's budget (by default the largest that all arms had)."""
    cells = board.at(board.budget)
    arms = {c.arm for c in board.cells} - {UNTRAINED}
    if budget is None and len(cells) > 1 and {c.arm for c in cells} == arms:
        caveat = " Their FLOPs are not equal, see the mark at the table." if unequal(board, board.budget) else ""
        return _chosen(board, {c.arm: c.scores for c in cells}, frames.axis, board.budget, caveat)
    wanted = None if budget is None else amount_of(budget)
    found = compute.curves(board, frames, wanted.column if wanted else f"flops_{convention}")
    largest = compute.common(found)
    if largest is None or len(found) < 2:
        return "There is no recommendation: fewer than two arms have scores."
    wanted = wanted or Amount(f"flops_{convention}", largest)
    low = max(min(curve[0][0] for curve in seeds.values()) for seeds in found.values())
    if low / NEAR <= wanted.value <= largest * NEAR:
        return _chosen(board, compute.at(found, wanted.value), frames.axis, wanted, "")
    side = "below" if wanted.value < low else "beyond"
    far = low / wanted.value if side == "below" else wanted.value / largest
    if low > largest * NEAR:
        return f"There is no recommendation for {wanted}: no one amount lies within what every arm was run at."
    if side == "below" or far > REACH:
        return (
            f"There is no recommendation for {wanted}: that is {far:.3g} times {side} what was measured "
            f"({_range(wanted.column, low, largest)}), where nothing here can speak."
        )
    return _extrapolated(board, found, frames.axis, wanted, far)


def _range(column: str, low: float, high: float) -> str:
    """`1.80×10¹⁰ to 1.82×10¹¹ FLOPs (paper)`."""
    first = power(low) if column.startswith("flops_") else str(Amount(column, low))
    return f"{first} to {Amount(column, high)}"


def _extrapolated(board: Board, found: Curves, axis: str, wanted: Amount, far: float) -> str:
    fits = {arm: fit for arm, seeds in found.items() if (fit := compute.fit(seeds)) is not None}
    if len(fits) < len(found):
        return (
            f"There is no recommendation for {wanted}: that is {far:.3g} times beyond what was measured, and fewer "
            f"than {compute.FEWEST} budgets leave nothing to extend."
        )
    scores = {arm: fit.scores(wanted.value) for arm, fit in fits.items()}
    caveat = (
        f" This extends the fitted curves {far:.3g} times beyond what was measured, so it is a guess with a method."
    )
    return _chosen(board, scores, axis, wanted, caveat)


def _chosen(
    board: Board, scores: Mapping[str, Mapping[int, float]], axis: str, wanted: Amount | str, caveat: str
) -> str:
    """The arm that is ahead of every other, or those among which nothing decides."""
    order, pairs = compute.compared(scores)
    if len(order) < 2:
        return f"There is no recommendation for {wanted}: fewer than two arms can be read off there.{caveat}"
    first = order[0]
    rivals = [b for b in order[1:] if not pairs[first, b].claimed]
    n = seeds([pairs[first, b].difference.estimate.n for b in order[1:]])
    if not rivals:
        near = pairs[first, order[1]].difference.estimate
        return (
            f"For {wanted}: take {named(axis, first)}. It is ahead of every other, of {named(axis, order[1])} by "
            f"{interval(near.mean, near.half)} points of {board.label} (paired, {n}).{caveat}"
        )
    among = listing([named(axis, arm) for arm in (first, *rivals)])
    left = [arm for arm in order if arm not in (first, *rivals)]
    rest = f" What is behind and can be left aside: {listing([named(axis, arm) for arm in left])}." if left else ""
    return f"For {wanted} there is no single one to recommend: {n} can't tell {among} apart.{rest}{caveat}"
