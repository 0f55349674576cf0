"""The figure of fitted power laws: what was measured, the fit through it, and, drawn as such, beyond."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.report import compute, svg
from workbench.report.compute import FEWEST, REACH, Crossing, Fit
from workbench.report.frames import Frames
from workbench.report.marks import Axis, Style, log_ticks
from workbench.report.svg import COLOURS
from workbench.report.tables import Board
from workbench.report.words import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def fits(board: Board, frames: Frames, spent: str) -> dict[str, Fit]:
    """Arm -> its power law over a column of the runs, where it has three budgets or more."""
    if len(board.budgets) < FEWEST:
        return {}
    found = {arm: compute.fit(seeds) for arm, seeds in compute.curves(board, frames, spent).items()}
    return {arm: fit for arm, fit in found.items() if fit is not None}


def figure(
    board: Board, frames: Frames, looks: Mapping[str, Style], axis: Axis, size: tuple[int, int], name: str
) -> str:
    """Every arm's fit over one axis of compute; "" without any. `size` is in CSS pixels."""
    found = fits(board, frames, axis.column)
    if not found:
        return ""
    low, high = min(f.low for f in found.values()), max(f.high for f in found.values())
    with svg.drawing(name, 13):
        made = svg.figure(*size)
        ax = made.subplots()
        ax.set_xscale("log")
        ax.set_xlim(low / 1.3, high * REACH)
        ax.axvspan(high, high * REACH, color=COLOURS["band"], lw=0, zorder=0)
        place = (math.sqrt(high * high * REACH), 0.02)
        ax.annotate("beyond what was measured", place, xycoords=("data", "axes fraction"), ha="center", va="bottom",
                    fontsize=11, color=COLOURS["muted"])  # fmt: skip
        for arm, fit in found.items():
            _arm(ax, fit, looks[arm], high)
            for cell in board.cells:
                if cell.arm == arm:
                    _measured(ax, cell.spent[axis.column], cell.estimate.mean, cell.estimate.half, looks[arm])
        log_ticks(ax, low / 1.3, high * REACH, 7 if size[0] > 600 else 4)
        ax.set_xlabel(f"{axis.label} (log scale)")
        ax.set_ylabel(short(board.label, 48))
        ax.grid(axis="y")
        ax.set_axisbelow(True)
        return svg.write(made, name, f"power laws fitted to {board.label}; their numbers are in the table below")


def _arm(ax: Axes, fit: Fit, look: Style, high: float) -> None:
    for start, end, dashes in ((fit.low, fit.high, "-"), (fit.high, high * REACH, (0, (2, 3)))):
        xs = [start * (end / start) ** (i / 40) for i in range(41)]
        found = [fit.band(x) for x in xs]
        style: Any = dashes
        ax.plot(xs, [mean for mean, _, _ in found], color=look.colour, ls=style, lw=1.8, zorder=3)
        lows, highs = [low for _, low, _ in found], [top for _, _, top in found]
        if None not in lows and None not in highs:
            faint = 0.16 if dashes == "-" else 0.08
            ax.fill_between(xs, lows, highs, color=look.colour, alpha=faint, lw=0, zorder=1)  # type: ignore[arg-type]


def _measured(ax: Axes, x: float, mean: float, half: float | None, look: Style) -> None:
    if half is not None:
        ax.errorbar(x, mean, yerr=half, color=look.colour, capsize=3, lw=1.2, zorder=4)
    ax.plot(x, mean, look.marker, ms=7, color=look.colour, mew=0, zorder=5)


def crossing_words(found: Crossing, axis: Axis) -> str:
    """Where two fits meet, and how far that can be trusted."""
    low = f"from {axis.say(found.low)}" if found.low is not None else "from below what was measured"
    high = f"to {axis.say(found.high)}" if found.high is not None else "to beyond any extrapolation made here"
    where = "" if found.measured else ", beyond what was measured"
    return (
        f"{found.ahead_after} overtakes {found.ahead_before} at {axis.say(found.amount)}{where}; "
        f"{low} {high} their order is open."
    )
