"""Scores as functions of what was spent: read off at one amount for all arms, and fitted by a power law.

Everything is done for each pre-training seed by itself and compared over seeds afterwards, so that intervals and pairs
mean what they mean everywhere else. `spent` is a column of the runs: FLOPs under a convention, tokens, steps, seconds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.report.frames import Frames
from workbench.report.statistics import LEVEL, Compared, Estimate, mean_and_sd, pairwise, t_interval, t_quantile
from workbench.report.tables import Board

Curve = tuple[tuple[float, float], ...]  # (spent, score), by what was spent
Curves = Mapping[str, Mapping[int, Curve]]  # arm -> seed -> its curve

NEAR = 1.01  # amounts closer than this are one amount: steps are whole numbers
REACH = 10.0  # an extrapolation further than this times what was measured is not made
BEST = 100.0  # the score at which nothing is left to gain, in points
FEWEST = 3  # budgets for a fit


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


@dataclass(frozen=True)
class Fit:
    """100 - score = scale * spent^-exponent, fitted for each seed by least squares of the logarithms.

    `lines` maps a seed to (intercept, slope) of log(100 - score) over log(spent); `low` and `high` are the ends of what
    was measured, `off` the largest distance of a mean score from the fit, in points.
    """

    lines: Mapping[int, tuple[float, float]]
    low: float
    high: float
    off: float

    @property
    def exponent(self) -> Estimate:
        return t_interval([-slope for _, slope in self.lines.values()])

    def scores(self, amount: float) -> dict[int, float]:
        """Seed -> fitted score."""
        return {s: BEST - math.exp(a + b * math.log(amount)) for s, (a, b) in self.lines.items()}

    def band(self, amount: float) -> tuple[float, float | None, float | None]:
        """Fitted score and its interval over seeds (Student t of log(100 - score)); no interval for one seed."""
        logs = [a + b * math.log(amount) for a, b in self.lines.values()]
        mean, sd = mean_and_sd(logs)
        if sd is None:
            return BEST - math.exp(mean), None, None
        half = t_quantile(LEVEL, len(logs)) * sd / math.sqrt(len(logs))
        return BEST - math.exp(mean), BEST - math.exp(mean + half), BEST - math.exp(mean - half)


def fit(seeds: Mapping[int, Curve]) -> Fit | None:
    """Of one arm, from the seeds with three budgets or more; None without any."""
    lines = {}
    for seed, curve in seeds.items():
        usable = [(math.log(x), math.log(BEST - y)) for x, y in curve if y < BEST]
        if len({round(x, 9) for x, _ in usable}) >= FEWEST:
            lines[seed] = _least_squares(usable)
    if not lines:
        return None
    places = sorted({x for seed in lines for x, _ in seeds[seed]})
    made = Fit(lines, places[0], places[-1], 0.0)
    misses = []
    for x in places:
        seen = [y for seed in lines for place, y in seeds[seed] if place == x]
        misses.append(abs(sum(seen) / len(seen) - made.band(x)[0]))
    return Fit(lines, places[0], places[-1], max(misses))


def _least_squares(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    n = len(points)
    mx, my = math.fsum(x for x, _ in points) / n, math.fsum(y for _, y in points) / n
    slope = math.fsum((x - mx) * (y - my) for x, y in points) / math.fsum((x - mx) ** 2 for x, _ in points)
    return my - slope * mx, slope


@dataclass(frozen=True)
class Crossing:
    """Where two fits meet. From `low` to `high` the paired interval of their difference holds zero; None is no end."""

    ahead_before: str
    ahead_after: str
    amount: float
    low: float | None
    high: float | None
    measured: bool


def crossings(fits: Mapping[str, Fit]) -> list[Crossing]:
    """Of every two arms that share two seeds, as far as an extrapolation is made (`REACH` beyond what was measured)."""
    found = []
    for (a, one), (b, two) in itertools.combinations(fits.items(), 2):
        shared = sorted(one.lines.keys() & two.lines.keys())
        lines = [tuple(p - q for p, q in zip(one.lines[s], two.lines[s], strict=True)) for s in shared]
        if len(lines) < 2:
            continue
        start, slope = (math.fsum(line[i] for line in lines) / len(lines) for i in (0, 1))
        low, high = max(one.low, two.low), min(one.high, two.high)
        if slope == 0 or not math.log(low) <= (place := -start / slope) <= math.log(high * REACH):
            continue
        ends = _undecided(lines, place, math.log(low / REACH), math.log(high * REACH))
        before, after = (a, b) if slope > 0 else (b, a)  # lines are of what is left to gain: less is better
        found.append(Crossing(before, after, math.exp(place), *ends, math.exp(place) <= high * NEAR))
    return sorted(found, key=lambda c: c.amount)


def _undecided(
    lines: Sequence[tuple[float, ...]], place: float, low: float, high: float
) -> tuple[float | None, float | None]:
    """The ends of the stretch around a crossing on which a paired t interval holds zero."""

    def open_(x: float) -> bool:
        e = t_interval([start + slope * x for start, slope in lines])
        return e.half is None or abs(e.mean) <= e.half

    step = (high - low) / 400
    left, right = place, place
    while left > low and open_(left):
        left -= step
    while right < high and open_(right):
        right += step
    return (math.exp(left) if left > low else None), (math.exp(right) if right < high else None)


def compared(scores: Mapping[str, Mapping[int, float]]) -> tuple[list[str], dict[tuple[str, str], Compared]]:
    """Arms by their mean, best first, and every two of them."""
    order = sorted(scores, key=lambda arm: -math.fsum(scores[arm].values()) / len(scores[arm]))
    return order, pairwise(scores)
