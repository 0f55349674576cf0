"""Styles of arms, axes and their limits, and readable ticks, shared by all figures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.report.comparison.boards import Board, Cell
from workbench.report.figures.svg import COLOURS, SERIES
from workbench.report.formatting import TIMES, count, duration, points, power, ten_to

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (3, 1.5)))
SAME = 1.02  # amounts of compute closer than this count as equal
CLOSE = 1.06  # amounts closer than this have overlapping marks
KNOWN = ("rtd", "electra-15", "replace-mlm", "all-tokens-mlm", "bert-mlm")
SHAPES = {
    "o": '<circle cx="15" cy="6" r="4.4"/>',
    "s": '<path d="M11 2h8v8h-8z"/>',
    "^": '<path d="M15 1l5 9.4h-10z"/>',
    "D": '<path d="M15 .6l5 5.4-5 5.4-5-5.4z"/>',
    "v": '<path d="M15 11l5-9.4h-10z"/>',
    "P": '<path d="M13 1.5h4v2.5h2.5v4h-2.5v2.5h-4v-2.5h-2.5v-4h2.5z"/>',
    "X": '<path d="M12 1l3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3-3-3z"/>',
    "p": '<path d="M15 1.2l4.8 3.5-1.8 5.6h-6l-1.8-5.6z"/>',
}


@dataclass(frozen=True)
class Style:
    """Colour, marker and dashes of an arm; any two of the three distinguish it from other arms."""

    index: int

    @property
    def name(self) -> str:
        """Return the CSS name of the colour: `s0` to `s7`."""
        return f"s{self.index % SERIES}"

    @property
    def colour(self) -> str:
        """Return the placeholder of the colour, which the page replaces (see `svg.COLOURS`)."""
        return COLOURS[self.name]

    @property
    def marker(self) -> str:
        """Return matplotlib's code of the marker."""
        return MARKERS[self.index % len(MARKERS)]

    @property
    def dashes(self) -> Any:
        """Return matplotlib's line style."""
        return DASHES[(self.index + self.index // SERIES) % len(DASHES)]

    def handle(self) -> Line2D:
        """Return the marker on its line, for the legend inside a figure."""
        from matplotlib.lines import Line2D

        return Line2D([], [], color=self.colour, ls=self.dashes, lw=2, marker=self.marker, ms=8, mew=0)

    def swatch(self) -> str:
        """Return the marker on its line as a small `svg` element, for legends and tables of the page."""
        dashes = "" if self.dashes == "-" else f' stroke-dasharray="{" ".join(map(str, self.dashes[1]))}"'
        line = f'<path d="M0 6h30" class="k-{self.name}" stroke-width="2"{dashes}/>'
        shape = f'<g class="f-{self.name}">{SHAPES[self.marker]}</g>'
        return f'<svg viewBox="0 0 30 12" aria-hidden="true">{line}{shape}</svg>'


@dataclass(frozen=True)
class Axis:
    """An x axis: a column of the table of runs, and its label."""

    column: str
    label: str

    def say(self, value: float) -> str:
        """Return an amount on this axis as text: `1.29×10¹⁸ FLOPs`, `3 min 20 s`, `15,625 steps`."""
        if self.column.startswith("flops"):
            return f"{power(value)} FLOPs"
        return duration(value) if self.column == "seconds" else f"{count(value)} {self.column}"


def styles(arms: Iterable[str]) -> dict[str, Style]:
    """Return a style for each arm; the objectives of KNOWN have fixed ones, and others get the next free ones."""
    arms = list(dict.fromkeys(arms))
    known = {arm: Style(KNOWN.index(arm)) for arm in arms if arm in KNOWN}
    free = itertools.count(len(KNOWN) if known else 0)
    return {arm: known[arm] if arm in known else Style(next(free)) for arm in arms}


def levels(board: Board) -> dict[str, float]:
    """Return the scores of the untrained encoder and of baselines near enough to be on one axis with the runs."""
    baselines = {name: board.baseline(name) for name in board.baselines}
    untrained = {} if board.untrained is None else {"untrained": board.untrained.estimate.mean}
    near = [*board.run_scores.values(), *untrained.values()]
    low, high = min(near), max(near)
    room = 0.7 * max(high - low, 1.0)
    return untrained | {n: v for n, v in baselines.items() if v is not None and low - room <= v <= high + room}


def off_axis(board: Board) -> list[str]:
    """Return the baselines that are too far from all other scores to be shown in figures, as text."""
    baselines = {name: board.baseline(name) for name in board.baselines}
    return [f"{n} ({points(v)})" for n, v in baselines.items() if v is not None and n not in levels(board)]


def ends(cells: Iterable[Cell]) -> list[float]:
    """Return both ends of the interval of each cell that has one."""
    return [end for c in cells for end in (c.estimate.low, c.estimate.high) if end is not None]


CUT_NOTE = "intervals that extend beyond the axis are cut off; they are complete in the table"


def span(xs: Sequence[float], ends: Sequence[float]) -> tuple[float, float, bool]:
    """Return the limits of an axis that contains every point `xs`, and whether an interval is cut off.

    `ends` are ends of intervals; those far beyond the points are cut off, so that the points stay legible.
    """
    low, high = min(xs), max(xs)
    reach = 0.6 * max(high - low, 1.0)
    bottom, top = min([low, *ends]), max([high, *ends])
    cut = bottom < low - reach or top > high + reach
    bottom, top = max(bottom, low - reach), min(top, high + reach)
    if top - bottom < 1e-6:
        bottom, top = bottom - 0.5, top + 0.5
    return bottom - 0.06 * (top - bottom), top + 0.08 * (top - bottom), cut


def score_axis(ax: Axes, label: str) -> None:
    """Label the axis of scores and add a grid behind everything that is drawn."""
    ax.set_ylabel(label)
    ax.grid(axis="y")
    ax.set_axisbelow(True)


def log_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the limits of a log axis, with some space around the values."""
    low, high = min(values), max(values)
    pad = max(10 ** (0.08 * math.log10(high / low)), 1.6)
    return low / pad, high * pad


def one_amount(board: Board, column: str, budget: str = "") -> bool:
    """Return whether all arms spent the same amount of a column, at one budget or (by default) over all budgets."""
    spent = [c.spent[column] for c in board.cells if not budget or c.budget == budget]
    return max(spent) <= SAME * min(spent)


def crowded(board: Board, column: str) -> bool:
    """Return whether marks of different arms would overlap at some budget, placed at what was spent."""
    for budget in board.budgets:
        spent = sorted(c.spent[column] for c in board.cells if c.budget == budget)
        if any(b <= CLOSE * a for a, b in itertools.pairwise(spent)):
            return True
    return False


def log_ticks(ax: Axes, low: float, high: float, most: int) -> None:
    """Set between three and `most` ticks at round numbers on a log axis."""
    from matplotlib.ticker import NullLocator

    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    finest = tuple(i / 10 for i in range(10, 100))
    for mantissas in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 6, 8), tuple(i / 2 for i in range(2, 20)), finest):
        ticks = [m * 10.0**d for d in decades for m in mantissas if low <= m * 10.0**d <= high]
        if len(ticks) >= 3:
            break
    shown: list[float] = []
    for value in ticks:  # only ticks whose labels do not overlap
        if not shown or math.log(value / shown[-1]) >= math.log(high / low) / most:
            shown.append(value)
    ax.set_xticks(shown, [log_tick(x) for x in shown])
    ax.xaxis.set_minor_locator(NullLocator())


def log_tick(value: float) -> str:
    """Return the label of a tick on a log axis: `20`, `0.5`, `10¹²`, `3×10¹²`."""
    exponent = math.floor(math.log10(value) + 1e-9)
    if -3 < exponent < 4:
        return f"{value:g}"
    mantissa = f"{value / 10.0**exponent:.4g}"
    return ten_to(exponent) if mantissa == "1" else f"{mantissa}{TIMES}{ten_to(exponent)}"


def tick(value: float) -> str:
    """Return the label of a tick on a linear axis: `0`, `20 k`, `0.5 M`, `4×10⁻⁴`."""
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 1e4:
        return count(value) if size >= 1e5 else f"{value / 1e3:g} k"
    if size >= 1e-2:
        return f"{value:.4g}".replace("-", "−")
    exponent = math.floor(math.log10(size) + 1e-9)
    return f"{value / 10**exponent:.3g}{TIMES}{ten_to(exponent)}"
