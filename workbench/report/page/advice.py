"""The arm that a report recommends for an amount of compute, or the reason why it recommends none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.report.comparison import compute, doubts, extrapolation
from workbench.report.comparison.boards import UNTRAINED, Board
from workbench.report.comparison.compute import NEAR, Curves
from workbench.report.comparison.extrapolation import REACH
from workbench.report.comparison.spending import unequal
from workbench.report.formatting import count, duration, freedom, interval, listing, power, seeds
from workbench.report.load.frames import Frames
from workbench.report.load.naming import named
from workbench.report.statistics.paired_comparison import Compared
from workbench.spec.parts import Budget

Scores = Mapping[str, Mapping[int, float]]  # arm -> seed -> score


@dataclass(frozen=True)
class Amount:
    """An amount of one column of the runs, such as tokens, seconds or FLOPs under one convention."""

    column: str
    value: float

    def __str__(self) -> str:
        if self.column.startswith("flops_"):
            return f"{power(self.value)} FLOPs ({self.column.removeprefix('flops_')})"
        return duration(self.value) if self.column == "seconds" else f"{count(self.value)} {self.column}"


def amount_of(budget: Budget) -> Amount:
    """Return the budget that the user gave as an amount."""
    return Amount(f"flops_{budget.convention}" if budget.unit == "flops" else budget.unit, budget.amount)


def advise(board: Board, frames: Frames, budget: Budget | None, convention: str) -> str:
    """Return one paragraph: the arm that is recommended for a budget, or why none is.

    Without a budget, the recommendation is for the largest amount that all arms reached.
    """
    if not board.alike():
        return (
            f"There is no recommendation by {board.label}: each arm is scored by a scorer of its own, so a difference "
            f"may be due to the scorer; linear probes and fine-tuning treat all encoders alike."
        )
    if board.family.exploratory:
        return f"There is no recommendation by {board.label}: it was named after scores of these runs were known."
    cells = board.at(board.budget)
    arms = {c.arm for c in board.cells} - {UNTRAINED}
    if budget is None and len(cells) > 1 and {c.arm for c in cells} == arms:
        caveat = " Their FLOPs are not equal: see the mark † in the table." if unequal(board, board.budget) else ""
        return _chosen(board, {c.arm: c.scores for c in cells}, frames.axis, board.budget, caveat)
    wanted = None if budget is None else amount_of(budget)
    curves = compute.curves(board, frames, wanted.column if wanted else f"flops_{convention}")
    largest = compute.common(curves)
    if largest is None or len(curves) < 2:
        return "There is no recommendation: fewer than two arms have scores."
    wanted = wanted or Amount(f"flops_{convention}", largest)
    low = max(min(curve[0][0] for curve in by_seed.values()) for by_seed in curves.values())
    if low > largest * NEAR:
        return f"There is no recommendation for {wanted}: no amount lies within the range of budgets of every arm."
    if low / NEAR <= wanted.value <= largest * NEAR:
        return _between(board, curves, frames.axis, wanted)
    side = "below" if wanted.value < low else "beyond"
    far = low / wanted.value if side == "below" else wanted.value / largest
    if side == "below" or far > REACH:
        return (
            f"There is no recommendation for {wanted}: that is {far:.3g} times {side} what was measured "
            f"({_range(wanted.column, low, largest)}), and no score shows which arm would be ahead there."
        )
    return _beyond(board, frames.axis, wanted, far)


def _how(compared: list[Compared]) -> str:
    """Return how the differences were measured: `paired, 3 seeds, 8 degrees of freedom`."""
    freedoms = [c.estimate.df for c in compared if c.estimate.df is not None]
    tail = f", {freedom(freedoms)}" if freedoms else ""
    return f"paired, {seeds([c.estimate.n for c in compared])}{tail}"


def _range(column: str, low: float, high: float) -> str:
    """Return a range of amounts as text: `1.80×10¹⁰ to 1.82×10¹¹ FLOPs (paper)`."""
    first = power(low) if column.startswith("flops_") else str(Amount(column, low))
    return f"{first} to {Amount(column, high)}"


def _between(board: Board, curves: Curves, axis: str, wanted: Amount) -> str:
    """Return the advice for an amount within the measured range, by scores interpolated between budgets.

    None is given if an arm that the first one is ahead of there has the higher mean at the budget below or above.
    """
    scores = compute.at(curves, wanted.value)
    order, pairs = compute.compared(scores, board.family)
    amounts = {x for by_seed in curves.values() for curve in by_seed.values() for x, _ in curve}
    below = max((x for x in amounts if x <= wanted.value * NEAR), default=wanted.value)
    above = min((x for x in amounts if x >= wanted.value / NEAR), default=wanted.value)
    sides = [compute.at(curves, x) for x in (below, above)]
    claimed = [arm for arm in order[1:] if pairs[order[0], arm].claimed]
    overtaken = [arm for arm in claimed if any(_behind(side, order[0], arm) for side in sides)]
    if overtaken:
        names = listing([named(axis, arm) for arm in overtaken])
        return (
            f"There is no recommendation for {wanted}: {named(axis, order[0])} and {names} change places between the "
            f"budgets on either side of this amount."
        )
    return _chosen(board, scores, axis, wanted, "")


def _behind(scores: Scores, first: str, arm: str) -> bool:
    """Return whether `first` has a lower mean than `arm` over the seeds that both have."""
    if first not in scores or arm not in scores:
        return False
    shared = scores[first].keys() & scores[arm].keys()
    return sum(scores[first][s] - scores[arm][s] for s in shared) < 0


def _beyond(board: Board, axis: str, wanted: Amount, far: float) -> str:
    """Return the advice for an amount `far` times the largest budget.

    It is the arm that is ahead at the largest budget, if it stays ahead in the worst case of `extrapolation.lead`.
    """
    arms = {named(axis, arm): points for arm, points in extrapolation.measured(board, wanted.column).items()}
    family = board.family.renamed({cell.arm: named(axis, cell.arm) for cell in board.cells})
    lead = extrapolation.lead(arms, wanted.value, family)
    if lead.refusal:
        return f"There is no recommendation for {wanted}, {far:.3g} times beyond what was measured: {lead.refusal}."
    first = next(cell.arm for cell in board.at(board.budget) if named(axis, cell.arm) == lead.first)
    if doubts := _doubts(board, axis, first):
        return f"{doubts} So there is no recommendation for {wanted}, though {lead.first} would be ahead of the others."
    rival, margin = min(lead.margins.items(), key=lambda item: item[1].mean)
    several = len(lead.margins) > 1
    others = "every other arm" if several else rival
    gaining = "the others kept their" if several else f"{rival} kept its"
    return (
        f"For {wanted}: take {lead.first}. It is ahead of {others} at the largest budget, and would be ahead"
        f"{f' of {rival}' if several else ''} by {interval(margin.mean, margin.half)} points of {board.label} (paired, "
        f"{seeds([margin.n])}) even if its own score rose no further while {gaining} gain per doubling of compute. "
        f"That is {far:.3g} times beyond what was measured, and does not hold if an arm gains faster there than over "
        f"the last three budgets."
    )


def _doubts(board: Board, axis: str, arm: str) -> str:
    """Return the reason not to recommend an arm that is ahead, such as a higher baseline; "" if there is none."""
    cell = next((c for c in board.at(board.budget) if c.arm == arm), None)
    if cell is None or (cell.gain is None and not doubts.beaten(cell, doubts.learned(board))):
        return ""
    return doubts.caveat(board, board.budget, [arm], {arm: named(axis, arm)}, "arms")


def _chosen(board: Board, scores: Scores, axis: str, wanted: Amount | str, caveat: str) -> str:
    """Return the advice to take the arm that is ahead of every other, or name the arms that cannot be told apart."""
    order, pairs = compute.compared(scores, board.family)
    if len(order) < 2:
        return f"There is no recommendation for {wanted}: fewer than two arms have a score there.{caveat}"
    first = order[0]
    rivals = [b for b in order[1:] if not pairs[first, b].claimed]
    n = seeds([pairs[first, b].difference.estimate.n for b in order[1:]])
    if not rivals and (doubts := _doubts(board, axis, first)):
        return (
            f"{doubts} So there is no recommendation for {wanted}, though {named(axis, first)} is ahead of the others."
        )
    if not rivals:
        near = pairs[first, order[1]]
        return (
            f"For {wanted}: take {named(axis, first)}. It is ahead of every other arm, of {named(axis, order[1])} by "
            f"{interval(near.estimate.mean, near.estimate.half)} points of {board.label} ({_how([near])}).{caveat}"
        )
    among = listing([named(axis, arm) for arm in (first, *rivals)])
    behind = [arm for arm in order if arm not in (first, *rivals)]
    rest = f" Behind these, and not recommended: {listing([named(axis, arm) for arm in behind])}." if behind else ""
    reason = f"with {n}, {among} cannot be told apart"
    if not all(pairs[first, arm].declared for arm in rivals):
        reason = f"no comparison that was declared beforehand puts one of {among} ahead of the others"
    return f"For {wanted} there is no single arm to recommend: {reason}.{rest}{caveat}"
