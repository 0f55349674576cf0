"""Drawing of charts as SVG with colours as CSS classes, so that one drawing fits both colour schemes and printing."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from workbench.report.charts import FEW_ARMS, LABELS, SHORT, Chart, Level, Series
from workbench.report.formatting import clean, count, duration, in_units, interval, points, power, short, ten_to
from workbench.report.results import Results, axis_value
from workbench.spec.scoring import POINTS

# Light and dark; each has a contrast of at least 4.5 with its page, so that labels can have the colour of their line.
PALETTE = (
    ("#1b1e23", "#e7e9ec"), ("#0069a6", "#56b4e9"), ("#b04a00", "#ff8f45"), ("#007a56", "#35c99a"),
    ("#a4477e", "#e79cc6"), ("#7a5a00", "#e6c34a"), ("#5b4bb0", "#a99bff"), ("#7a4a2a", "#c8a07c"),
)  # fmt: skip
GREY = ("#6a717b", "#969da6")
# From the smallest value of an ordered axis to the largest: lightness changes in one direction.
RAMP = (
    ("#c25a10", "#b0336b", "#7d2f91", "#4a2f95", "#17215e"),
    ("#9181ff", "#c77be8", "#f08a9f", "#ffae5c", "#ffe27a"),
)
KNOWN = ("bert-mlm", "rtd", "electra-15", "replace-mlm", "all-tokens-mlm")  # always with the same colours
CHARACTER = 7.6  # CSS pixels of a character at 12 pixels in a wide font
BOLD = 1.12  # how much wider a bold label is
GAP = 15.0  # between the lines of two labels
DASHES = 4


@dataclass(frozen=True)
class Look:
    """How an arm is drawn: the number of its class, its colours in both schemes, and its pattern of dashes."""

    number: int
    light: str
    dark: str
    dash: int = 0
    faint: bool = False  # one of very many arms, drawn thin and without a band

    @property
    def classes(self) -> str:
        return f"a{self.number}" + (f" d{self.dash}" if self.dash else "") + (" faint" if self.faint else "")


def looks(results: Results) -> dict[str, Look]:
    """Return the look of each arm: a ramp along an ordered axis, fixed colours for known objectives."""
    if not results.ordered:
        boards = results.by_verdict[:1]
        return categorical(results.arms, [cell.arm for board in boards for cell in board.at(board.budget)])
    ramp = sorted({value for arm in results.arms if (value := axis_value(arm)) is not None})
    seen: Counter[float | None] = Counter()  # arms by value; further ones have dashed lines
    styles: dict[str, Look] = {}
    for number, arm in enumerate(results.arms):
        value = axis_value(arm)
        if value is None:
            styles[arm] = Look(number, *GREY, dash=1 + seen[value] % 3)
        else:
            share = ramp.index(value) / max(1, len(ramp) - 1)
            styles[arm] = Look(number, _mixed(RAMP[0], share), _mixed(RAMP[1], share), seen[value] % DASHES)
        seen[value] += 1
    return styles


def categorical(arms: Sequence[str], best: Sequence[str] = ()) -> dict[str, Look]:
    """Return the look of arms without an order: fixed colours for known objectives, then the `best`; many are grey."""
    known = [arm for arm in KNOWN if arm in arms]
    rest = [arm for arm in arms if arm not in known]
    others = sorted(rest, key=lambda arm: best.index(arm) if arm in best else len(best))
    coloured = max(0, FEW_ARMS - len(known)) if len(arms) > 2 * len(PALETTE) else len(others)
    free = [i for i in range(len(PALETTE)) if i not in map(KNOWN.index, known)]
    styles = {}
    for number, arm in enumerate(arms):
        i = -1 if arm in known else others.index(arm)
        if i >= coloured:
            styles[arm] = Look(number, *GREY, faint=True)
        elif i < len(free):
            styles[arm] = Look(number, *PALETTE[KNOWN.index(arm) if i < 0 else free[i]])
        else:
            styles[arm] = Look(number, *PALETTE[(i - len(free)) % len(PALETTE)], dash=1)
    return styles


def _mixed(anchors: Sequence[str], share: float) -> str:
    place = share * (len(anchors) - 1)
    low = min(int(place), len(anchors) - 2)
    one, two = ([int(text[i : i + 2], 16) for i in (1, 3, 5)] for text in (anchors[low], anchors[low + 1]))
    return "#" + "".join(f"{round(a + (b - a) * (place - low)):02x}" for a, b in zip(one, two, strict=True))


def colour_rules(styles: Mapping[str, Look]) -> str:
    """Return the CSS rules of the arms' colours in both schemes; print has the light ones."""
    light = "".join(f".a{look.number}{{color:{look.light}}}" for look in styles.values())
    dark = "".join(f".a{look.number}{{color:{look.dark}}}" for look in styles.values())
    return f"{light}\n@media screen and (prefers-color-scheme:dark){{{dark}}}\n"


def width_of(text: str) -> float:
    """Return the width that a label takes at most, in CSS pixels."""
    return sum(12.0 if ord(c) > 0x2E80 else CHARACTER for c in text)


def cut(text: str, pixels: float) -> str:
    """Return the text, cut to a width in its middle: the ends of names differ more often than their beginnings."""
    text = clean(text)
    if width_of(text) <= pixels:
        return text
    most = max(3, int(pixels / CHARACTER))
    tail = (most - 1) // 3
    return text[: most - 1 - tail].rstrip() + "…" + (text[-tail:] if tail else "").lstrip()


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """Return round numbers within a range, at most so many."""
    span = high - low
    if not span > 0 or most < 1:
        return [low]
    step = 10.0 ** math.floor(math.log10(span / most))
    step *= next(m for m in (1, 2, 5, 10) if span / (m * step) <= most)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Return powers of ten within a range, or also their multiples by 2 and 5 if there are few."""
    ticks: list[float] = []
    for multiples in ((1, 2, 5), (1, 3), (1,)):
        exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [t for e in exponents for m in multiples if low * 0.999 <= (t := m * 10.0**e) <= high * 1.001]
        if len(ticks) <= most:
            break
    return ticks[:: max(1, math.ceil(len(ticks) / max(1, most)))]


def amount(axis: str, value: float) -> str:
    """Return an amount on an axis as text: `10¹³`, `5 M`, `2 h 05 min`."""
    if axis == "seconds":
        return duration(value) if value % 60 else duration(value).replace(" 00 s", "").replace(" 00 min", "")
    if axis.startswith("flops") and value >= 1e4:
        exponent = math.floor(math.log10(value) + 1e-9)
        mantissa = value / 10.0**exponent
        return ten_to(exponent) if abs(mantissa - 1) < 1e-6 else f"{mantissa:.3g}×{ten_to(exponent)}"
    return count(value)


def plain(value: float) -> str:
    """Return a number of the y axis as text."""
    if abs(value) >= 1e4:
        scaled, letter = in_units(value)
        return f"{scaled:.3g} {letter}"
    if value and abs(value) < 1e-3:
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{value:.10g}".replace("-", "\u2212")


def spread(places: Iterable[float], low: float, high: float, gap: float = GAP) -> list[float]:
    """Return places moved apart to a gap, in the same order, within a range if they fit."""
    order = sorted(enumerate(places), key=lambda item: item[1])
    moved: list[float] = []
    for _, place in order:
        moved.append(max(place, moved[-1] + gap) if moved else max(place, low))
    if moved and moved[-1] > high:
        moved[-1] = high
        for i in range(len(moved) - 2, -1, -1):
            moved[i] = min(moved[i], moved[i + 1] - gap)
    result = [0.0] * len(order)
    for (index, _), place in zip(order, moved, strict=True):
        result[index] = place
    return result


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _text(x: float, y: float, text: str, classes: str = "t", anchor: str = "") -> str:
    end = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{_n(x)}" y="{_n(y)}" class="{classes}"{end}>{escape(clean(text), quote=False)}</text>'


def _tip(text: str) -> str:
    return f"<title>{escape(clean(text))}</title>"


def draw(chart: Chart, styles: Mapping[str, Look], width: int, height: int = 360) -> str:
    """Return a chart as one `svg` element of a width in CSS pixels; the height of a forest follows from its rows."""
    if chart.kind == "forest":
        body, height = _forest(chart, styles, width)
        return svg(width, height, f"{chart.label}: means and intervals", body)
    return svg(width, height, f"{chart.label}: lines against training", _lines(chart, styles, width, height))


def svg(width: int, height: int, label: str, body: str) -> str:
    """Return an `svg` element of a size in CSS pixels, with a label for screen readers."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg {size} role="img" aria-label="{escape(clean(label))}">{body}</svg>'


def _lines(chart: Chart, styles: Mapping[str, Look], width: int, height: int) -> str:
    axis = chart.axes[0]
    small, most_labels = width < 480, int((height - 50) / GAP)  # labels at the right end: the first lines, if wide
    named = [] if small else list(chart.series[: max(0, most_labels - len(chart.levels))])
    levels = [] if small else list(chart.levels)
    titles = [cut(one.title, width * 0.28) for one in named] + [level.title for level in levels]
    right = 14 + BOLD * max(map(width_of, titles), default=0.0) if titles else 12.0
    low, high = chart.limits
    tick_texts = [(value, plain(value)) for value in nice_ticks(low, high, 4 if height < 240 else 6)]
    left = 10 + max((width_of(text) for _, text in tick_texts), default=20.0)
    panel = chart.name.startswith("curve-")  # its heading stands above it
    top, bottom = 10.0 if panel else 26.0, 40.0
    w, h = width - left - right, height - top - bottom
    xs = [x for one in chart.series for x in one.x[axis]]
    x_low, x_high = min(xs), max(xs)
    if not chart.log and 0 < x_low < 0.2 * x_high:
        x_low = 0.0
    log = chart.log and x_low > 0 and x_high > x_low

    def px(x: float) -> float:
        share = 0.5
        if x_high > x_low:
            share = math.log(x / x_low) / math.log(x_high / x_low) if log else (x - x_low) / (x_high - x_low)
        return left + 6 + (w - 12) * share

    def py(y: float) -> float:
        return top + h * (1 - (y - low) / (high - low))

    clip = f"k-{chart.name}-{width}"
    box = f'<rect x="{_n(left)}" y="{_n(top)}" width="{_n(w)}" height="{_n(h)}"/>'
    parts = [f'<clipPath id="{clip}">{box}</clipPath>']
    if not panel:
        parts.append(_text(2, 13, cut(chart.label, width - 4)))
    for value, text in tick_texts:
        y = py(value)
        parts.append(f'<path d="M{_n(left)} {_n(y)}h{_n(w)}" class="g"/>' + _text(left - 6, y + 4, text, anchor="end"))
    most = max(2, int(w / 76))
    ticks = log_ticks(x_low, x_high, most) if log else nice_ticks(x_low, x_high, most)
    end = 0.0
    for value in ticks:  # a label that would touch its neighbour is left out
        text = amount(axis, value)
        half = width_of(text) / 2
        centre = min(max(px(value), half + 1), width - half - 1)
        fits = centre - half >= end + 8
        end = centre + half if fits else end
        label = _text(centre, top + h + 17, text if fits else "", anchor="middle")
        parts.append(f'<path d="M{_n(px(value))} {_n(top + h)}v4" class="x"/>{label}')
    below = (SHORT if small else LABELS)[axis] + (", log scale" if log else "")
    parts.append(_text(left + w / 2, top + h + 34, cut(below, w), anchor="middle"))
    drawn = []
    for level in chart.levels:
        if level.half:
            y_top, y_low = py(min(high, level.value + level.half)), py(max(low, level.value - level.half))
            drawn.append(f'<path d="M{_n(left)} {_n(y_top)}h{_n(w)}V{_n(y_low)}h{_n(-w)}z" class="u"/>')
        drawn.append(f'<path d="M{_n(left)} {_n(py(level.value))}h{_n(w)}" class="v"/>')
    for one in reversed(chart.series):  # the first ones on top
        drawn.append(_line(one, styles, axis, px, py, points_of=len(one.y) <= 16 and not panel))
    parts.append(f'<g clip-path="url(#{clip})">{"".join(drawn)}</g>')
    ends = [py(min(max(one.y[-1], low), high)) for one in named] + [py(level.value) for level in levels]
    for place, title, source in zip(spread(ends, top + 6, top + h), titles, [*named, *levels], strict=True):
        if isinstance(source, Series):
            label = _text(left + w + 8, place + 4, title, "n")
            parts.append(f'<g class="{_classes(source, styles)}">{label}</g>')
        else:
            parts.append(_text(left + w + 8, place + 4, title))
    return "".join(parts)


def _classes(one: Series, styles: Mapping[str, Look]) -> str:
    look = styles.get(one.arm)
    return look.classes if look else "q"


def _line(
    one: Series, styles: Mapping[str, Look], axis: str, px: Callable[[float], float], py: Callable[[float], float],
    points_of: bool,
) -> str:  # fmt: skip
    xs = [px(x) for x in one.x[axis]]
    banded = [(x, y, h) for x, y, h in zip(xs, one.y, one.half, strict=True) if h is not None]
    band = ""
    if len(banded) > 1:
        edge = [f"{_n(x)} {_n(py(y + h))}" for x, y, h in banded]
        edge += [f"{_n(x)} {_n(py(y - h))}" for x, y, h in reversed(banded)]
        band = f'<path d="M{"L".join(edge)}z" class="b"/>'
    path = "L".join(f"{_n(x)} {_n(py(y))}" for x, y in zip(xs, one.y, strict=True))
    marks = ""
    if points_of:
        for i, (x, y, half) in enumerate(zip(xs, one.y, one.half, strict=True)):
            mark = f" at {one.marks[i]}" if one.marks and one.marks[i] else ""
            tip = f"{one.title}: {interval(y, half)}{mark}, {amount(axis, one.x[axis][i])} {axis.split('_')[0]}"
            radius = 2.6 if i < len(xs) - 1 else 3.8
            marks += f'<circle cx="{_n(x)}" cy="{_n(py(y))}" r="{radius}" class="m">{_tip(tip)}</circle>'
    return f'<g class="{_classes(one, styles)}">{band}<path d="M{path}" class="l"/>{marks}</g>'


def _forest(chart: Chart, styles: Mapping[str, Look], width: int) -> tuple[str, int]:
    small = width < 480
    rows, pitch = len(chart.series), 19.0 if len(chart.series) > 16 else 22.0 if small else 26.0
    titles = [cut(one.title, width * (0.48 if small else 0.38)) for one in chart.series]
    left = 12 + max(map(width_of, titles), default=0.0)
    values = [interval(one.y[0], one.half[0]) for one in chart.series]
    right = 14.0 if small else 14 + max(map(width_of, values), default=0.0)
    w = width - left - right
    low, high = chart.limits

    def px(value: float) -> float:
        return left + w * (min(max(value, low), high) - low) / (high - low)

    heads = _level_rows(chart.levels, px, left, left + w)
    top = 8 + 15.0 * (max((row for _, row, _ in heads), default=-1) + 1)
    end = top + rows * pitch
    parts = []
    for value in nice_ticks(low, high, max(2, int(w / 45))):
        label = _text(px(value), end + 16, plain(value), anchor="middle")
        parts.append(f'<path d="M{_n(px(value))} {_n(top)}V{_n(end)}" class="g"/>{label}')
    label = cut(chart.label, width - 20)
    centre = min(left + w / 2, width - width_of(label) / 2 - 2)
    parts.append(_text(centre, end + 33, label, anchor="middle"))
    for level, (x, row, text) in zip(chart.levels, heads, strict=True):
        if level.half:
            a, b = px(level.value - level.half), px(level.value + level.half)
            parts.append(f'<path d="M{_n(a)} {_n(top)}H{_n(b)}V{_n(end)}H{_n(a)}z" class="u"/>')
        label = _text(x, 14 + 15 * row, text, anchor="middle")
        parts.append(f'<path d="M{_n(px(level.value))} {_n(top)}V{_n(end)}" class="v"/>{label}')
    for i, one in enumerate(chart.series):
        y = top + (i + 0.5) * pitch
        mean, half = one.y[0], one.half[0]
        inner = "".join(
            f'<path d="M{_n(px(v))} {_n(y - 7)}v4" class="s"/>'
            for row in one.seeds.values() for v in row if v is not None
        )  # fmt: skip
        if half is not None:
            inner += f'<path d="M{_n(px(mean - half))} {_n(y)}H{_n(px(mean + half))}" class="i"/>'
        tip = f"{one.title}: {interval(mean, half)}"
        inner += f'<circle cx="{_n(px(mean))}" cy="{_n(y)}" r="4.5" class="m">{_tip(tip)}</circle>'
        parts.append(_text(left - 10, y + 4, titles[i], "n0", "end"))
        parts.append(f'<g class="{_classes(one, styles)}">{inner}</g>')
        if not small:
            parts.append(_text(width - 2, y + 4, values[i], anchor="end"))
    return "".join(parts), int(end + 42)


def _level_rows(
    levels: Sequence[Level], px: Callable[[float], float], left: float, end: float
) -> list[tuple[float, int, str]]:
    """Return centre, row and text of the labels above a forest, in as many rows as keep them apart."""
    taken: list[float] = []
    result: dict[int, tuple[float, int, str]] = {}
    for index, level in sorted(enumerate(levels), key=lambda item: item[1].value):
        text = f"{level.title} {points(level.value)}"
        half = width_of(text) / 2
        centre = min(max(px(level.value), half + 2), max(half + 2, end - half))
        row = next((i for i, stop in enumerate(taken) if centre - half > stop + 8), len(taken))
        taken[row : row + 1] = [centre + half]
        result[index] = (centre, row, text)
    return [result[i] for i in range(len(levels))]


def bar(mean: float, half: float | None, limits: tuple[float, float], look: str, zero: bool = False) -> str:
    """Return a mean with its interval as a small drawing for the cell of a table."""
    low, high = limits

    def px(value: float) -> float:
        return 4 + 124 * (min(max(value, low), high) - low) / ((high - low) or 1.0)

    axis = f'<path d="M{_n(px(0))} 1v14" class="v"/>' if zero and low <= 0 <= high else ""
    line = f'<path d="M{_n(px(mean - half))} 8H{_n(px(mean + half))}" class="i"/>' if half is not None else ""
    return (
        f'<svg viewBox="0 0 132 16" width="132" height="16" aria-hidden="true"><path d="M0 8h132" class="g"/>{axis}'
        f'<g class="{look}">{line}<circle cx="{_n(px(mean))}" cy="8" r="4" class="m"/></g></svg>'
    )


def spark(curve: Sequence[tuple[float, float]], look: str) -> str:
    """Return the loss of one run over its steps as a small drawing without axes; "" without two points."""
    if len(curve) < 2:
        return ""
    (x0, x1), ys = (curve[0][0], curve[-1][0]), [y for _, y in curve]
    low, high = min(ys), max(ys)
    path = "L".join(
        f"{_n(2 + 196 * (x - x0) / ((x1 - x0) or 1))} {_n(2 + 44 * (1 - (y - low) / ((high - low) or 1)))}"
        for x, y in curve
    )
    return (
        f'<svg viewBox="0 0 200 48" width="200" height="48" role="img" aria-label="total loss, from {ys[0]:.3g} to '
        f'{ys[-1]:.3g}"><g class="{look}"><path d="M{path}" class="l"/></g></svg>'
    )


def standalone(svg: str, rules: str) -> str:
    """Return a drawing of the page as a file of its own, with its light colours."""
    style = ":root{--ink:#1b1e23;--muted:#5a616b;--grid:#e2e5ea}svg{font:12px system-ui,sans-serif;background:#fff}"
    style += SHAPES + re.sub(r"@media screen[^\n]*\n", "", rules)
    head = '<svg xmlns="http://www.w3.org/2000/svg"'
    return svg.replace("<svg", head, 1).replace(">", f"><style>{style}</style>", 1) + "\n"


SHAPES = (
    "svg .t{fill:var(--muted);font-size:12px}svg .n{fill:currentColor;font-size:12px;font-weight:600}"
    "svg .n0{fill:var(--ink);font-size:12px}svg .g{stroke:var(--grid);fill:none}svg .x{stroke:var(--muted);fill:none}"
    "svg .u{fill:var(--muted);opacity:.13}svg .v{stroke:var(--muted);stroke-dasharray:5 4;fill:none}"
    "svg .l{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}svg .b{fill:currentColor;opacity:.13}"
    "svg .m{fill:currentColor}svg .i{stroke:currentColor;stroke-width:3;fill:none}"
    "svg .s{stroke:currentColor;stroke-width:1.2;opacity:.7;fill:none}svg .q,.q{color:var(--muted)}"
    "svg .d1 .l,svg .d1 .i{stroke-dasharray:7 3}svg .d2 .l,svg .d2 .i{stroke-dasharray:2 2.5}"
    "svg .d3 .l,svg .d3 .i{stroke-dasharray:9 3 2 3}"
    "svg .faint .l{stroke-width:1;opacity:.5}svg .faint .b{display:none}"
)


def plan_figure(flops: Mapping[str, float]) -> str:
    """Return an SVG file with the published scores on GLUE over compute, and the compute of each planned arm.

    `flops` are the FLOPs of each arm under the paper's convention, above 0. Published models are open marks at their
    mean score, as in figure 1 of Clark et al. 2020. An arm has no score yet, so it is a line across the figure.
    """
    width, height, left, right, top, bottom = 920, 520, 50.0, 900.0, 40.0, 470.0  # CSS pixels
    amounts = [*flops.values(), *(point.flops for point in POINTS)]
    start, end = math.log10(min(amounts)) - 0.3, math.log10(max(amounts)) + 0.5
    low, high = min(point.score for point in POINTS) - 2, max(point.score for point in POINTS) + 2
    looks = categorical(list(flops))

    def px(amount: float) -> float:
        return left + (right - left) * (math.log10(amount) - start) / (end - start)

    def py(score: float) -> float:
        return top + (bottom - top) * (1 - (score - low) / (high - low))

    parts = [_text(left, 16, "GLUE")]
    for score in nice_ticks(low, high, 7):
        parts.append(f'<path d="M{_n(left)} {_n(py(score))}H{_n(right)}" class="g"/>')
        parts.append(_text(left - 6, py(score) + 4, plain(score), anchor="end"))
    for value in log_ticks(10**start, 10**end, 7):
        parts.append(_text(px(value), bottom + 18, amount("flops", value), anchor="middle"))
    axis = "training FLOPs, paper convention (log scale)"
    parts.append(_text((left + width) / 2, height - 10, axis, anchor="middle"))
    taken: list[tuple[float, float, float]] = []  # begin, end and height of each name
    for point in POINTS:
        x, y, name = px(point.flops), py(point.score), point.name
        tip = f"{name}: {points(point.score)} at {power(point.flops)} FLOPs; {point.source}"
        parts.append(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="4.5" class="o">{_tip(tip)}</circle>')
        long = width_of(name)
        for anchor, begin in (("start", x + 8), ("end", x - 8 - long)):
            free = all(abs(y - other) > 13 or begin + long < one or begin > two for one, two, other in taken)
            if left < begin < width - long and free:
                taken.append((begin, begin + long, y))
                parts.append(_text(x + (8 if anchor == "start" else -8), y + 4, name, anchor=anchor))
                break
    places = spread([px(value) for value in flops.values()], left, right, 90.0)
    for (arm, value), place in zip(flops.items(), places, strict=True):
        tip = _tip(f"{arm}, planned: {power(value)} FLOPs")
        line = f'<path d="M{_n(px(value))} {_n(top)}V{_n(bottom)}" class="l">{tip}</path>'
        label = _text(place, 32, short(arm, 13), "n", "middle")
        parts.append(f'<g class="{looks[arm].classes}">{line}{label}</g>')
    what = "published scores on GLUE against training FLOPs, and the training FLOPs of the planned arms"
    rules = colour_rules(looks) + "svg .o{fill:none;stroke:var(--muted);stroke-width:1.6}"
    return standalone(svg(width, height, what, "".join(parts)), rules)
