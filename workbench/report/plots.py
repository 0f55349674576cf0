"""The figures of scores: against compute, and arms side by side. Each is one `svg` element.

Marks: a small point is a run, a large one the mean over pre-training seeds, its bar a 95 % t interval.
"""

from __future__ import annotations

import math
import statistics as plain
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from workbench.published import POINTS
from workbench.report import svg
from workbench.report.frames import Frames
from workbench.report.marks import Axis, Style, apart, levels, log_range, log_ticks, span
from workbench.report.statistics import Estimate
from workbench.report.svg import COLOURS
from workbench.report.tables import Board, Cell
from workbench.report.words import interval, points, power, seeds, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Tips = dict[str, tuple[str, str]]
NAMED = ("ELECTRA-Small", "BERT-Base", "ELECTRA-Base", "ELECTRA-1.75M")  # on a narrow figure
CROWD, WIDE = 300, 600  # more runs than this are not told apart in a figure narrower than this, in CSS pixels
CROWDED = (
    "ELECTRA-400K",
    "RoBERTa-100K",
    "RoBERTa-500K",
    "XLNet-Large",
    "BERT-Large, theirs",
)  # named when pointed at, and below


def against(
    board: Board,
    frames: Frames,
    looks: Mapping[str, Style],
    axis: Axis,
    rows: Mapping[str, int],
    size: tuple[int, int],
    name: str,
    legend: bool = False,
) -> tuple[str, list[str]]:
    """Score against what was spent, on a log axis, and remarks that belong in the caption; "" where nothing was.

    `rows` maps run ids to their row in the table of runs, which their points link to; `size` is in CSS pixels. The
    page has a legend of its own; a picture that leaves it needs one inside.
    """
    runs, wide = frames.by_id(), size[0] > WIDE
    spent = {r: float(runs[r][axis.column]) for cell in board.cells for r in cell.runs}
    if not all(value > 0 for value in spent.values()):
        return "", []
    published = board.label == "GLUE" and axis.column == "flops_paper"
    shift, remarks, tips = apart(board, spent), [], Tips()
    with svg.drawing(name, 13):
        figure = svg.figure(*size)
        ax = figure.subplots()
        ax.set_xscale("log")
        low, high = log_range([*spent.values(), *(p.flops for p in POINTS if published)])
        ax.set_xlim(low, high)
        lines = levels(board)
        if _limits(ax, board, lines, published):
            remarks.append("Intervals that reach beyond the axis are cut off; the tables have them in full")
        if any(factor != 1 for factor in shift.values()):
            one = len(board.budgets) == 1
            place = (
                f"All arms lie at about {axis.say(plain.fmean(spent.values()))}" if one else "Arms at the same place"
            )
            remarks.append(f"{place}; they are drawn side by side only to be told apart")
        if published:
            _published(ax, wide, tips)
        _untrained(ax, board, tips, runs, rows)
        for line, value in lines.items():
            if line != "untrained":
                ax.axhline(value, color=COLOURS["muted"], lw=1, ls=(0, (1.5, 2.5)), zorder=1)
        for arm in board.arms:
            mine = [c for c in board.cells if c.arm == arm]
            _arm(ax, mine, board, {r: x * shift[arm] for r, x in spent.items()}, looks[arm], tips)
            for cell in mine:
                _runs(ax, cell, board, spent, shift[arm], looks[arm], axis, tips, runs, rows)
        _line_labels(ax, lines)
        if legend:
            ax.legend([_key(looks[arm]) for arm in board.arms], [short(arm) for arm in board.arms], frameon=False)
        log_ticks(ax, low, high, 7 if wide else 4)
        ax.set_xlabel(f"{axis.label} (log scale)")
        ax.set_ylabel(short(board.label, 60 if wide else 48))
        ax.grid(axis="y")
        ax.set_axisbelow(True)
        label = f"{board.label} against {axis.label}: a curve per arm, a point per run; the numbers are in the tables"
        return svg.write(figure, name, label, tips), remarks


def _key(look: Style) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=look.colour, ls=look.dashes, lw=2, marker=look.marker, ms=8, mew=0)


def _runs(
    ax: Axes, cell: Cell, board: Board, spent: Mapping[str, float], shift: float, look: Style, axis: Axis, tips: Tips,
    runs: Mapping[str, Mapping[str, Any]], rows: Mapping[str, int],
) -> None:  # fmt: skip
    if len(runs) > CROWD and ax.get_figure(root=True).get_figwidth() * 72 < WIDE:  # type: ignore[union-attr]
        places = [spent[r] * shift for r in cell.runs]
        scores = [board.run_scores[r] for r in cell.runs]
        ax.plot(places, scores, look.marker, ms=5, color=look.colour, alpha=0.6, mew=0, zorder=5)
        return
    for r in cell.runs:
        score, gid = board.run_scores[r], f"tip-{len(tips)}"
        said = f"{cell.arm}, seed {runs[r]['seed']}: {points(score, 2)} at {axis.say(spent[r])}\n{r}"
        tips[gid] = (said, f"run-{rows[r]}")
        ax.plot(spent[r] * shift, score, look.marker, ms=5, color=look.colour, alpha=0.6, mew=0, gid=gid, zorder=5)


def _arm(ax: Axes, cells: list[Cell], board: Board, places: Mapping[str, float], look: Style, tips: Tips) -> None:
    """The means of one arm, their intervals, and the curve through them."""
    means = sorted((math.exp(sum(math.log(places[r]) for r in c.runs) / len(c.runs)), c.estimate, c) for c in cells)
    ax.plot([x for x, *_ in means], [e.mean for _, e, _ in means], color=look.colour, ls=look.dashes, lw=2, zorder=3)
    for x, estimate, cell in means:
        if estimate.half is not None:
            ax.errorbar(x, estimate.mean, yerr=estimate.half, color=look.colour, capsize=4, lw=1.5, zorder=3)
        gid = f"tip-{len(tips)}"
        said = f"{cell.arm}: {interval(estimate.mean, estimate.half)}, {seeds([estimate.n])}, {cell.budget}"
        tips[gid] = (said, "")
        ax.plot(x, estimate.mean, look.marker, ms=9, color=look.colour, mew=0, gid=gid, zorder=4)


def _untrained(
    ax: Axes, board: Board, tips: Tips, runs: Mapping[str, Mapping[str, Any]], rows: Mapping[str, int]
) -> None:
    """The untrained encoders spent nothing, so they have no place on a log axis: a band, and marks at its left end."""
    if board.untrained is None:
        return
    estimate = board.untrained.estimate
    if estimate.low is not None and estimate.high is not None:
        ax.axhspan(estimate.low, estimate.high, color=COLOURS["band"], lw=0, zorder=0)
    ax.axhline(estimate.mean, color=COLOURS["muted"], lw=1.5, zorder=1)
    for r in board.untrained.runs:
        gid = f"tip-{len(tips)}"
        tips[gid] = (f"untrained, seed {runs[r]['seed']}: {points(board.run_scores[r], 2)}\n{r}", f"run-{rows[r]}")
        place = ax.get_yaxis_transform()
        ax.plot(0.012, board.run_scores[r], "_", ms=9, mew=1.5, color=COLOURS["muted"], transform=place, gid=gid)


def _ends(cells: Iterable[Cell]) -> list[float]:
    return [end for c in cells for end in (c.estimate.low, c.estimate.high) if end is not None]


def _limits(ax: Axes, board: Board, lines: Mapping[str, float], published: bool) -> bool:
    """Room along y for every point; whether an interval is cut off."""
    ys = [*board.run_scores.values(), *lines.values(), *(p.glue for p in POINTS if published)]
    bottom, top, cut = span(ys, _ends([*board.cells, *([board.untrained] if board.untrained else [])]))
    ax.set_ylim(bottom, top)
    return cut


def _line_labels(ax: Axes, lines: Mapping[str, float]) -> None:
    """Words at the right end of the horizontal lines, moved apart where lines are close."""
    low, high = ax.get_ylim()
    gap = (high - low) * 0.045
    last = -math.inf
    for name, value in sorted(lines.items(), key=lambda item: item[1]):
        last = max(value + gap * 0.2, last + gap)
        said = "untrained encoder" if name == "untrained" else short(name)
        ax.annotate(
            f"{said} {points(value)}", (0.995, last), xycoords=("axes fraction", "data"), ha="right", va="bottom",
            fontsize=11, color=COLOURS["muted"], zorder=6,
        )  # fmt: skip


def _published(ax: Axes, wide: bool, tips: Tips) -> None:
    """The paper's own models, open marks, apart from anything measured here."""
    for point in POINTS:
        marker = {"ELECTRA": "*", "BERT": "h"}.get(point.family, "d")
        gid = f"tip-{len(tips)}"
        tips[gid] = (f"{point.name}: {points(point.glue)} at {power(point.flops)} FLOPs\n{point.source}", "")
        ax.plot(point.flops, point.glue, marker, ms=8, mfc="none", mec=COLOURS["paper"], mew=1.2, zorder=2, gid=gid)
        if (wide and point.name not in CROWDED) or point.name in NAMED:
            below = point.family != "ELECTRA"
            ax.annotate(
                point.name, (point.flops, point.glue), xytext=(6 if below else -6, -10 if below else 4),
                textcoords="offset points", ha="left" if below else "right", fontsize=9, color=COLOURS["paper"],
            )  # fmt: skip


def side_by_side(board: Board, looks: Mapping[str, Style], rows: Mapping[str, int], wide: bool, name: str) -> str:
    """Arms of the largest budget, one below the other: their score, and their gain over the untrained encoder."""
    cells, tips = board.at(board.budget)[::-1], Tips()
    gains = [c for c in cells if c.gain is not None]
    with svg.drawing(name, 13):
        height = 62 + 36 * len(cells)
        figure = svg.figure(920 if wide else 380, height if wide or not gains else 2 * height)
        several = 2 if gains else 1
        axes = figure.subplots(*((1, several) if wide else (several, 1)), squeeze=False).ravel()
        lines = levels(board)
        bare = board.untrained.estimate if board.untrained else None
        if bare is not None and bare.low is not None and bare.high is not None:
            axes[0].axvspan(bare.low, bare.high, color=COLOURS["band"], lw=0, zorder=0)
        for line, value in lines.items():
            style: Any = "-" if line == "untrained" else (0, (1.5, 2.5))
            axes[0].axvline(value, color=COLOURS["muted"], lw=1.2, ls=style, zorder=1)
        for y, cell in enumerate(cells):
            look = looks[cell.arm]
            _row(axes[0], y, cell.estimate, look)
            for seed, r in zip(sorted(cell.scores), cell.runs, strict=True):
                gid = f"tip-{len(tips)}"
                tips[gid] = (f"{cell.arm}, seed {seed}: {points(cell.scores[seed], 2)}\n{r}", f"run-{rows[r]}")
                place = (cell.scores[seed], y - 0.26)
                axes[0].plot(*place, look.marker, ms=5, color=look.colour, alpha=0.6, mew=0, gid=gid, zorder=4)
            if cell.gain is not None:
                _row(axes[1], y, cell.gain.estimate, look)
        axes[0].set_xlabel(short(board.label, 44))
        axes[0].set_xlim(
            *span([*(board.run_scores[r] for c in cells for r in c.runs), *lines.values()], _ends(cells))[:2]
        )
        if gains:
            found = [c.gain.estimate for c in gains if c.gain is not None]
            ends = [end for e in found for end in (e.low, e.high) if end is not None]
            axes[1].axvline(0, color=COLOURS["muted"], lw=1.2)
            axes[1].set_xlabel("gain over the untrained encoder, paired" if wide else "gain over the untrained encoder")
            axes[1].set_xlim(*span([0.0, *(e.mean for e in found)], ends)[:2])
        for i, ax in enumerate(axes):
            ax.set_yticks(range(len(cells)), [""] * len(cells) if wide and i else [short(c.arm) for c in cells])
            ax.tick_params(axis="y", length=0)
            ax.spines["left"].set_visible(False)
            ax.set_ylim(-0.6, len(cells) - 0.4)
            ax.grid(axis="x")
            ax.set_axisbelow(True)
        label = f"{board.label} of each arm at {board.budget}; the numbers are in the table below"
        return svg.write(figure, name, label, tips)


def _row(ax: Axes, y: float, estimate: Estimate, look: Style) -> None:
    if estimate.half is not None:
        ax.errorbar(estimate.mean, y, xerr=estimate.half, color=look.colour, capsize=5, lw=2, zorder=3)
    ax.plot(estimate.mean, y, look.marker, ms=9, color=look.colour, mew=0, zorder=5)
