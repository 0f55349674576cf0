"""The comparison of the arms under each convention of counting FLOPs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.report.comparison import compute
from workbench.report.comparison.boards import Board
from workbench.report.comparison.doubts import caveat
from workbench.report.comparison.spending import TOLERANCE, ratios
from workbench.report.formatting import interval, listing, power
from workbench.report.load.frames import Frames
from workbench.report.page.phrases import named, several
from workbench.report.statistics.paired_comparison import Compared, Estimate, t_interval
from workbench.spec.parts import CONVENTIONS


@dataclass(frozen=True)
class ConventionRanking:
    """The comparison of all arms at one amount of FLOPs under one convention.

    `scores` are interpolated between budgets, so an arm that was run at one other amount only is absent. `ratio` is
    what each arm spent at the budget, divided by what the arm that spent least did.
    """

    convention: str
    amount: float
    scores: Mapping[str, Estimate]
    order: tuple[str, ...]
    pairs: Mapping[tuple[str, str], Compared]
    ratio: Mapping[str, float]
    alike: bool = True  # whether the first two arms had one scorer, or the measure treats all arms alike

    @property
    def sentence(self) -> str:
        """Return a sentence, without a full stop, on the arm with the highest score and its lead."""
        if len(self.order) < 2:
            return "no two arms have a score at the largest amount that every arm reached"
        first, second = self.order[:2]
        compared = self.pairs[first, second]
        gap = interval(compared.difference.estimate.mean, compared.difference.estimate.half)
        ahead = "ahead of" if self.alike else "higher by its own scores than"
        relation = ahead if compared.claimed else "first, but not told apart from"
        absent = [arm for arm in self.ratio if arm not in self.scores]
        some = f"among {listing(list(self.order))}, " if absent else ""
        tail = f"; {listing(absent)} spent other amounts and cannot be ranked" if absent else ""
        return f"{some}{first} is {relation} {second} ({gap}) at {power(self.amount)} FLOPs{tail}"


def ranking(board: Board, frames: Frames, convention: str) -> ConventionRanking | None:
    """Return the comparison at the largest amount that every arm reached under a convention; None without arms."""
    curves = compute.curves(board, frames, f"flops_{convention}")
    amount = compute.common(curves)
    if amount is None:
        return None
    scores = compute.at(curves, amount)
    order, pairs = compute.compared(scores, board.family)
    estimates = {arm: t_interval([by[s] for s in sorted(by)]) for arm, by in scores.items()}
    return ConventionRanking(
        convention, amount, estimates, tuple(order), pairs, ratios(board, board.budget, convention),
        board.alike(*order[:2]),
    )  # fmt: skip


def under_each(board: Board, frames: Frames) -> tuple[list[ConventionRanking], str]:
    """Return the comparison under all three conventions, and a sentence on how they differ.

    Both are empty if every arm spent the same under each convention. Arms without a score under some convention are
    left out when rankings are compared.
    """
    each = [h for c in CONVENTIONS if (h := ranking(board, frames, c)) is not None]
    if len(each) < len(CONVENTIONS) or len(board.arms) < 2:
        return [], ""
    if all(ratio <= 1 + TOLERANCE for h in each for ratio in h.ratio.values()):
        return [], ""
    placed = set.intersection(*(set(h.order) for h in each))
    if len({tuple(arm for arm in h.order if arm in placed) for h in each}) > 1:
        claims = {frozenset(pair for pair, c in h.pairs.items() if c.claimed and placed >= set(pair)) for h in each}
        inside = " What is claimed is the same under all of them; the rest is noise." if len(claims) == 1 else ""
        sentence = f"The conventions do not rank the arms alike.{inside}"
    elif placed < set(board.arms):
        sentence = (
            "The arms spent the same under one convention only, so they cannot all be ranked under the others. Runs at "
            "more budgets, as in the experiment efficiency, would give every arm a score under each convention."
        )
    else:
        sentence = "All three conventions rank the arms alike, though the arms did not spend the same under each."
    names = {c.arm: named(frames.axis, c.arm) for c in board.at(board.budget)}
    winners = {h.order[0] for h in each if len(h.order) > 1 and h.pairs[h.order[0], h.order[1]].claimed}
    doubt = caveat(board, board.budget, winners, names, several(frames.axis))
    return each, f"{doubt} {sentence}".strip()
