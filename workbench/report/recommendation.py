"""The arm that `report --budget` recommends for an amount of compute, or the reason why it recommends none.

Within the range of budgets, the score of each pre-training seed is interpolated, linear in the logarithm of the
amount, and compared over seeds afterwards, so that intervals and pairs mean the same as elsewhere.

Beyond the largest budget, scores are bounded without a fitted ceiling or exponent. A curve that saturates, such as a
power law with any ceiling, rises ever more slowly over the logarithm of compute. So it lies between a constant score
and the straight line through the last three budgets. A fitted law gives narrower bounds, which are wrong if the curve
follows another law (docs/decisions/0010). The assumptions are that no arm loses by more compute, and that none gains
faster later on. Both are checked as far as the data allow: an arm is not extended if it does not measurably rise, or if
its rise does not measurably slow down, because a plateau before a late start looks the same as a ceiling.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from workbench.report.formatting import count, duration, freedom, interval, listing, power, seeds
from workbench.report.load.arm_names import named
from workbench.report.load.study_tables import Frames
from workbench.report.results import Leaderboard
from workbench.report.statistics.group_sequential import NOTHING, Family, compare
from workbench.report.statistics.intervals import LEVEL, Estimate, Scores, t_interval
from workbench.report.statistics.paired_comparison import Compared
from workbench.report.verdict import caveat, words_score
from workbench.spec.experiment import EQUAL_WITHIN
from workbench.spec.parts import Budget

Curve = tuple[tuple[float, float], ...]  # (amount spent, score), by rising amount
Curves = Mapping[str, Mapping[int, Curve]]  # arm -> seed -> its curve
Points = Sequence[tuple[float, Scores]]  # (amount spent, {seed: score}), by rising amount
NEAR = 1 + EQUAL_WITHIN  # amounts outside the measured range by at most this factor count as inside
FEWEST = 3  # budgets; the last three give the line and its bend
REACH = 10.0  # scores are bounded up to this multiple of the largest budget
BEST = 100.0  # points, the highest possible score
SLOWING = 0.8  # level of the two-sided interval that must lie below zero: a one-sided 90 % claim
APART = 1.05  # budgets with a smaller ratio give no slope
SAME = 1.02  # largest budgets of two arms whose ratio is at most this count as equal


@dataclass(frozen=True)
class Amount:
    """An amount of one column of the runs, such as tokens, seconds or FLOPs under one convention."""

    column: str
    value: float

    def __str__(self) -> str:
        if self.column.startswith("flops_"):
            return f"{power(self.value)} FLOPs ({self.column.removeprefix('flops_')})"
        return duration(self.value) if self.column == "seconds" else f"{count(self.value)} {self.column}"


def advise(board: Leaderboard, frames: Frames, budget: Budget) -> str:
    """Return one paragraph: the arm that is recommended for a budget, or why none is."""
    if not board.alike():
        return (
            f"There is no recommendation by {board.label}: each arm is scored by a scorer of its own, so a difference "
            f"may be due to the scorer; linear probes and fine-tuning treat all encoders alike."
        )
    if board.family.exploratory:
        return f"There is no recommendation by {board.label}: it was named after scores of these runs were known."
    wanted = Amount(f"flops_{budget.convention}" if budget.unit == "flops" else budget.unit, budget.amount)
    curves = score_curves(board, frames, wanted.column)
    if len(curves) < 2:
        return "There is no recommendation: fewer than two arms have scores."
    largest = min(max(curve[-1][0] for curve in by_seed.values()) for by_seed in curves.values())
    low = max(min(curve[0][0] for curve in by_seed.values()) for by_seed in curves.values())
    if low > largest * NEAR:
        return f"There is no recommendation for {wanted}: no amount lies within the range of budgets of every arm."
    if low / NEAR <= wanted.value <= largest * NEAR:
        return _within(board, curves, frames.axis, wanted)
    side, far = ("below", low / wanted.value) if wanted.value < low else ("beyond", wanted.value / largest)
    if side == "below" or far > REACH:
        first = power(low) if wanted.column.startswith("flops_") else str(Amount(wanted.column, low))
        return (
            f"There is no recommendation for {wanted}: that is {far:.3g} times {side} what was measured "
            f"({first} to {Amount(wanted.column, largest)}), and no score shows which arm would be ahead there."
        )
    return _beyond(board, frames.axis, wanted, far)


def score_curves(board: Leaderboard, frames: Frames, column: str) -> Curves:
    """Return the curve of every arm and seed; runs that spent nothing of this column's unit are left out."""
    runs = frames.by_id()
    points_of: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for cell in board.cells:
        for run in cell.runs:
            amount = float(runs[run][column])
            if amount > 0:
                by_seed = points_of.setdefault(cell.arm, {})
                by_seed.setdefault(int(runs[run]["seed"]), []).append((amount, board.run_scores[run]))
    return {arm: {seed: tuple(sorted(each)) for seed, each in by_seed.items()} for arm, by_seed in points_of.items()}


def read_off(curve: Curve, amount: float) -> float | None:
    """Return the score at an amount, linear in its logarithm between two points; None outside of the curve."""
    if not curve[0][0] / NEAR <= amount <= curve[-1][0] * NEAR:
        return None
    amount = min(max(amount, curve[0][0]), curve[-1][0])
    for (x, y), (far, other) in itertools.pairwise(curve):
        if x <= amount <= far:
            share = math.log(amount / x) / math.log(far / x) if far > x else 0.0
            return y + share * (other - y)
    return curve[-1][1]


def scores_at(curves: Curves, amount: float) -> dict[str, dict[int, float]]:
    """Return {arm: {seed: score}} at this amount, for the arms whose curves contain it."""
    scores = {
        arm: {seed: y for seed, curve in by_seed.items() if (y := read_off(curve, amount)) is not None}
        for arm, by_seed in curves.items()
    }
    return {arm: by_seed for arm, by_seed in scores.items() if by_seed}


def _within(board: Leaderboard, curves: Curves, axis: str, wanted: Amount) -> str:
    """Return the advice for an amount within the measured range, by scores interpolated between budgets.

    No arm is recommended if an arm behind it has the higher mean over their common seeds at the budget below or above.
    """
    scores = scores_at(curves, wanted.value)
    pairs = compare(scores, board.family)
    wins = Counter(first for first, _ in pairs)  # every pair names the arm with the higher mean first
    order = sorted(scores, key=lambda arm: -wins[arm])
    amounts = {x for by_seed in curves.values() for curve in by_seed.values() for x, _ in curve}
    below = max((x for x in amounts if x <= wanted.value * NEAR), default=wanted.value)
    above = min((x for x in amounts if x >= wanted.value / NEAR), default=wanted.value)
    sides = [scores_at(curves, x) for x in (below, above)]
    overtaken = []
    for arm in (arm for arm in order[1:] if pairs[order[0], arm].claimed):
        both = [(side.get(order[0], {}), side.get(arm, {})) for side in sides]
        if any(sum(one[seed] - two[seed] for seed in one.keys() & two.keys()) < 0 for one, two in both):
            overtaken.append(named(axis, arm))
    if overtaken:
        return (
            f"There is no recommendation for {wanted}: {named(axis, order[0])} and {listing(overtaken)} change places "
            f"between the budgets on either side of this amount."
        )
    if len(order) < 2:
        return f"There is no recommendation for {wanted}: fewer than two arms have a score there."
    return _first_of(board, order, pairs, axis, wanted)


def _first_of(
    board: Leaderboard, order: Sequence[str], pairs: Mapping[tuple[str, str], Compared], axis: str, wanted: Amount
) -> str:
    first = order[0]
    rivals = [arm for arm in order[1:] if not pairs[first, arm].claimed]
    if rivals:
        among = listing([named(axis, arm) for arm in (first, *rivals)])
        behind = [named(axis, arm) for arm in order[1:] if arm not in rivals]
        rest = f" Behind these, and not recommended: {listing(behind)}." if behind else ""
        reason = f"with {seeds([pairs[first, arm].estimate.n for arm in order[1:]])}, {among} cannot be told apart"
        if not all(pairs[first, arm].declared for arm in rivals):
            reason = f"no comparison that was declared beforehand puts one of {among} ahead of the others"
        return f"For {wanted} there is no single arm to recommend: {reason}.{rest}"
    if reason := _reason_against(board, axis, first):
        return (
            f"{reason} So there is no recommendation for {wanted}, though {named(axis, first)} is ahead of the others."
        )
    e = pairs[first, order[1]].estimate
    how = f"paired, {seeds([e.n])}" + ("" if e.df is None else f", {freedom(e.df)}")
    return (
        f"For {wanted}: take {named(axis, first)}. It is ahead of every other arm, of {named(axis, order[1])} by "
        f"{interval(e.mean, e.half)} points of {board.label} ({how})."
    )


def _reason_against(board: Leaderboard, axis: str, arm: str) -> str:
    cell = next((cell for cell in board.at(board.budget) if cell.arm == arm), None)
    if cell is None or (cell.gain is None and cell.estimate.mean >= words_score(board)):
        return ""
    return caveat(board, board.budget, [arm], {arm: named(axis, arm)})


@dataclass(frozen=True)
class Extension:
    """The last three budgets of one arm: `amounts` spent, and the `scores` of each seed that has all of them."""

    amounts: tuple[float, ...]
    scores: Mapping[int, tuple[float, ...]]

    @property
    def slope(self) -> Estimate:
        """The gain in points for each doubling of compute, by least squares over the three budgets."""
        return t_interval(self._slope(ys) for ys in self.scores.values())

    def bend(self, level: float = LEVEL) -> Estimate:
        """Return the gain per doubling between the last two budgets, minus the gain between the first two."""
        one, two = (math.log2(b / a) for a, b in itertools.pairwise(self.amounts))
        return t_interval(((c - b) / two - (b - a) / one for a, b, c in self.scores.values()), level)

    def line(self, amount: float) -> dict[int, float]:
        """Return the height of each seed's straight line at an amount: the upper bound beyond the largest budget."""
        place = math.log2(amount) - math.fsum(map(math.log2, self.amounts)) / len(self.amounts)
        return {seed: math.fsum(ys) / len(ys) + self._slope(ys) * place for seed, ys in self.scores.items()}

    def band(self, amount: float) -> tuple[float, float]:
        """Return the lower end of the lower bound's 95 % interval, and the upper end of the upper bound's."""
        low, high = t_interval(ys[-1] for ys in self.scores.values()).low, t_interval(self.line(amount).values()).high
        assert low is not None and high is not None  # `extend` requires two seeds
        return low, max(low, min(BEST, high))

    @property
    def refusal(self) -> str:
        """Why the arm is not extended, as the predicate of a sentence about it; "" if it is extended."""
        slope, bend, slowing = self.slope, self.bend(), self.bend(SLOWING).high
        if slope.low is None or slope.low <= 0:
            return (
                f"does not measurably rise over the last three budgets ({interval(slope.mean, slope.half, True)} "
                f"points per doubling), which may be a ceiling or a plateau before a late start"
            )
        if slowing is None or slowing >= 0:
            return (
                f"does not measurably slow down over the last three budgets (its gain per doubling changed by "
                f"{interval(bend.mean, bend.half, True)} points), so nothing bounds its rise"
            )
        return ""

    def _slope(self, ys: Sequence[float]) -> float:
        xs = [math.log2(amount) for amount in self.amounts]
        middle = math.fsum(xs) / len(xs)
        rises = math.fsum((x - middle) * y for x, y in zip(xs, ys, strict=True))
        return rises / math.fsum((x - middle) ** 2 for x in xs)


def points_by_arm(board: Leaderboard, column: str) -> dict[str, Points]:
    """Return for each arm and budget the amount spent, the mean of a column of the runs, and the score of each seed."""
    points_of: dict[str, list[tuple[float, Scores]]] = {}
    for cell in board.cells:
        if cell.spent[column] > 0:
            points_of.setdefault(cell.arm, []).append((cell.spent[column], cell.scores))
    return {arm: sorted(points, key=lambda point: point[0]) for arm, points in points_of.items()}


def extend(points: Points) -> Extension | None:
    """Return the extension of an arm; None for fewer than three budgets, or two seeds with all of the last three."""
    last = points[-FEWEST:]
    amounts = tuple(amount for amount, _ in last)
    if len(last) < FEWEST or any(b < APART * a for a, b in itertools.pairwise(amounts)):
        return None
    shared = sorted(set.intersection(*(set(scores) for _, scores in last)))
    return Extension(amounts, {s: tuple(scores[s] for _, scores in last) for s in shared}) if len(shared) > 1 else None


@dataclass(frozen=True)
class Lead:
    """The answer to whether the leader at the largest budget would still lead at some larger amount.

    `margins` are its score at the largest budget minus the upper bound of each other arm at that amount, paired by
    seed. `refusal` is a clause that says why nothing is claimed; it is "" if the lead is kept.
    """

    first: str
    margins: Mapping[str, Estimate]
    refusal: str


def leader_beyond(arms: Mapping[str, Points], amount: float, family: Family = NOTHING) -> Lead:
    """Return whether the leader keeps its lead in the worst case: it gains no more, and others keep their gain.

    Only the leader at the largest budget can be put forward, so the measured order is never contradicted. Its margins
    over the other arms are corrected for their number (Bonferroni). If a family of comparisons was declared
    beforehand, only these can show that it leads.
    """
    ends = [points[-1][0] for points in arms.values()]
    last = {arm: points[-1][1] for arm, points in arms.items()}
    first, *rivals = sorted(last, key=lambda arm: -math.fsum(last[arm].values()) / len(last[arm]))
    if max(ends) > SAME * min(ends):
        return Lead(first, {}, "the largest budgets of the arms are not equal")
    pairs = compare(last, family)
    level = [rival for rival in rivals if (first, rival) not in pairs or not pairs[first, rival].claimed]
    if level:
        return Lead(first, {}, f"at the largest budget {first} is not shown to be ahead of {listing(level)}")
    extensions: dict[str, Extension] = {}
    for arm in (*rivals, first):
        extension = extend(arms[arm])
        if extension is None:
            return Lead(first, {}, f"{arm} was not run at {FEWEST} budgets with two seeds each")
        if arm != first and extension.refusal:
            return Lead(first, {}, f"{arm} {extension.refusal}")
        extensions[arm] = extension
    if extensions[first].slope.mean < 0:
        return Lead(first, {}, f"{first} is ahead at the largest budget, but falls towards it")
    return _worst_case(first, {arm: extensions[arm] for arm in arms}, amount)


def _worst_case(first: str, extensions: Mapping[str, Extension], amount: float) -> Lead:

    def margin(arm: str, level: float = LEVEL) -> Estimate:
        line = extensions[arm].line(amount)
        return t_interval((ends[seed] - line[seed] for seed in sorted(ends.keys() & line.keys())), level)

    ends = {seed: ys[-1] for seed, ys in extensions[first].scores.items()}
    rivals = [arm for arm in extensions if arm != first]
    level = 1 - (1 - LEVEL) / max(1, len(rivals))
    open_ = [arm for arm in rivals if (margin(arm, level).low or 0.0) <= 0]
    lasted = "its gain per doubling lasted" if len(open_) == 1 else "their gain per doubling lasted"
    refusal = f"{first} is ahead at the largest budget, but {listing(open_)} could overtake it if {lasted}"
    return Lead(first, {arm: margin(arm) for arm in rivals}, refusal if open_ else "")


def _beyond(board: Leaderboard, axis: str, wanted: Amount, far: float) -> str:
    """Return the advice for an amount `far` times the largest budget, by the worst case of `leader_beyond`."""
    arms = {named(axis, arm): points for arm, points in points_by_arm(board, wanted.column).items()}
    family = replace(board.family, pairs=tuple((named(axis, a), named(axis, b)) for a, b in board.family.pairs))
    lead = leader_beyond(arms, wanted.value, family)
    if lead.refusal:
        return f"There is no recommendation for {wanted}, {far:.3g} times beyond what was measured: {lead.refusal}."
    first = next(cell.arm for cell in board.at(board.budget) if named(axis, cell.arm) == lead.first)
    if reason := _reason_against(board, axis, first):
        return f"{reason} So there is no recommendation for {wanted}, though {lead.first} would be ahead of the others."
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
