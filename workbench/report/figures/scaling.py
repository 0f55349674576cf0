"""Panels of the scores of each arm over compute, extended on grey ground by bounds beyond the largest budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.report.comparison import extrapolation
from workbench.report.comparison.boards import Board
from workbench.report.comparison.extrapolation import FEWEST, REACH, Extension, Points
from workbench.report.figures import svg
from workbench.report.figures.arm_styles import Axis, Style, log_ticks, span
from workbench.report.figures.svg import COLOURS
from workbench.report.formatting import points
from workbench.report.statistics.paired_comparison import Estimate, t_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (300, 220)  # CSS pixels
GRID = 41  # points along the edge of a band


@dataclass(frozen=True)
class ArmBeyond:
    """One arm beyond the budgets that were run: its panel, and its row in the table below.

    `slope` is its gain per doubling of compute over the last three budgets and `bend` the change of that gain, in
    points. `outlook` is its range of scores at ten times the largest budget, or the reason why there is none.
    """

    arm: str
    svg: str
    slope: Estimate | None
    bend: Estimate | None
    outlook: str


def beyond(board: Board, looks: Mapping[str, Style], axis: Axis, name: str) -> list[ArmBeyond]:
    """Return every arm beyond the budgets; none if there are too few budgets to extend any arm."""
    arms = extrapolation.measured(board, axis.column)
    if not arms or max(len(measured) for measured in arms.values()) < FEWEST:
        return []
    low = min(measured[0][0] for measured in arms.values())
    high = max(measured[-1][0] for measured in arms.values())
    limits = _limits(arms)
    rows = []
    for i, (arm, measured) in enumerate(arms.items()):
        svg = _panel(arm, arms, looks, axis, (low, high), limits, f"{name}-{i}")
        one = extrapolation.extension(measured)
        slope, bend = (None, None) if one is None else (one.slope, one.bend())
        rows.append(ArmBeyond(arm, svg, slope, bend, _outlook(one)))
    return rows


def _outlook(one: Extension | None) -> str:
    """Return the range of scores of an arm at ten times the largest budget, or the reason why there is none."""
    if one is None:
        return f"needs {FEWEST} budgets with two seeds each"
    low, high = one.band(one.end * REACH)
    return one.refusal or f"from {points(low)} to {points(high)}"


def _limits(arms: Mapping[str, Points]) -> tuple[float, float]:
    """Return the limits of the score axis, which all panels share (see `marks.span`)."""
    means, ends = [], []
    for measured in arms.values():
        for _, scores in measured:
            e = t_interval(scores.values())
            means.append(e.mean)
            ends += [end for end in (e.low, e.high) if end is not None]
        one = extrapolation.extension(measured)
        ends += one.band(one.end * REACH) if one is not None and not one.refusal else ()
    bottom, top, _ = span(means, ends)
    return bottom, top


def _panel(
    arm: str, arms: Mapping[str, Points], looks: Mapping[str, Style], axis: Axis, reach: tuple[float, float],
    limits: tuple[float, float], name: str,
) -> str:  # fmt: skip
    """Return the panel of one arm, with the others as faint lines; `reach` are the least and the largest amount."""
    low, high = reach
    one = extrapolation.extension(arms[arm])
    with svg.drawing(name, 11):
        figure = svg.figure(*SIZE)
        ax = figure.subplots()
        ax.set_xscale("log")
        ax.set_xlim(low / 1.3, high * REACH)
        ax.set_ylim(*limits)
        ax.axvspan(high, high * REACH, color=COLOURS["band"], lw=0, zorder=0)
        for other, measured in arms.items():
            if other != arm:
                means = [t_interval(scores.values()).mean for _, scores in measured]
                ax.plot([x for x, _ in measured], means, color=COLOURS["muted"], lw=0.8, alpha=0.5, zorder=1)
        extended = one is not None and not one.refusal
        if one is not None and extended:
            _extended(ax, one, looks[arm])
        _measured(ax, arms[arm], looks[arm])
        note = "not measured" if extended else "not extended"
        ax.annotate(note, (math.sqrt(REACH) * high, 0.02), xycoords=("data", "axes fraction"), ha="center",
                    va="bottom", fontsize=10, color=COLOURS["muted"])  # fmt: skip
        log_ticks(ax, low / 1.3, high * REACH, 4)
        ax.set_xlabel(axis.label if len(axis.label) < 40 else axis.label.partition(",")[0], fontsize=10)
        ax.grid(axis="y")
        ax.set_axisbelow(True)
        return svg.write(figure, name, f"scores of {arm} over {axis.label}; the numbers are in the table below")


def _measured(ax: Axes, measured: Points, look: Style) -> None:
    """Draw the means of an arm with their intervals and the line through them."""
    estimates = [(x, t_interval(scores.values())) for x, scores in measured]
    ax.plot([x for x, _ in estimates], [e.mean for _, e in estimates], color=look.colour, ls=look.dashes, lw=1.8)
    for x, e in estimates:
        if e.half is not None:
            ax.errorbar(x, e.mean, yerr=e.half, color=look.colour, capsize=3, lw=1.2, zorder=4)
        ax.plot(x, e.mean, look.marker, ms=6, color=look.colour, mew=0, zorder=5)


def _extended(ax: Axes, one: Extension, look: Style) -> None:
    """Draw the band between a constant score and the straight line, including the noise of both."""
    xs = [one.end * REACH ** (i / (GRID - 1)) for i in range(GRID)]
    bands = [one.band(x) for x in xs]
    ax.fill_between(
        xs, [low for low, _ in bands], [high for _, high in bands], color=look.colour, alpha=0.2, lw=0, zorder=2
    )
