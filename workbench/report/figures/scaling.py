"""The panels that show each arm's scores over compute and, on grey, how far they can be extended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.report.comparison import extrapolation
from workbench.report.comparison.boards import Board
from workbench.report.comparison.extrapolation import FEWEST, REACH, Extension, Points
from workbench.report.figures import svg
from workbench.report.figures.marks import Axis, Style, log_ticks, span
from workbench.report.figures.svg import COLOURS
from workbench.report.statistics.paired_comparison import Estimate, t_interval
from workbench.report.words import points

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (300, 220)  # CSS pixels
GRID = 41  # points along the edge of a band


@dataclass(frozen=True)
class ArmBeyond:
    """One arm beyond the budgets that were run: its panel, and its row in the table below.

    `slope` is its gain per doubling of compute over the last three budgets and `bend` the change of that gain, in
    points; `said` is its range at ten times the largest budget, or why there is none.
    """

    arm: str
    svg: str
    slope: Estimate | None
    bend: Estimate | None
    said: str


def beyond(board: Board, looks: Mapping[str, Style], axis: Axis, name: str) -> list[ArmBeyond]:
    """Return every arm beyond the budgets; nothing where there are too few budgets for any extension."""
    arms = extrapolation.measured(board, axis.column)
    if not arms or max(len(found) for found in arms.values()) < FEWEST:
        return []
    low = min(found[0][0] for found in arms.values())
    high = max(found[-1][0] for found in arms.values())
    limits = _limits(arms)
    made = []
    for i, (arm, found) in enumerate(arms.items()):
        svg = _panel(arm, arms, looks, axis, (low, high), limits, f"{name}-{i}")
        one = extrapolation.extension(found)
        slope, bend = (None, None) if one is None else (one.slope, one.bend())
        made.append(ArmBeyond(arm, svg, slope, bend, _range(one)))
    return made


def _range(one: Extension | None) -> str:
    """Return where an arm may be at ten times the largest budget, or why nothing can be said."""
    if one is None:
        return f"needs {FEWEST} budgets with two seeds each"
    low, high = one.band(one.end * REACH)
    return one.refusal or f"from {points(low)} to {points(high)}"


def _limits(arms: Mapping[str, Points]) -> tuple[float, float]:
    """The same range of scores for every panel, with room for the bands as far as that leaves the points legible."""
    means, ends = [], []
    for found in arms.values():
        for _, scores in found:
            e = t_interval(scores.values())
            means.append(e.mean)
            ends += [end for end in (e.low, e.high) if end is not None]
        one = extrapolation.extension(found)
        ends += one.band(one.end * REACH) if one is not None and not one.refusal else ()
    bottom, top, _ = span(means, ends)
    return bottom, top


def _panel(
    arm: str, arms: Mapping[str, Points], looks: Mapping[str, Style], axis: Axis, reach: tuple[float, float],
    limits: tuple[float, float], name: str,
) -> str:  # fmt: skip
    low, high = reach
    one = extrapolation.extension(arms[arm])
    with svg.drawing(name, 11):
        figure = svg.figure(*SIZE)
        ax = figure.subplots()
        ax.set_xscale("log")
        ax.set_xlim(low / 1.3, high * REACH)
        ax.set_ylim(*limits)
        ax.axvspan(high, high * REACH, color=COLOURS["band"], lw=0, zorder=0)
        for other, found in arms.items():
            if other != arm:
                means = [t_interval(scores.values()).mean for _, scores in found]
                ax.plot([x for x, _ in found], means, color=COLOURS["muted"], lw=0.8, alpha=0.5, zorder=1)
        extended = one is not None and not one.refusal
        if one is not None and extended:
            _extended(ax, one, looks[arm])
        _measured(ax, arms[arm], looks[arm])
        said = "not measured" if extended else "not extended"
        ax.annotate(said, (math.sqrt(REACH) * high, 0.02), xycoords=("data", "axes fraction"), ha="center",
                    va="bottom", fontsize=10, color=COLOURS["muted"])  # fmt: skip
        log_ticks(ax, low / 1.3, high * REACH, 4)
        ax.set_xlabel(axis.label if len(axis.label) < 40 else axis.label.partition(",")[0], fontsize=10)
        ax.grid(axis="y")
        ax.set_axisbelow(True)
        return svg.write(figure, name, f"scores of {arm} over {axis.label}; the numbers are in the table below")


def _measured(ax: Axes, found: Points, look: Style) -> None:
    estimates = [(x, t_interval(scores.values())) for x, scores in found]
    ax.plot([x for x, _ in estimates], [e.mean for _, e in estimates], color=look.colour, ls=look.dashes, lw=1.8)
    for x, e in estimates:
        if e.half is not None:
            ax.errorbar(x, e.mean, yerr=e.half, color=look.colour, capsize=3, lw=1.2, zorder=4)
        ax.plot(x, e.mean, look.marker, ms=6, color=look.colour, mew=0, zorder=5)


def _extended(ax: Axes, one: Extension, look: Style) -> None:
    """The band between staying level and the straight line; its edges hold the noise of both."""
    xs = [one.end * REACH ** (i / (GRID - 1)) for i in range(GRID)]
    bands = [one.band(x) for x in xs]
    ax.fill_between(
        xs, [low for low, _ in bands], [high for _, high in bands], color=look.colour, alpha=0.2, lw=0, zorder=2
    )
