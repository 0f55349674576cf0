"""Score along the axis that a sweep varied, in the shape of the paper's figure 3: a line for each encoder size.

Values without a place on the axis, such as a generator that has no size, stand at its left end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from workbench.report.comparison.boards import Board, Cell
from workbench.report.figures import strips, svg
from workbench.report.figures.marks import CUT_NOTE, Style, ends, levels, score_axis, span
from workbench.report.figures.strips import Tips
from workbench.report.figures.svg import COLOURS
from workbench.report.load.frames import Frames
from workbench.report.load.naming import sizeless, spoken
from workbench.report.words import interval, seeds, short
from workbench.spec.published import Finding, finding

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS = {
    "generator.width": "generator width as a share of the discriminator\u2019s",
    "generator.depth": "generator depth as a share of the discriminator\u2019s",
    "corruption.rate": "mask rate: share of tokens picked",
    "options.weight": "\u03bb, the weight of the discriminator\u2019s loss",
    "optim.lr": "peak learning rate",
    "optim.generator_lr": "the generator\u2019s peak learning rate",
    "corruption.generator_mask": "share of picks that the generator sees as [MASK]",
    "corruption.generator_random": "share of picks that the generator sees as random words",
}
FRACTIONS = ("generator.width", "generator.depth")
ASIDE = ("seed", "scale", "generator.kind", "source")


@dataclass(frozen=True)
class Line:
    """Cells that differ along the axis only, with their place: a number, or a word for those that have none."""

    name: str
    places: Mapping[float, Cell]
    words: Mapping[str, Cell]


def lines(board: Board, frames: Frames) -> list[Line]:
    """What a figure along the axis would hold; nothing where the axis is no number, or has a single value."""
    key = frames.axis.split(",")[0]
    found = [(cell, spec, _value(key, spec)) for cell in board.cells if (spec := frames.settings[cell.runs[0]])]
    sized = [spec for _, spec, value in found if isinstance(value, float)]
    if len({value for _, _, value in found if isinstance(value, float)}) < 2:
        return []
    differ = [k for k in dict.fromkeys(k for s in sized for k in s) if _tells(k, key)]
    differ = [k for k in differ if len({str(s.get(k)) for s in sized}) > 1]
    groups: dict[tuple[str, ...], list[tuple[Cell, float | str | None]]] = {}
    for cell, spec, value in found:
        told = tuple(str(spec.get(k)) for k in differ) if isinstance(value, float) else ()
        groups.setdefault((cell.budget, *told), []).append((cell, value))
    made = []
    for (budget, *names), cells in groups.items():
        name = _named(dict(zip(differ, names, strict=False)), budget if len(board.budgets) > 1 else "")
        places = {v: c for c, v in cells if isinstance(v, float)}
        words = {v: c for c, v in cells if isinstance(v, str)}
        made.append(Line(name or "without a size", dict(sorted(places.items())), words))
    return sorted(made, key=lambda line: -len(line.places))


def _tells(key: str, axis: str) -> bool:
    return key != axis and key not in ASIDE and not key.startswith(("budget.", "tasks."))


def _value(key: str, spec: Mapping[str, Any]) -> float | str | None:
    """The place of a spec: its number on the axis, or what it has instead of a size."""
    if kind := sizeless(key, spec):
        return kind
    value = spec.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _named(told: Mapping[str, str], budget: str) -> str:
    """`discriminator of 128`, `generator.depth 0.5`, `60 steps`."""
    if "objective" in told:
        told = {"": told["objective"]}
    elif "encoder.hidden" in told:
        layers = f", {told['encoder.layers']} layers" if "encoder.layers" in told else ""
        told = {"": f"discriminator of {told['encoder.hidden']}{layers}"}
    return ", ".join([*(f"{k} {v}".strip() for k, v in told.items()), *([budget] if budget else [])])


@dataclass(frozen=True)
class Scale:
    """Where values stand along the axis; words for what has no number stand at its left end, `step` apart."""

    numbers: Mapping[float, float]
    words: Mapping[str, float]
    step: float
    log: bool


def _scale(drawn: Sequence[Line]) -> Scale:
    """Return the places of all values of these lines; the scale is logarithmic where they span a factor of four."""
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
    """The figure and what belongs into its caption; "" where there is nothing of the kind to draw.

    `rows` maps run ids to their row in the table of runs, which their points link to; `size` is in CSS pixels.
    """
    drawn, key = lines(board, frames), frames.axis.split(",")[0]
    if not drawn:
        return "", []
    scale, told, tips = _scale(drawn), finding(key), Tips()
    several, wide = len(drawn) > 1, size[0] > 600
    with svg.drawing(name, 13):
        figure, (ax, *below) = strips.axes(size, several)
        if told is not None and told.span is not None:
            _band(ax, told, told.span, scale)
        _untrained(ax, below, board)
        for i, line in enumerate(drawn):
            _draw(ax, line, Style(i), board, scale, None if several else rows, tips)
        cut = _limits(ax, board, scale)
        _label(ax, key, scale, frames, board, wide)
        if below:
            labels = [_tick(key, v, frames, board) for v in scale.numbers]
            _strip(below[0], drawn, scale, labels, board, rows, tips)
            below[0].tick_params(axis="x", labelsize=13 if wide else 10)
            below[0].set_xlabel("each grey block is one value, its lines side by side" if wide else "one block a value")
        for one in (ax, *below):
            score_axis(one, short(board.label, 48))
        if several:
            handles = [Style(i).handle() for i in range(len(drawn))]
            ax.legend(handles, [short(line.name, 40) for line in drawn], frameon=False, fontsize=11)
        picture = svg.write(figure, name, f"{board.label} along {spoken(key)}; the numbers are in the table", tips)
    return picture, _said(several, scale, told, cut)


def _said(several: bool, scale: Scale, told: Finding | None, cut: bool) -> list[str]:
    """Return what belongs into the caption."""
    said = [CUT_NOTE] if cut else []
    if several:
        said.append("above, means at their place; below, each grey block is one value, its runs side by side")
    if scale.words:
        said.append(f"{' and '.join(scale.words)}: a generator without weights, so without a size")
    return [*said, told.text] if told is not None else said


def _untrained(ax: Axes, below: Sequence[Axes], board: Board) -> None:
    """A line at the untrained encoder, where it is near enough to the runs."""
    bare = levels(board).get("untrained")
    if bare is None:
        return
    for one in (ax, *below):
        one.axhline(bare, color=COLOURS["muted"], lw=1.2, zorder=1)
    ax.annotate("untrained encoder", (0.995, bare), xycoords=("axes fraction", "data"), ha="right", va="bottom",
                fontsize=11, color=COLOURS["muted"])  # fmt: skip


def _limits(ax: Axes, board: Board, scale: Scale) -> bool:
    """Room for every place and score; whether an interval is cut off."""
    ys = [board.run_scores[r] for cell in board.cells for r in cell.runs] + [*list(levels(board).values())[:1]]
    bottom, top, cut = span(ys, ends(board.cells))
    ax.set_ylim(bottom, top)
    places = [*scale.numbers.values(), *scale.words.values()]
    ax.set_xlim(min(places) - scale.step / 2, max(scale.numbers.values()) + scale.step / 2)
    return cut


def _label(ax: Axes, key: str, scale: Scale, frames: Frames, board: Board, wide: bool) -> None:
    """The name of the axis, and ticks at its values: all of them, or as many as a phone has room for."""
    numbers = list(scale.numbers)
    shown = numbers if wide or len(numbers) <= 6 else numbers[:: math.ceil(len(numbers) / 6)]
    labels = ["\n" * (not wide and i % 2) + word for i, word in enumerate(scale.words)]  # on a phone they would touch
    labels += [_tick(key, v, frames, board) for v in shown]
    places = [*scale.words.values(), *(scale.numbers[v] for v in shown)]
    ax.set_xticks(places, labels, fontsize=13 if wide else 11)
    name = LABELS.get(key, key) if wide else spoken(key)
    ax.set_xlabel(short(name, 60) + (" (log scale)" if scale.log and wide else ""))


def _draw(
    ax: Axes, line: Line, look: Style, board: Board, scale: Scale, rows: Mapping[str, int] | None, tips: Tips
) -> None:
    """The means of one line at their values and a curve through them; with `rows`, their runs and intervals too."""
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
    """The runs and intervals of every line, side by side in a block for each value; `labels` are those of numbers."""
    columns = [(word, [line.words.get(word) for line in drawn]) for word in scale.words]
    columns += [(label, [line.places.get(v) for line in drawn]) for v, label in zip(scale.numbers, labels, strict=True)]
    strips.groups(ax, columns, [Style(i) for i in range(len(drawn))], board.run_scores, rows, tips)


def _band(ax: Axes, told: Finding, reach: tuple[float, float], scale: Scale) -> None:
    """Where the paper found the best, as a band behind everything."""
    low, high = (math.log2(v) if scale.log else v for v in reach)
    if low == high:
        low, high = low - scale.step / 20, high + scale.step / 20
    ax.axvspan(low, high, color=COLOURS["band"], lw=0, zorder=0)
    ax.annotate(told.mark, ((low + high) / 2, 0.99), xycoords=("data", "axes fraction"), ha="center", va="top",
                fontsize=11, color=COLOURS["paper"])  # fmt: skip


def _tick(key: str, value: float, frames: Frames, board: Board) -> str:
    """`1/4`, with the hidden size below where all encoders are of one width; `0.15`."""
    if key not in FRACTIONS:
        return f"{value:g}"
    share = Fraction(value).limit_denominator(64)
    text = str(share) if abs(float(share) - value) < 1e-6 else f"{value:g}"
    of = "encoder.hidden" if key == "generator.width" else "encoder.layers"
    whole = {frames.settings[cell.runs[0]].get(of) for cell in board.cells}
    size = next(iter(whole)) if len(whole) == 1 else None
    return f"{text}\n({max(1, round(value * size))})" if isinstance(size, int) else text
