"""Figures of scores against compute, with every mark at the amount that was spent. Each is one `svg` element.

A small mark is a run, and a large one the mean over pre-training seeds, with a bar for its 95 % t interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.report.comparison.boards import Board, Cell
from workbench.report.figures import strips, svg
from workbench.report.figures.arm_styles import (
    Axis,
    Style,
    crowded,
    ends,
    levels,
    log_range,
    log_ticks,
    score_axis,
    span,
)
from workbench.report.figures.strips import Tips
from workbench.report.figures.svg import COLOURS
from workbench.report.formatting import interval, points, power, seeds, short
from workbench.report.load.frames import Frames
from workbench.spec.published import MEASURED, Point, points_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED = ("ELECTRA-Small", "BERT-Base", "ELECTRA-Base", "ELECTRA-1.75M")  # labelled also in a narrow figure
WIDE = 600  # CSS pixels; wider figures have more labels
CROWDED = (
    "ELECTRA-400K",
    "RoBERTa-100K",
    "RoBERTa-500K",
    "XLNet-Large",
    "BERT-Large, theirs",
)  # not labelled, as labels would overlap: named in tool tips and in the table below
CHARACTER = 6.0  # points, the usual width of a character of a label
CUT_OFF = "Intervals that extend beyond the axis are cut off; they are complete in the tables"


def against(
    board: Board, frames: Frames, looks: Mapping[str, Style], axis: Axis, rows: Mapping[str, int],
    size: tuple[int, int], name: str, strip: bool = False, legend: bool = False,
) -> tuple[str, list[str]]:  # fmt: skip
    """Return the figure of scores against compute on a log axis, and remarks for its caption.

    It is "" if some arm spent nothing. Every mark is at the amount that its runs spent. With `strip`, the runs and
    intervals of each budget are drawn side by side below; without it, they are drawn at the means, unless marks of arms
    would overlap. `rows` maps run ids to their row in the table of runs, to which marks link. `size` is in CSS pixels.
    The page has its own legend; with `legend`, one is drawn inside, for a figure in a separate file.
    """
    if not all(cell.spent[axis.column] > 0 for cell in board.cells):
        return "", []
    wide = size[0] > WIDE
    published = published_points(board, axis)
    apart = not strip and not crowded(board, axis.column)
    tips = Tips()
    with svg.drawing(name, 13):
        figure, (ax, *others) = strips.axes(size, strip)
        ax.set_xscale("log")
        low, high = log_range([*(c.spent[axis.column] for c in board.cells), *(p.flops for p in published)])
        ax.set_xlim(low, high)
        lines = levels(board)
        cut = _limits(ax, board, lines, published, strip or apart)
        published_marks(ax, published, wide, tips)
        untrained(ax, board, tips, frames.by_id(), rows)
        baselines(ax, lines)
        for arm in board.arms:
            _arm(ax, [c for c in board.cells if c.arm == arm], looks[arm], axis, apart, tips)
            if apart:
                _runs(ax, board, arm, looks[arm], axis, tips, frames.by_id(), rows)
        line_labels(ax, lines)
        if legend:
            ax.legend([looks[arm].handle() for arm in board.arms], [short(arm) for arm in board.arms], frameon=False)
        log_ticks(ax, low, high, 7 if wide else 4)
        ax.set_xlabel(f"{axis.label} (log scale)")
        if others:
            _strip(others[0], board, looks, axis, rows, tips, lines, wide)
        for one in (ax, *others):
            score_axis(one, short(board.label, 60 if wide else 48))
        label = f"{board.label} against {axis.label}: a curve for each arm; the numbers are in the tables"
        return svg.write(figure, name, label, tips), [CUT_OFF] * cut


def published_points(board: Board, axis: Axis) -> list[Point]:
    """Return the published models of a figure: those measured here, and the paper's results if they are comparable.

    The stated FLOPs of models measured here are drawn on every axis of FLOPs; those without are only in tables.
    """
    of_paper = points_of(board.label, board.tasks) if axis.column == "flops_paper" else ()
    stated = [model for model in board.measured if not math.isnan(model.flops)]
    return [*of_paper, *(stated if axis.column.startswith("flops_") else ())]


def _strip(
    ax: Axes, board: Board, looks: Mapping[str, Style], axis: Axis, rows: Mapping[str, int], tips: Tips,
    lines: Mapping[str, float], wide: bool,
) -> None:  # fmt: skip
    """Draw the arms of each budget side by side, with lines for the untrained encoder and the baselines."""
    strips.by_budget(ax, board, looks, axis, rows, tips)
    for line, value in lines.items():
        style: Any = "-" if line == "untrained" else (0, (1.5, 2.5))
        ax.axhline(value, color=COLOURS["muted"], lw=1, ls=style, zorder=1)
    ax.tick_params(axis="x", labelsize=13 if wide else 10)
    ax.set_xlabel("each grey block is one budget, with its arms side by side" if wide else "one block for each budget")


def _runs(
    ax: Axes, board: Board, arm: str, look: Style, axis: Axis, tips: Tips, runs: Mapping[str, Mapping[str, Any]],
    rows: Mapping[str, int],
) -> None:  # fmt: skip
    """Draw every run of an arm at the amount that it spent."""
    marks = []
    for r in (r for cell in board.cells if cell.arm == arm for r in cell.runs):
        score, spent = board.run_scores[r], float(runs[r][axis.column])
        tip = f"{arm}, seed {runs[r]['seed']}: {points(score, 2)} at {axis.say(spent)}\n{r}"
        marks.append((spent, score, (tip, rows[r])))
    strips.run_marks(ax, marks, look, tips, len(board.run_scores), 5, 5)


def _arm(ax: Axes, cells: list[Cell], look: Style, axis: Axis, bars: bool, tips: Tips) -> None:
    """Draw the means of one arm and the curve through them; with `bars`, also their intervals."""
    means = sorted(((c.spent[axis.column], c) for c in cells), key=lambda mean: mean[0])
    ax.plot(
        [x for x, _ in means], [c.estimate.mean for _, c in means], color=look.colour, ls=look.dashes, lw=2, zorder=3
    )
    for x, cell in means:
        e, gid = cell.estimate, f"tip-{len(tips)}"
        if bars and e.half is not None:
            ax.errorbar(x, e.mean, yerr=e.half, color=look.colour, capsize=4, lw=1.5, zorder=3)
        tips[gid] = (f"{cell.arm}: {interval(e.mean, e.half)}, {seeds([e.n])}, {cell.budget}, {axis.say(x)}", "")
        ax.plot(x, e.mean, look.marker, ms=9, color=look.colour, mew=0, gid=gid, zorder=4)


def untrained(
    ax: Axes, board: Board, tips: Tips, runs: Mapping[str, Mapping[str, Any]], rows: Mapping[str, int]
) -> None:
    """Draw the untrained encoders as a line and band, with marks at the left end.

    They spent nothing, so they have no position on a log axis.
    """
    if board.untrained is None:
        return
    estimate = board.untrained.estimate
    if estimate.low is not None and estimate.high is not None:
        ax.axhspan(estimate.low, estimate.high, color=COLOURS["band"], lw=0, zorder=0)
    ax.axhline(estimate.mean, color=COLOURS["muted"], lw=1.5, zorder=1)
    style: Any = {"ms": 9, "mew": 1.5, "color": COLOURS["muted"], "transform": ax.get_yaxis_transform()}
    scores = [board.run_scores[r] for r in board.untrained.runs]
    if len(board.run_scores) > strips.MOST_LINKED:
        ax.plot([0.012] * len(scores), scores, "_", **style)
        return
    for r, score in zip(board.untrained.runs, scores, strict=True):
        gid = f"tip-{len(tips)}"
        tips[gid] = (f"untrained, seed {runs[r]['seed']}: {points(score, 2)}\n{r}", f"run-{rows[r]}")
        ax.plot(0.012, score, "_", gid=gid, **style)


def _limits(ax: Axes, board: Board, lines: Mapping[str, float], published: Sequence[Point], bars: bool) -> bool:
    """Set the limits of y to contain every point. Returns whether an interval (drawn with `bars`) is cut off."""
    ys = [*board.run_scores.values(), *lines.values(), *(p.score for p in published)]
    reach = ends([*(board.cells if bars else ()), *([board.untrained] if board.untrained else [])])
    bottom, top, cut = span(ys, reach)
    ax.set_ylim(bottom, top)
    return cut


def baselines(ax: Axes, lines: Mapping[str, float]) -> None:
    """Draw dotted lines at the baselines, but not at the untrained encoder, whose line is solid."""
    for name, value in lines.items():
        if name != "untrained":
            ax.axhline(value, color=COLOURS["muted"], lw=1, ls=(0, (1.5, 2.5)), zorder=1)


def line_labels(ax: Axes, lines: Mapping[str, float]) -> None:
    """Label each horizontal line at its right end, or at the left if fewer of the marks drawn so far are there.

    Labels of close lines are moved apart.
    """
    low, high = ax.get_ylim()
    gap = (high - low) * 0.045
    marks = _marks(ax)
    last = -math.inf
    for name, value in sorted(lines.items(), key=lambda item: item[1]):
        last = max(value + gap * 0.2, last + gap)
        label = f"{'untrained encoder' if name == 'untrained' else short(name)} {points(value)}"
        bottom, top = (last - gap / 2 - low) / (high - low), (last + 1.5 * gap - low) / (high - low)
        xs = [x for x, y in marks if bottom < y < top]
        width = len(label) * CHARACTER * ax.figure.dpi / 72 / ax.bbox.width
        right = sum(x > 1 - width for x in xs) <= sum(x < width for x in xs)
        ax.annotate(
            label, (0.995 if right else 0.005, last), xycoords=("axes fraction", "data"),
            ha="right" if right else "left", va="bottom", fontsize=11, color=COLOURS["muted"], zorder=6,
        )  # fmt: skip


def _marks(ax: Axes) -> list[tuple[float, float]]:
    """Return the positions of all marks as fractions of the width and the height of the axes."""
    inverse = ax.transAxes.inverted()
    drawn = [line for line in ax.lines if line.get_marker() not in ("None", "", " ", None)]
    return [
        (float(x), float(y))
        for line in drawn
        for x, y in inverse.transform(line.get_transform().transform(line.get_xydata()))
    ]


def published_marks(ax: Axes, published: Sequence[Point], wide: bool, tips: Tips) -> None:
    """Draw published models as open marks, which differ from all marks of runs; with `wide`, most with their names."""
    for point in published:
        marker = {"ELECTRA": "*", "BERT": "h", MEASURED: "X"}.get(point.family, "d")
        gid = f"tip-{len(tips)}"
        kind = f", published, {MEASURED}" if point.family == MEASURED else ""
        tips[gid] = (f"{point.name}{kind}: {points(point.score)} at {power(point.flops)} FLOPs\n{point.source}", "")
        ax.plot(point.flops, point.score, marker, ms=8, mfc="none", mec=COLOURS["paper"], mew=1.2, zorder=2, gid=gid)
        if (wide and point.name not in CROWDED) or point.name in NAMED:
            below = point.family != "ELECTRA"
            ax.annotate(
                short(point.name), (point.flops, point.score), xytext=(6 if below else -6, -10 if below else 4),
                textcoords="offset points", ha="left" if below else "right", fontsize=9, color=COLOURS["paper"],
            )  # fmt: skip
