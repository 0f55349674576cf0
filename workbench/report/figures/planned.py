"""Figure of a plan: the published scores over compute, and the compute of the runs that are planned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

from workbench.report.figures import drawing
from workbench.report.formatting import clean, points, power, short
from workbench.spec.published import POINTS

WIDTH, HEIGHT = 920, 520  # CSS pixels
LEFT, RIGHT, TOP, BOTTOM = 50.0, 20.0, 40.0, 50.0


def figure(flops: Mapping[str, float]) -> str:
    """Return the figure as an SVG file. `flops` are those of each arm under the paper's convention, above 0.

    Published models are open marks at their mean score on GLUE, as in figure 1 of Clark et al. 2020. An arm has no
    score yet, so it is a line across the figure, with its name above.
    """
    amounts = [*flops.values(), *(point.flops for point in POINTS)]
    start, end = math.log10(min(amounts)) - 0.3, math.log10(max(amounts)) + 0.5
    low, high = min(point.score for point in POINTS) - 2, max(point.score for point in POINTS) + 2
    looks = drawing.categorical(list(flops))
    bottom = HEIGHT - BOTTOM

    def px(amount: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(amount) - start) / (end - start)

    def py(score: float) -> float:
        return TOP + (bottom - TOP) * (1 - (score - low) / (high - low))

    parts = []
    for score in drawing.nice_ticks(low, high, 7):
        parts.append(f'<path d="M{LEFT} {py(score):.1f}H{WIDTH - RIGHT}" class="g"/>')
        parts.append(_text(LEFT - 6, py(score) + 4, drawing.plain(score), "t", "end"))
    for amount in drawing.log_ticks(10**start, 10**end, 7):
        parts.append(_text(px(amount), bottom + 18, drawing.amount("flops", amount), "t", "middle"))
    parts.append(_text((LEFT + WIDTH) / 2, HEIGHT - 10, "training FLOPs, paper convention (log scale)", "t", "middle"))
    parts.append(_text(LEFT, 16, "GLUE", "t"))
    taken: list[tuple[float, float, float]] = []
    for point in POINTS:
        x, y, name = px(point.flops), py(point.score), point.name
        tip = f"{name}: {points(point.score)} at {power(point.flops)} FLOPs; {point.source}"
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" class="o"><title>{escape(clean(tip))}</title></circle>'
        )
        width = drawing.width_of(name)
        for anchor, left in (("start", x + 8), ("end", x - 8 - width)):
            if LEFT < left < WIDTH - width and all(
                abs(y - other) > 13 or left + width < begin or left > stop for begin, stop, other in taken
            ):
                taken.append((left, left + width, y))
                parts.append(_text(x + (8 if anchor == "start" else -8), y + 4, name, "t", anchor))
                break
    places = drawing.spread([px(amount) for amount in flops.values()], LEFT, WIDTH - RIGHT, 90.0)
    for (arm, amount), place in zip(flops.items(), places, strict=True):
        tip = f"{arm}, planned: {power(amount)} FLOPs"
        line = f'<path d="M{px(amount):.1f} {TOP}V{bottom}" class="l"><title>{escape(clean(tip))}</title></path>'
        parts.append(f'<g class="{looks[arm].classes}">{line}{_text(place, 32, short(arm, 13), "n", "middle")}</g>')
    label = "published scores on GLUE against training FLOPs, and the training FLOPs of the planned arms"
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{label}">'
    rules = drawing.colour_rules(looks) + "svg .o{fill:none;stroke:var(--muted);stroke-width:1.6}"
    return drawing.standalone(f"{svg}{''.join(parts)}</svg>", rules)


def _text(x: float, y: float, text: str, name: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{name}" text-anchor="{anchor}">{escape(clean(text))}</text>'
