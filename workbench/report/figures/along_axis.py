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
from workbench.report.figures.marks import CUT_NOTE, Style, ends, levels, span
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


def along(
    board: Board, frames: Frames, rows: Mapping[str, int], size: tuple[int, int], name: str
) -> tuple[str, list[str]]:
    """The figure and what belongs into its caption; "" where there is nothing of the kind to draw.

    `rows` maps run ids to their row in the table of runs, which their points link to; `size` is in CSS pixels.
    """
    drawn, key = lines(board, frames), frames.axis.split(",")[0]
    if not drawn:
        return "", []
    numbers = sorted({value for line in drawn for value in line.places})
    words = list(dict.fromkeys(word for line in drawn for word in line.words))
    log = numbers[0] > 0 and numbers[-1] / numbers[0] >= 4
    at = {v: math.log2(v) if log else v for v in numbers}
    step = (at[numbers[-1]] - at[numbers[0]]) / max(4, len(numbers) - 1)
    at_word = {word: at[numbers[0]] - step * (len(words) - i) for i, word in enumerate(words)}
    told = finding(key)
    several, wide = len(drawn) > 1, size[0] > 600
    with svg.drawing(name, 13):
        figure, (ax, *below) = strips.axes(size, several)
        tips: Tips = {}
        if told is not None and told.span is not None:
            _band(ax, told, log, step)
        bare = levels(board)
        if "untrained" in bare:
            for one in (ax, *below):
                one.axhline(bare["untrained"], color=COLOURS["muted"], lw=1.2, zorder=1)
            place = (0.995, bare["untrained"])
            ax.annotate("untrained encoder", place, xycoords=("axes fraction", "data"), ha="right", va="bottom",
                        fontsize=11, color=COLOURS["muted"])  # fmt: skip
        for i, line in enumerate(drawn):
            _draw(ax, line, Style(i), board, at, at_word, None if several else rows, tips)
        ys = [board.run_scores[r] for cell in board.cells for r in cell.runs] + [*list(bare.values())[:1]]
        bottom, top, cut = span(ys, ends(board.cells))
        ax.set_ylim(bottom, top)
        ax.set_xlim(min([*at.values(), *at_word.values()]) - step / 2, at[numbers[-1]] + step / 2)
        shown = numbers if wide or len(numbers) <= 6 else numbers[:: math.ceil(len(numbers) / 6)]
        labels = ["\n" * (not wide and i % 2) + word for i, word in enumerate(words)]  # on a phone they would touch
        labels += [_tick(key, v, frames, board) for v in shown]
        ax.set_xticks([*at_word.values(), *(at[v] for v in shown)], labels, fontsize=13 if wide else 11)
        ax.set_xlabel(
            short(LABELS.get(key, key) if wide else spoken(key), 60) + (" (log scale)" if log and wide else "")
        )
        if below:
            _strip(below[0], drawn, numbers, words, [_tick(key, v, frames, board) for v in numbers], board, rows, tips)
            below[0].tick_params(axis="x", labelsize=13 if wide else 10)
            below[0].set_xlabel("each grey block is one value, its lines side by side" if wide else "one block a value")
        for one in (ax, *below):
            one.set_ylabel(short(board.label, 48))
            one.grid(axis="y")
            one.set_axisbelow(True)
        if several:
            handles = [Style(i).handle() for i in range(len(drawn))]
            ax.legend(handles, [short(line.name, 40) for line in drawn], frameon=False, fontsize=11)
        picture = svg.write(figure, name, f"{board.label} along {spoken(key)}; the numbers are in the table", tips)
    said = [CUT_NOTE] if cut else []
    if several:
        said.append("above, means at their place; below, each grey block is one value, its runs side by side")
    if words:
        said.append(f"{' and '.join(words)}: a generator without weights, so without a size")
    if told is not None:
        said.append(told.text)
    return picture, said


def _draw(
    ax: Axes, line: Line, look: Style, board: Board, at: Mapping[float, float], at_word: Mapping[str, float],
    rows: Mapping[str, int] | None, tips: Tips,
) -> None:  # fmt: skip
    """The means of one line at their values and a curve through them; with `rows`, their runs and intervals too."""
    xs, means = [at[v] for v in line.places], [cell.estimate.mean for cell in line.places.values()]
    ax.plot(xs, means, color=look.colour, ls=look.dashes, lw=2, zorder=3)
    places = [*((at[v], c) for v, c in line.places.items()), *((at_word[w], c) for w, c in line.words.items())]
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
    ax: Axes, drawn: Sequence[Line], numbers: Sequence[float], words: Sequence[str], labels: Sequence[str],
    board: Board, rows: Mapping[str, int], tips: Tips,
) -> None:  # fmt: skip
    """The runs and intervals of every line, side by side in a block for each value."""
    columns = [(word, [line.words.get(word) for line in drawn]) for word in words]
    columns += [
        (label, [line.places.get(v) for line in drawn]) for v, label in zip(numbers, labels, strict=True)
    ]  # fmt: skip
    strips.groups(ax, columns, [Style(i) for i in range(len(drawn))], board.run_scores, rows, tips)


def _band(ax: Axes, told: Finding, log: bool, step: float) -> None:
    """Where the paper found the best, as a band behind everything."""
    assert told.span is not None
    low, high = (math.log2(v) if log else v for v in told.span)
    if low == high:
        low, high = low - step / 20, high + step / 20
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
