"""Bounds on scores beyond the largest budget that was run, without a fitted ceiling or exponent.

A curve that saturates, such as a power law with any ceiling, rises ever more slowly over the logarithm of compute. So
beyond the largest budget it lies between a constant score and the straight line through the last three budgets. A
fitted law gives narrower bounds, which are wrong if the curve follows another law (docs/decisions/0010).

The assumptions are that no arm loses by more compute, and that none gains faster later on. Both are checked as far as
the data allow: an arm is not extended if it does not measurably rise, or if its rise does not measurably slow down,
because a plateau before a late start looks the same as a ceiling.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.report.comparison import declared
from workbench.report.comparison.boards import Board
from workbench.report.comparison.declared import NOTHING, Family
from workbench.report.formatting import interval, listing
from workbench.report.statistics.paired_comparison import LEVEL, Estimate, t_interval

Points = Sequence[tuple[float, Mapping[int, float]]]  # (amount spent, {seed: score}), by rising amount
FEWEST = 3  # budgets; the last three give the line and its bend
REACH = 10.0  # scores are bounded up to this multiple of the largest budget
BEST = 100.0  # points, the highest possible score
SLOWING = 0.8  # level of the two-sided interval that must lie below zero: a one-sided 90 % claim
APART = 1.05  # budgets with a smaller ratio give no slope
SAME = 1.02  # amounts with a smaller ratio count as one amount


def measured(board: Board, column: str) -> dict[str, Points]:
    """Return the points of each arm: for each budget the amount spent, and the score of each seed.

    `column` names the amount: a column of the runs, of which the mean over seeds is taken.
    """
    points_of: dict[str, list[tuple[float, Mapping[int, float]]]] = {}
    for cell in board.cells:
        if cell.spent[column] > 0:
            points_of.setdefault(cell.arm, []).append((cell.spent[column], cell.scores))
    return {arm: sorted(points, key=lambda point: point[0]) for arm, points in points_of.items()}


@dataclass(frozen=True)
class Extension:
    """The last three budgets of one arm: `amounts` spent, and the `scores` of each seed that has all of them."""

    amounts: tuple[float, ...]
    scores: Mapping[int, tuple[float, ...]]

    @property
    def end(self) -> float:
        """Return the amount spent at the largest budget."""
        return self.amounts[-1]

    @property
    def slope(self) -> Estimate:
        """Return the gain in points for each doubling of compute, by least squares over the three budgets."""
        return t_interval(self._slope(ys) for ys in self.scores.values())

    def bend(self, level: float = LEVEL) -> Estimate:
        """Return the change of the gain per doubling.

        It is the gain between the last two budgets minus that between the first two.
        """
        one, two = (math.log2(b / a) for a, b in itertools.pairwise(self.amounts))
        return t_interval(((c - b) / two - (b - a) / one for a, b, c in self.scores.values()), level)

    def ends(self) -> dict[int, float]:
        """Return the score of each seed at the largest budget: the lower bound beyond it."""
        return {seed: ys[-1] for seed, ys in self.scores.items()}

    def line(self, amount: float) -> dict[int, float]:
        """Return the height of each seed's straight line at an amount: the upper bound beyond the largest budget."""
        place = math.log2(amount) - math.fsum(map(math.log2, self.amounts)) / len(self.amounts)
        return {seed: math.fsum(ys) / len(ys) + self._slope(ys) * place for seed, ys in self.scores.items()}

    def band(self, amount: float) -> tuple[float, float]:
        """Return the lower end of the lower bound's 95 % interval, and the upper end of the upper bound's."""
        low, high = t_interval(self.ends().values()).low, t_interval(self.line(amount).values()).high
        assert low is not None and high is not None  # `extension` requires two seeds
        return low, max(low, min(BEST, high))

    @property
    def refusal(self) -> str:
        """Return why the arm is not extended, as the predicate of a sentence about it; "" if it is extended."""
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
    """Return the extension of an arm; None for fewer than three budgets, or two seeds with all of the last three."""
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
    """The answer to whether the leader at the largest budget would still lead at some larger amount.

    `margins` are its score at the largest budget minus the upper bound of each other arm at that amount, paired by
    seed. `refusal` is a clause that says why nothing is claimed; it is "" if the lead is kept.
    """

    first: str
    margins: Mapping[str, Estimate]
    refusal: str


def lead(arms: Mapping[str, Points], amount: float, family: Family = NOTHING) -> Lead:
    """Return whether the leader keeps its lead in the worst case: it gains no more, and others keep their gain.

    Only the leader at the largest budget can be put forward, so the measured order is never contradicted. Its margins
    over the other arms are corrected for their number (Bonferroni). If a family of comparisons was declared
    beforehand, only these can show that it leads.
    """
    ends = {arm: points[-1][0] for arm, points in arms.items()}
    last = {arm: points[-1][1] for arm, points in arms.items()}
    order = sorted(last, key=lambda arm: -math.fsum(last[arm].values()) / len(last[arm]))
    first, rivals = order[0], order[1:]
    if max(ends.values()) > SAME * min(ends.values()):
        return Lead(first, {}, "the largest budgets of the arms are not equal")
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
    """Return the lead at an amount, of a leader at the largest budget whose rivals are all extended."""
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
    """Return the mean difference over the seeds that both have."""
    return t_interval((ends[seed] - line[seed] for seed in sorted(ends.keys() & line.keys())), level)
