"""One comparison under every way of counting FLOPs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.report.comparison import compute
from workbench.report.comparison.boards import Board
from workbench.report.comparison.spending import TOLERANCE, ratios
from workbench.report.load.frames import Frames
from workbench.report.page.doubts import caveat
from workbench.report.page.phrases import named, several
from workbench.report.statistics.paired_comparison import Compared, Estimate, t_interval
from workbench.report.words import interval, listing, power
from workbench.spec.parts import CONVENTIONS


@dataclass(frozen=True)
class Held:
    """All arms at one amount of FLOPs under one convention; `ratio` is what each spent over the least at the budget.

    `scores` are read off between budgets, so arms that were run at one budget only, and not at this amount, are absent.
    """

    convention: str
    amount: float
    scores: Mapping[str, Estimate]
    order: tuple[str, ...]
    pairs: Mapping[tuple[str, str], Compared]
    ratio: Mapping[str, float]

    @property
    def said(self) -> str:
        """Who is first, and by how much."""
        if len(self.order) < 2:
            return "no two arms were run at one amount of compute, nor around one"
        first, second = self.order[:2]
        found = self.pairs[first, second]
        gap = interval(found.difference.estimate.mean, found.difference.estimate.half)
        told = "ahead of" if found.claimed else "first, not told apart from"
        absent = [arm for arm in self.ratio if arm not in self.scores]
        some = f"of {listing(list(self.order))} alone, " if absent else ""
        tail = f"; {listing(absent)} spent other amounts and cannot be placed" if absent else ""
        return f"{some}{first} is {told} {second} ({gap}) at {power(self.amount)} FLOPs{tail}"


def held(board: Board, frames: Frames, convention: str) -> Held | None:
    """Every arm at the largest amount that all of them reached under this convention."""
    found = compute.curves(board, frames, f"flops_{convention}")
    amount = compute.common(found)
    if amount is None:
        return None
    scores = compute.at(found, amount)
    order, pairs = compute.compared(scores, board.family)
    estimates = {arm: t_interval([by[s] for s in sorted(by)]) for arm, by in scores.items()}
    return Held(convention, amount, estimates, tuple(order), pairs, ratios(board, board.budget, convention))


def under_each(board: Board, frames: Frames) -> tuple[list[Held], str]:
    """The comparison under all three conventions and what to say of it; nothing where they all say the same.

    They say the same where every arm spent the same under each, or where all rank the arms alike and claim alike. Arms
    that a convention cannot place take no part in that: to be absent is not to be ranked otherwise.
    """
    found = [h for c in CONVENTIONS if (h := held(board, frames, c)) is not None]
    if len(found) < len(CONVENTIONS) or len(board.arms) < 2:
        return [], ""
    if all(ratio <= 1 + TOLERANCE for h in found for ratio in h.ratio.values()):
        return [], ""
    placed = set.intersection(*(set(h.order) for h in found))
    if len({tuple(arm for arm in h.order if arm in placed) for h in found}) > 1:
        claims = {frozenset(pair for pair, c in h.pairs.items() if c.claimed and placed >= set(pair)) for h in found}
        inside = " What is claimed is the same under all of them; the rest is noise." if len(claims) == 1 else ""
        sentence = f"The conventions do not rank the arms alike.{inside}"
    elif placed < set(board.arms):
        sentence = (
            "The arms spent the same under one convention only, so the others cannot rank them all. Runs at more "
            "budgets, as in the experiment efficiency, would place every arm under each."
        )
    else:
        sentence = "All three conventions rank the arms alike, though the arms did not spend the same under each."
    names = {c.arm: named(frames.axis, c.arm) for c in board.at(board.budget)}
    winners = {h.order[0] for h in found if len(h.order) > 1 and h.pairs[h.order[0], h.order[1]].claimed}
    doubt = caveat(board, board.budget, winners, names, several(frames.axis))
    return found, f"{doubt} {sentence}".strip()
