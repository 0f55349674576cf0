"""The figure of scores during training: a line for each arm through its points, against the compute spent so far.

Marks are means over pre-training seeds with 95 % t intervals. A hollow mark is a point before the end of a run whose
learning rate decays; a run that ended there would have finished its decay by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.report.comparison.boards import Board
from workbench.report.comparison.training_points import Place, lines
from workbench.report.figures import plots, svg
from workbench.report.figures.arm_styles import Axis, Style, levels, log_range, log_ticks, score_axis, span
from workbench.report.figures.strips import Tips
from workbench.report.figures.svg import COLOURS
from workbench.report.formatting import interval, seeds, short
from workbench.report.load.frames import Frames
from workbench.report.load.run_files import END

if TYPE_CHECKING:
    from matplotlib.axes import Axes

APART = 0.004  # distance between the intervals of two arms, as a share of the width of the figure
HOLLOW = "before the end of the learning-rate decay"
NOTE = (
    "A line joins the points during one training, as means over pre-training seeds; bars are 95 % t intervals of each "
    "mean, drawn slightly aside. The last point of a line is the end of training"
)
HOLLOW_NOTE = (
    "Hollow marks are points before the end of a run whose learning rate decays: a run that ended there would have "
    "finished the decay and usually scored higher, so these lines are below the scores of runs with as much compute"
)


def draw(
    board: Board, frames: Frames, looks: Mapping[str, Style], axis: Axis, rows: Mapping[str, int],
    size: tuple[int, int], name: str, legend: bool = False,
) -> tuple[str, list[str]]:  # fmt: skip
    """Return the figure of scores against compute on a log axis, and remarks for its caption."""
    wide = size[0] > plots.WIDE
    tips: Tips = {}
    remarks = [NOTE, *([HOLLOW_NOTE] if any(place.unfinished for place in board.places) else [])]
    with svg.drawing(name, 13):
        figure = svg.figure(*size)
        ax = figure.subplots()
        ax.set_xscale("log")
        low, high = log_range([place.spent[axis.column] for place in board.places])
        ax.set_xlim(low, high)
        baselines = levels(board)
        bottom, top, cut = _limits(board, baselines)
        ax.set_ylim(bottom, top)
        remarks += ["Intervals that reach beyond the axis are cut off"] if cut else []
        plots.untrained(ax, board, tips, frames.by_id(), rows)
        plots.baselines(ax, baselines)
        for number, arm in enumerate(board.arms):
            aside = (high / low) ** (APART * (number - (len(board.arms) - 1) / 2))
            for line_of_arm in lines(board.places, arm):
                _line(ax, line_of_arm, looks[arm], axis, aside, tips)
        plots.line_labels(ax, baselines)
        _legend(ax, board, looks, legend)
        log_ticks(ax, low, high, 7 if wide else 4)
        ax.set_xlabel(f"{axis.label} (log scale)" if wide else axis.label.partition(",")[0])
        score_axis(ax, short(board.label, 60 if wide else 40))
        label = f"{board.label} during training against {axis.label}: a line for each arm; numbers are in points.csv"
        return svg.write(figure, name, label, tips), remarks


def _limits(board: Board, baselines: Mapping[str, float]) -> tuple[float, float, bool]:
    """Return the limits of the score axis, and whether an interval is cut off (see `marks.span`)."""
    estimates = [place.estimate for place in board.places]
    ends = [end for e in estimates for end in (e.low, e.high) if end is not None]
    return span([*(e.mean for e in estimates), *baselines.values()], ends)


def _line(ax: Axes, line: Sequence[Place], look: Style, axis: Axis, aside: float, tips: Tips) -> None:
    """Draw the points of one arm at one budget and their line; intervals are shifted by the factor `aside`."""
    marks = [(place.spent[axis.column], place.estimate, place) for place in line]
    ax.plot([x for x, _, _ in marks], [e.mean for _, e, _ in marks], color=look.colour, ls=look.dashes, lw=2, zorder=3)
    for x, e, place in marks:
        if e.half is not None:
            ax.errorbar(x * aside, e.mean, yerr=e.half, color=look.colour, capsize=3, lw=1.2, alpha=0.8, zorder=3)
        gid = f"tip-{len(tips)}"
        at = "the end of training" if place.mark == END else f"{place.mark} of its budget"
        tips[gid] = (f"{place.arm}: {interval(e.mean, e.half)}, {seeds([e.n])}, {at}, {axis.say(x)}", "")
        fill: dict[str, Any] = {"mfc": "none", "mec": look.colour, "mew": 1.5} if place.unfinished else {"mew": 0}
        ax.plot(x, e.mean, look.marker, ms=8, color=look.colour, gid=gid, zorder=4, **fill)


def _legend(ax: Axes, board: Board, looks: Mapping[str, Style], arms: bool) -> None:
    """Add a legend for hollow marks, and with `arms` also for the arms."""
    from matplotlib.lines import Line2D

    handles = [looks[arm].handle() for arm in board.arms] if arms else []
    names = [short(arm) for arm in board.arms] if arms else []
    if any(place.unfinished for place in board.places):
        ink = COLOURS["ink"]
        handles.append(Line2D([], [], ls="", marker="o", ms=8, mfc="none", mec=ink, mew=1.5))
        names.append(HOLLOW)
    if handles:
        above: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 3, "borderaxespad": 0.2}
        ax.legend(handles, names, frameon=False, fontsize=11, **above)
