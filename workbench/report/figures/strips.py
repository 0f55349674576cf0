"""Figures with arms side by side on an axis of categories, so that marks do not overlap.

A small mark is a run, and a large one the mean over pre-training seeds, with a bar for its 95 % t interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.report.comparison.boards import Board, Cell
from workbench.report.figures import svg
from workbench.report.figures.arm_styles import Axis, Style, ends, levels, one_amount, span
from workbench.report.figures.svg import COLOURS
from workbench.report.formatting import interval, points, power, seeds, short
from workbench.report.statistics.paired_comparison import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Tips = dict[str, tuple[str, str]]  # gid of a mark -> its tool tip, and the fragment that it links to
GAP = 1.0  # free columns between groups
MOST_LINKED = 1000  # runs of a measure up to which each has a mark with a tool tip and a link
STRIP = 260  # height that a strip adds to a figure, in CSS pixels


def axes(size: tuple[int, int], strip: bool) -> tuple[Figure, list[Axes]]:
    """Return a figure with one pair of axes; with `strip`, a second one of categories is below, with the same y."""
    figure = svg.figure(size[0], size[1] + (STRIP if strip else 0))
    heights = [size[1], STRIP] if strip else [size[1]]
    grid = figure.subplots(len(heights), 1, squeeze=False, sharey=True, gridspec_kw={"height_ratios": heights})
    return figure, list(grid.ravel())


def groups(
    ax: Axes,
    cells: Sequence[tuple[str, Sequence[Cell | None]]],
    looks: Sequence[Style],
    scores: Mapping[str, float],
    rows: Mapping[str, int],
    tips: Tips,
) -> None:
    """Draw a shaded group of columns for each label, with a column for each style: mean, interval and runs of a cell.

    Each group lists a cell for every style, or None. Within a group, x is a category and not an amount.
    """
    width = len(looks) + GAP
    figure = ax.get_figure(root=True)
    small = figure is not None and figure.get_figwidth() * 72 < 18 * width * len(cells)  # little room for a column
    for i, (_, columns) in enumerate(cells):
        ax.axvspan(i * width - 0.6, i * width + len(looks) - 0.4, color=COLOURS["band"], lw=0, zorder=0)
        for j, (cell, look) in enumerate(zip(columns, looks, strict=True)):
            if cell is not None:
                _column(ax, i * width + j, cell, look, scores, rows, tips, small)
    middles = [i * width + (len(looks) - 1) / 2 for i in range(len(cells))]
    ax.set_xticks(middles, [label for label, _ in cells])
    ax.set_xlim(-0.6 - GAP / 2, len(cells) * width - 0.4 - GAP / 2)
    ax.tick_params(axis="x", length=0)


def _column(
    ax: Axes, x: float, cell: Cell, look: Style, scores: Mapping[str, float], rows: Mapping[str, int], tips: Tips,
    small: bool,
) -> None:  # fmt: skip
    """Draw one cell at x: its mean and interval, and its runs to the right of them."""
    e = cell.estimate
    if e.half is not None:
        ax.errorbar(x, e.mean, yerr=e.half, color=look.colour, capsize=2 if small else 4, lw=1.5, zorder=3)
    gid = f"tip-{len(tips)}"
    tips[gid] = (f"{cell.arm}: {interval(e.mean, e.half)}, {seeds([e.n])}, {cell.budget}", "")
    ax.plot(x, e.mean, look.marker, ms=5 if small else 8, color=look.colour, mew=0, gid=gid, zorder=5)
    runs(ax, x + 0.32, cell, look, scores, rows, tips, 3 if small else 4.5)


def runs(
    ax: Axes, x: float, cell: Cell, look: Style, scores: Mapping[str, float], rows: Mapping[str, int], tips: Tips,
    size: float,
) -> None:  # fmt: skip
    """Draw the runs of a cell at x; each links to its row in the table of runs."""
    marks = [
        (x, scores[run], (f"{cell.arm}, seed {seed}: {points(scores[run], 2)} at {cell.budget}\n{run}", rows[run]))
        for seed, run in zip(sorted(cell.scores), cell.runs, strict=True)
    ]
    run_marks(ax, marks, look, tips, len(scores), size, 4)


def run_marks(
    ax: Axes, marks: Sequence[tuple[float, float, tuple[str, int]]], look: Style, tips: Tips, among: int, size: float,
    order: int,
) -> None:  # fmt: skip
    """Draw marks at (x, y), each of a run, with its tool tip and a link to its row in the table of runs.

    If there are more than MOST_LINKED runs `among` which they are, they are drawn at once, without tool tips and links:
    a page with tens of thousands of these is slow to make and to open.
    """
    style: Any = {"ms": size, "color": look.colour, "alpha": 0.6, "mew": 0, "zorder": order}
    if among > MOST_LINKED:
        ax.plot([x for x, _, _ in marks], [y for _, y, _ in marks], look.marker, **style)
        return
    for x, y, (text, row) in marks:
        gid = f"tip-{len(tips)}"
        tips[gid] = (text, f"run-{row}")
        ax.plot(x, y, look.marker, gid=gid, **style)


def by_budget(
    ax: Axes, board: Board, looks: Mapping[str, Style], axis: Axis, rows: Mapping[str, int], tips: Tips
) -> None:
    """Draw every budget of a board as a group of columns, labelled with what was spent."""
    arms = [arm for arm in looks if arm in board.arms]
    by_place = {(c.budget, c.arm): c for c in board.cells}
    cells = [(_amount(board, b, axis), [by_place.get((b, arm)) for arm in arms]) for b in board.budgets]
    groups(ax, cells, [looks[arm] for arm in arms], board.run_scores, rows, tips)


def _amount(board: Board, budget: str, axis: Axis) -> str:
    """Return `5.0×10¹²` if all arms spent that amount, else the name of the budget."""
    spent = [c.spent[axis.column] for c in board.cells if c.budget == budget]
    if not one_amount(board, axis.column, budget):
        return short(budget, 16)
    value = sum(spent) / len(spent)
    return power(value, 2) if axis.column.startswith("flops") else axis.say(value)


def side_by_side(
    board: Board, looks: Mapping[str, Style], rows: Mapping[str, int], at: str, wide: bool, name: str
) -> tuple[str, bool]:
    """Return a figure of the arms at the largest budget, one below the other, and whether an interval is cut off.

    It shows the score of each arm and its gain over the untrained encoder. `at` is what the arms spent, as text for
    the label of the axis, since arms are rows and not placed by compute.
    """
    cells, tips = board.at(board.budget)[::-1], Tips()
    gains = [c.gain.estimate for c in cells if c.gain is not None]
    with svg.drawing(name, 13):
        height = 100 + 36 * len(cells)
        figure = svg.figure(920 if wide else 380, height if wide or not gains else 2 * height)
        several = 2 if gains else 1
        axes = figure.subplots(*((1, several) if wide else (several, 1)), squeeze=False).ravel()
        cut = _scores(axes[0], board, cells, looks, rows, tips)
        axes[0].set_xlabel(f"{short(board.label, 44)}\n{at if wide else at.replace(' (', chr(10) + '(')}")
        if gains:
            cut |= _gains(axes[1], cells, gains, looks)
            axes[1].set_xlabel("gain over the untrained encoder, paired")
        for i, ax in enumerate(axes):
            ax.set_yticks(range(len(cells)), [""] * len(cells) if wide and i else [short(c.arm) for c in cells])
            ax.tick_params(axis="y", length=0)
            ax.spines["left"].set_visible(False)
            ax.set_ylim(-0.6, len(cells) - 0.4)
            ax.grid(axis="x")
            ax.set_axisbelow(True)
        _level_labels(axes[0], levels(board), 440 if wide and gains else 260 if not wide else 760)
        label = f"{board.label} of each arm, {at}; the numbers are in the table below"
        return svg.write(figure, name, label, tips), cut


def _scores(
    ax: Axes, board: Board, cells: Sequence[Cell], looks: Mapping[str, Style], rows: Mapping[str, int], tips: Tips
) -> bool:
    """Draw the mean and interval of each arm, its runs slightly below, and lines for scores without pre-training.

    Returns whether an interval is cut off.
    """
    lines = levels(board)
    untrained = board.untrained.estimate if board.untrained else None
    if untrained is not None and untrained.low is not None and untrained.high is not None:
        ax.axvspan(untrained.low, untrained.high, color=COLOURS["band"], lw=0, zorder=0)
    for line, value in lines.items():
        style: Any = "-" if line == "untrained" else (0, (1.5, 2.5))
        ax.axvline(value, color=COLOURS["muted"], lw=1.2, ls=style, zorder=1)
    for y, cell in enumerate(cells):
        look = looks[cell.arm]
        _row(ax, y, cell.estimate, look)
        marks = [
            (cell.scores[seed], y - 0.26, (f"{cell.arm}, seed {seed}: {points(cell.scores[seed], 2)}\n{r}", rows[r]))
            for seed, r in zip(sorted(cell.scores), cell.runs, strict=True)
        ]
        run_marks(ax, marks, look, tips, len(board.run_scores), 5, 4)
    scores = [*(board.run_scores[r] for c in cells for r in c.runs), *lines.values()]
    left, right, cut = span(scores, ends(cells))
    ax.set_xlim(left, right)
    return cut


def _gains(ax: Axes, cells: Sequence[Cell], gains: Sequence[Estimate], looks: Mapping[str, Style]) -> bool:
    """Draw the gain of each arm with its interval. Returns whether an interval is cut off."""
    for y, cell in enumerate(cells):
        if cell.gain is not None:
            _row(ax, y, cell.gain.estimate, looks[cell.arm])
    reach = [end for e in gains for end in (e.low, e.high) if end is not None]
    ax.axvline(0, color=COLOURS["muted"], lw=1.2)
    left, right, cut = span([0.0, *(e.mean for e in gains)], reach)
    ax.set_xlim(left, right)
    return cut


def _level_labels(ax: Axes, lines: Mapping[str, float], width: float) -> None:
    """Label the vertical lines above the axes, in higher rows to avoid overlaps. `width` is in CSS pixels."""
    low, high = ax.get_xlim()
    taken: list[float] = []  # the right end of the labels in each row
    for name, value in sorted(lines.items(), key=lambda item: item[1]):
        label = f"{'untrained' if name == 'untrained' else short(name, 20)} {points(value)}"
        half = 3.4 * len(label)
        centre = min(max((value - low) / (high - low) * width, half), width - half)
        row = next((i for i, right in enumerate(taken) if centre - half > right + 6), len(taken))
        taken[row : row + 1] = [centre + half]
        ax.annotate(
            label, (centre / width, 1), xytext=(0, 3 + 13 * row), xycoords="axes fraction", textcoords="offset points",
            ha="center", va="bottom", fontsize=11, color=COLOURS["muted"],
        )  # fmt: skip


def _row(ax: Axes, y: float, estimate: Estimate, look: Style) -> None:
    """Draw a mean with its interval in the row at y."""
    if estimate.half is not None:
        ax.errorbar(estimate.mean, y, xerr=estimate.half, color=look.colour, capsize=5, lw=2, zorder=3)
    ax.plot(estimate.mean, y, look.marker, ms=9, color=look.colour, mew=0, zorder=5)
