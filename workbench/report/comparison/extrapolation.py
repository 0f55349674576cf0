"""Bounds on scores beyond the largest budget that was run, without a fitted ceiling or exponent.

A law that saturates, such as a power law with any ceiling, rises ever more slowly over the logarithm of compute. So
beyond the largest budget it lies between staying where it is and going on along the straight line through the last
three budgets. A fitted law is narrower, and wrong where the curve is another one (docs/decisions/0010).

The assumptions are that no arm loses by more compute, and that none gains faster later on. Both are checked as far as
the data go: an arm that does not measurably rise, or whose rise does not measurably slow down, is not extended, because
a plateau before a late start looks the same as a ceiling.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.report.comparison import declared
from workbench.report.comparison.boards import Board
from workbench.report.comparison.declared import NOTHING, Family
from workbench.report.statistics.paired_comparison import LEVEL, Estimate, t_interval
from workbench.report.words import interval, listing

Points = Sequence[tuple[float, Mapping[int, float]]]  # by amount spent: the amount, and the score of each seed
FEWEST = 3  # budgets; the last three give the line and how it bends
REACH = 10.0  # nothing is said further than this times the largest budget
BEST = 100.0  # no score is higher
SLOWING = 0.8  # level of the two-sided interval that must lie below zero: a one-sided 90 % claim
APART = 1.05  # budgets closer than this give no slope
SAME = 1.02  # amounts closer than this are one amount


def measured(board: Board, column: str) -> dict[str, Points]:
    """Arm -> what its runs spent (a column of the runs, mean over seeds) and their scores, for each budget."""
    found: dict[str, list[tuple[float, Mapping[int, float]]]] = {}
    for cell in board.cells:
        if cell.spent[column] > 0:
            found.setdefault(cell.arm, []).append((cell.spent[column], cell.scores))
    return {arm: sorted(points, key=lambda point: point[0]) for arm, points in found.items()}


@dataclass(frozen=True)
class Extension:
    """The last three budgets of one arm: `amounts`, and the `scores` of each seed that was run at all of them."""

    amounts: tuple[float, ...]
    scores: Mapping[int, tuple[float, ...]]

    @property
    def end(self) -> float:
        return self.amounts[-1]

    @property
    def slope(self) -> Estimate:
        """Points gained by each doubling of compute, by least squares over the three budgets."""
        return t_interval(self._slope(ys) for ys in self.scores.values())

    def bend(self, level: float = LEVEL) -> Estimate:
        """The change of the gain per doubling: that between the last two budgets minus that between the first two."""
        one, two = (math.log2(b / a) for a, b in itertools.pairwise(self.amounts))
        return t_interval(((c - b) / two - (b - a) / one for a, b, c in self.scores.values()), level)

    def ends(self) -> dict[int, float]:
        """Seed -> score at the largest budget: the lower bound from there on."""
        return {seed: ys[-1] for seed, ys in self.scores.items()}

    def line(self, amount: float) -> dict[int, float]:
        """Seed -> height of the straight line at an amount: the upper bound from the largest budget on."""
        place = math.log2(amount) - math.fsum(map(math.log2, self.amounts)) / len(self.amounts)
        return {seed: math.fsum(ys) / len(ys) + self._slope(ys) * place for seed, ys in self.scores.items()}

    def band(self, amount: float) -> tuple[float, float]:
        """The lower end of the 95 % interval of the lower bound, and the upper end of that of the upper bound."""
        low, high = t_interval(self.ends().values()).low, t_interval(self.line(amount).values()).high
        assert low is not None and high is not None  # `extension` asks for two seeds
        return low, max(low, min(BEST, high))

    @property
    def refusal(self) -> str:
        """Why the arm is not extended, as the predicate of a sentence about it; "" where it is."""
        slope, bend = self.slope, self.bend()
        if slope.low is None or slope.low <= 0:
            return (
                f"does not measurably rise over the last three budgets ({interval(slope.mean, slope.half, True)} "
                f"points per doubling), which may be a ceiling or a plateau before a late start"
            )
        slowing = self.bend(SLOWING).high
        if slowing is None or slowing >= 0:
            return (
                f"does not measurably slow down over the last three budgets (its gain per doubling changed by "
                f"{interval(bend.mean, bend.half, True)} points), so nothing bounds its rise"
            )
        return ""

    def _slope(self, ys: Sequence[float]) -> float:
        xs = [math.log2(amount) for amount in self.amounts]
        middle = math.fsum(xs) / len(xs)
        return math.fsum((x - middle) * y for x, y in zip(xs, ys, strict=True)) / math.fsum(
            (x - middle) ** 2 for x in xs
        )


def extension(points: Points) -> Extension | None:
    """The extension of an arm; None below three budgets, or two seeds that were run at each of the last three."""
    last = points[-FEWEST:]
    amounts = tuple(amount for amount, _ in last)
    if len(last) < FEWEST or any(b < APART * a for a, b in itertools.pairwise(amounts)):
        return None
    seeds = sorted(set.intersection(*(set(scores) for _, scores in last)))
    if len(seeds) < 2:
        return None
    return Extension(amounts, {seed: tuple(scores[seed] for _, scores in last) for seed in seeds})


@dataclass(frozen=True)
class Lead:
    """Whether the arm that is ahead at the largest budget would still be ahead at some larger amount.

    `margins` are its score at the largest budget minus each other arm's upper bound at that amount, paired by seed.
    `refusal` is a clause that says why nothing is claimed; it is "" where the lead is kept.
    """

    first: str
    margins: Mapping[str, Estimate]
    refusal: str


def lead(arms: Mapping[str, Points], amount: float, family: Family = NOTHING) -> Lead:
    """The worst case for the leader: it gains nothing more, while the others keep their gain per doubling.

    The leader at the largest budget is the only arm that can come out, so no arm is put forward against the order that
    was measured. Its margins over the others are corrected for their number (Bonferroni). Where a family of
    comparisons was declared beforehand, only they show that it leads.
    """
    ends = {arm: points[-1][0] for arm, points in arms.items()}
    last = {arm: points[-1][1] for arm, points in arms.items()}
    order = sorted(last, key=lambda arm: -math.fsum(last[arm].values()) / len(last[arm]))
    first, rivals = order[0], order[1:]
    if max(ends.values()) > SAME * min(ends.values()):
        return Lead(first, {}, "the largest budgets of the arms are not one amount")
    pairs = declared.compare(last, family)
    level = [rival for rival in rivals if (first, rival) not in pairs or not pairs[first, rival].claimed]
    if level:
        return Lead(first, {}, f"at the largest budget {first} is not shown to be ahead of {listing(level)}")
    extensions = {arm: extension(points) for arm, points in arms.items()}
    for arm in (*rivals, first):
        one = extensions[arm]
        if one is None:
            return Lead(first, {}, f"{arm} was not run at {FEWEST} budgets with two seeds each")
        if arm != first and one.refusal:
            return Lead(first, {}, f"{arm} {one.refusal}")
    return _kept(first, {arm: one for arm, one in extensions.items() if one is not None}, amount)


def _kept(first: str, extensions: Mapping[str, Extension], amount: float) -> Lead:
    if extensions[first].slope.mean < 0:
        return Lead(first, {}, f"{first} is ahead at the largest budget, but falls towards it")
    ends = extensions[first].ends()
    margins = {arm: _margin(ends, one.line(amount)) for arm, one in extensions.items() if arm != first}
    level = 1 - (1 - LEVEL) / len(margins)
    open_ = [arm for arm in margins if (_margin(ends, extensions[arm].line(amount), level).low or 0.0) <= 0]
    if not open_:
        return Lead(first, margins, "")
    lasted = "its gain per doubling lasted" if len(open_) == 1 else "their gain per doubling lasted"
    return Lead(
        first, margins, f"{first} is ahead at the largest budget, but {listing(open_)} could overtake it if {lasted}"
    )


def _margin(ends: Mapping[int, float], line: Mapping[int, float], level: float = LEVEL) -> Estimate:
    """The difference of the seeds that both have."""
    return t_interval((ends[seed] - line[seed] for seed in sorted(ends.keys() & line.keys())), level)
