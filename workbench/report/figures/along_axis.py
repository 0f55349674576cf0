"""The figure of scores along the axis of a sweep, as in figure 3 of the paper: a line for each encoder size.

Values that are not numbers, such as a generator without a size, are at the left end of the axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from workbench.errors import plural
from workbench.report.comparison.boards import Board, Cell
from workbench.report.figures import strips, svg
from workbench.report.figures.arm_styles import CUT_NOTE, Style, ends, levels, score_axis, span
from workbench.report.figures.strips import Tips
from workbench.report.figures.svg import COLOURS
from workbench.report.formatting import interval, seeds, short
from workbench.report.load.frames import Frames
from workbench.report.load.naming import sizeless, spoken
from workbench.spec.published import Finding, finding

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS = {
    "generator.width": "generator width as a share of the discriminator\u2019s",
    "generator.depth": "generator depth as a share of the discriminator\u2019s",
    "corruption.rate": "mask rate: share of tokens selected for prediction",
    "options.weight": "\u03bb, the weight of the discriminator\u2019s loss",
    "optim.lr": "peak learning rate",
    "optim.generator_lr": "the generator\u2019s peak learning rate",
    "corruption.generator_mask": "share of picks that are [MASK] in the generator\u2019s input",
    "corruption.generator_random": "share of picks that are random tokens in the generator\u2019s input",
}
FRACTIONS = ("generator.width", "generator.depth")
ASIDE = ("seed", "scale", "generator.kind", "source")


@dataclass(frozen=True)
class Line:
    """The cells of one line of the figure, which differ along the axis only.

    `places` maps numbers on the axis to cells, and `words` maps values that are not numbers.
    """

    name: str
    places: Mapping[float, Cell]
    words: Mapping[str, Cell]


def lines(board: Board, frames: Frames) -> list[Line]:
    """Return the lines of the figure; none if the axis is not a number, or has a single value."""
    key = frames.axis.split(",")[0]
    valued = [(cell, spec, _value(key, spec)) for cell in board.cells if (spec := frames.settings[cell.runs[0]])]
    sized = [spec for _, spec, value in valued if isinstance(value, float)]
    if len({value for _, _, value in valued if isinstance(value, float)}) < 2:
        return []
    differ = [k for k in dict.fromkeys(k for s in sized for k in s) if _distinguishes(k, key)]
    differ = [k for k in differ if len({str(s.get(k)) for s in sized}) > 1]
    groups: dict[tuple[str, ...], list[tuple[Cell, float | str | None]]] = {}
    for cell, spec, value in valued:
        settings = tuple(str(spec.get(k)) for k in differ) if isinstance(value, float) else ()
        groups.setdefault((cell.budget, *settings), []).append((cell, value))
    result = []
    for (budget, *names), cells in groups.items():
        name = _named(dict(zip(differ, names, strict=False)), budget if len(board.budgets) > 1 else "")
        places = {v: c for c, v in cells if isinstance(v, float)}
        words = {v: c for c, v in cells if isinstance(v, str)}
        result.append(Line(name or "without a size", dict(sorted(places.items())), words))
    return sorted(result, key=lambda line: -len(line.places))


def _distinguishes(key: str, axis: str) -> bool:
    """Return whether a setting may distinguish two lines of the figure."""
    return key != axis and key not in ASIDE and not key.startswith(("budget.", "tasks."))


def _value(key: str, spec: Mapping[str, Any]) -> float | str | None:
    """Return the value of a spec on the axis: a number, the kind of a generator without a size, or None."""
    if kind := sizeless(key, spec):
        return kind
    value = spec.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _named(settings: Mapping[str, str], budget: str) -> str:
    """Return the name of a line: `discriminator of 128`, `generator.depth 0.5`, `60 steps`."""
    if "objective" in settings:
        settings = {"": settings["objective"]}
    elif "encoder.hidden" in settings:
        layers = settings.get("encoder.layers", "")
        size = f", {plural(int(layers), 'layer')}" if layers.isdigit() else ""
        settings = {"": f"discriminator of {settings['encoder.hidden']}{size}"}
    return ", ".join([*(f"{k} {v}".strip() for k, v in settings.items()), *([budget] if budget else [])])


@dataclass(frozen=True)
class Scale:
    """The positions of values along the axis; words are at its left end, at distances of `step`.

    If `log` is true, positions are base-2 logarithms.
    """

    numbers: Mapping[float, float]
    words: Mapping[str, float]
    step: float
    log: bool


def _scale(drawn: Sequence[Line]) -> Scale:
    """Return the positions of all values of these lines, on a log scale if they span a factor of four or more."""
    numbers = sorted({value for line in drawn for value in line.places})
    words = list(dict.fromkeys(word for line in drawn for word in line.words))
    log = numbers[0] > 0 and numbers[-1] / numbers[0] >= 4
    at = {v: math.log2(v) if log else v for v in numbers}
    step = (at[numbers[-1]] - at[numbers[0]]) / max(4, len(numbers) - 1)
    at_word = {word: at[numbers[0]] - step * (len(words) - i) for i, word in enumerate(words)}
    return Scale(at, at_word, step, log)


def along(
    board: Board, frames: Frames, rows: Mapping[str, int], size: tuple[int, int], name: str
) -> tuple[str, list[str]]:
    """Return the figure and the parts of its caption; "" and no parts if there are no lines to draw.

    `rows` maps run ids to their row in the table of runs, which their points link to; `size` is in CSS pixels.
    """
    drawn, key = lines(board, frames), frames.axis.split(",")[0]
    if not drawn:
        return "", []
    scale, published, tips = _scale(drawn), finding(key), Tips()
    several, wide = len(drawn) > 1, size[0] > 600
    with svg.drawing(name, 13):
        figure, (ax, *below) = strips.axes(size, several)
        if published is not None and published.span is not None:
            _band(ax, published, published.span, scale)
        _untrained(ax, below, board)
        for i, line in enumerate(drawn):
            _draw(ax, line, Style(i), board, scale, None if several else rows, tips)
        cut = _limits(ax, board, scale)
        _label(ax, key, scale, frames, board, wide)
        if below:
            labels = [_tick(key, v, frames, board) for v in scale.numbers]
            _strip(below[0], drawn, scale, labels, board, rows, tips)
            below[0].tick_params(axis="x", labelsize=13 if wide else 10)
            below[0].set_xlabel(
                "each grey block is one value, its lines side by side" if wide else "one block per value"
            )
        for one in (ax, *below):
            score_axis(one, short(board.label, 48))
        if several:
            handles = [Style(i).handle() for i in range(len(drawn))]
            ax.legend(handles, [short(line.name, 40) for line in drawn], frameon=False, fontsize=11)
        picture = svg.write(figure, name, f"{board.label} along {spoken(key)}; the numbers are in the table", tips)
    return picture, _caption(several, scale, published, cut)


def _caption(several: bool, scale: Scale, published: Finding | None, cut: bool) -> list[str]:
    """Return the parts of the caption, which ends with the paper's result if there is one."""
    parts = [CUT_NOTE] if cut else []
    if several:
        parts.append("above, means at their values; below, each grey block is one value, with its runs side by side")
    if scale.words:
        parts.append(f"{' and '.join(scale.words)}: a generator without weights, so without a size")
    return [*parts, published.text] if published is not None else parts


def _untrained(ax: Axes, below: Sequence[Axes], board: Board) -> None:
    """Draw a line at the mean of the untrained encoders."""
    untrained = levels(board).get("untrained")
    if untrained is None:
        return
    for one in (ax, *below):
        one.axhline(untrained, color=COLOURS["muted"], lw=1.2, zorder=1)
    ax.annotate("untrained encoder", (0.995, untrained), xycoords=("axes fraction", "data"), ha="right", va="bottom",
                fontsize=11, color=COLOURS["muted"])  # fmt: skip


def _limits(ax: Axes, board: Board, scale: Scale) -> bool:
    """Set the limits of both axes to contain every position and score. Returns whether an interval is cut off."""
    ys = [board.run_scores[r] for cell in board.cells for r in cell.runs] + [*list(levels(board).values())[:1]]
    bottom, top, cut = span(ys, ends(board.cells))
    ax.set_ylim(bottom, top)
    places = [*scale.numbers.values(), *scale.words.values()]
    ax.set_xlim(min(places) - scale.step / 2, max(scale.numbers.values()) + scale.step / 2)
    return cut


def _label(ax: Axes, key: str, scale: Scale, frames: Frames, board: Board, wide: bool) -> None:
    """Label the axis, with ticks at all of its values, or at fewer if the figure is narrow."""
    numbers = list(scale.numbers)
    shown = numbers if wide or len(numbers) <= 6 else numbers[:: math.ceil(len(numbers) / 6)]
    labels = [
        "\n" * (not wide and i % 2) + word for i, word in enumerate(scale.words)
    ]  # in a narrow figure they would touch
    labels += [_tick(key, v, frames, board) for v in shown]
    places = [*scale.words.values(), *(scale.numbers[v] for v in shown)]
    ax.set_xticks(places, labels, fontsize=13 if wide else 11)
    name = LABELS.get(key, key) if wide else spoken(key)
    ax.set_xlabel(short(name, 60) + (" (log scale)" if scale.log and wide else ""))


def _draw(
    ax: Axes, line: Line, look: Style, board: Board, scale: Scale, rows: Mapping[str, int] | None, tips: Tips
) -> None:
    """Draw the means of one line and a curve through them; with `rows`, also their runs and intervals."""
    xs, means = [scale.numbers[v] for v in line.places], [cell.estimate.mean for cell in line.places.values()]
    ax.plot(xs, means, color=look.colour, ls=look.dashes, lw=2, zorder=3)
    places = [(scale.numbers[value], cell) for value, cell in line.places.items()]
    places += [(scale.words[word], cell) for word, cell in line.words.items()]
    for x, cell in places:
        e = cell.estimate
        if rows is not None and e.half is not None:
            ax.errorbar(x, e.mean, yerr=e.half, color=look.colour, capsize=4, lw=1.5, zorder=3)
        if rows is not None:
            strips.runs(ax, x, cell, look, board.run_scores, rows, tips, 5)
        gid = f"tip-{len(tips)}"
        tips[gid] = (f"{cell.arm}: {interval(e.mean, e.half)}, {seeds([e.n])}, {cell.budget}", "")
        ax.plot(x, e.mean, look.marker, ms=9, color=look.colour, mew=0, gid=gid, zorder=4)


def _strip(
    ax: Axes, drawn: Sequence[Line], scale: Scale, labels: Sequence[str], board: Board, rows: Mapping[str, int],
    tips: Tips,
) -> None:  # fmt: skip
    """Draw runs and intervals of the lines side by side, in a block for each value; `labels` are those of numbers."""
    columns = [(word, [line.words.get(word) for line in drawn]) for word in scale.words]
    columns += [(label, [line.places.get(v) for line in drawn]) for v, label in zip(scale.numbers, labels, strict=True)]
    strips.groups(ax, columns, [Style(i) for i in range(len(drawn))], board.run_scores, rows, tips)


def _band(ax: Axes, published: Finding, best: tuple[float, float], scale: Scale) -> None:
    """Draw a band at the range of values that were best in the paper."""
    low, high = (math.log2(v) if scale.log else v for v in best)
    if low == high:
        low, high = low - scale.step / 20, high + scale.step / 20
    ax.axvspan(low, high, color=COLOURS["band"], lw=0, zorder=0)
    ax.annotate(published.mark, ((low + high) / 2, 0.99), xycoords=("data", "axes fraction"), ha="center", va="top",
                fontsize=11, color=COLOURS["paper"])  # fmt: skip


def _tick(key: str, value: float, frames: Frames, board: Board) -> str:
    """Return the label of a value: `0.15`, or `1/4` for a fraction, with the size if encoders are equal."""
    if key not in FRACTIONS:
        return f"{value:g}"
    share = Fraction(value).limit_denominator(64)
    text = str(share) if abs(float(share) - value) < 1e-6 else f"{value:g}"
    of = "encoder.hidden" if key == "generator.width" else "encoder.layers"
    whole = {frames.settings[cell.runs[0]].get(of) for cell in board.cells}
    size = next(iter(whole)) if len(whole) == 1 else None
    return f"{text}\n({max(1, round(value * size))})" if isinstance(size, int) else text
