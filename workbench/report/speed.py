"""The page of `workbench bench`: the speed of each objective, and how the time of a step is divided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from workbench.report.figures import drawing
from workbench.report.formatting import clean, count, power, short
from workbench.report.page import rendering
from workbench.store.atomic import dumps, sweep_old, write_together

Row = Mapping[str, Any]
WIDTH, BAR, HEAD = 460, 26, 6  # CSS pixels: of a figure, of the height of one bar, and above the first bar
COLOURS = drawing.categorical([f"part {number}" for number in range(len(drawing.PALETTE))])


def write(rows: Sequence[Row], out: Path) -> Path:
    """Write `out`/index.html and `out`/bench.json. Returns the path of the page. Raises OSError if the disk fails."""
    out.mkdir(parents=True, exist_ok=True)
    sweep_old(out)
    page, numbers = render(rows), dumps(list(rows)) + "\n"
    write_together({out / "bench.json": numbers.encode(), out / "index.html": page.encode("utf-8", "replace")})
    return out / "index.html"


def render(rows: Sequence[Row]) -> str:
    """Return the page as HTML. There is at least one row; each is measured or left out."""
    done = [row for row in rows if not row["skipped"]]
    by_scale: dict[str, list[Row]] = {}
    for row in done:
        by_scale.setdefault(row["scale"], []).append(row)
    context: dict[str, Any] = {
        "rows": done,
        "notes": notes(rows),
        "first": rows[0],
        "ceilings": {row["precision"]: row["ceiling_flops_per_second"] for row in rows},
        "figures": [(scale, throughput(of_scale), shares(of_scale)) for scale, of_scale in by_scale.items()],
        "legend": [(part, f"a{i % len(COLOURS)}") for i, part in enumerate(done[0]["shares"])] if done else [],
        "names": list(done[0]["shares"]) if done else [],
        "power": power,
    }
    return rendering.html("bench.html.j2", drawing.colour_rules(COLOURS), **context)


def notes(rows: Sequence[Row]) -> list[str]:
    """Return each note on the measurements once, with the rows that it applies to."""
    about: dict[str, list[str]] = {}
    for row in rows:
        for note in [*row["notes"], *([f"left out: {row['skipped']}"] if row["skipped"] else [])]:
            about.setdefault(note, []).append(f"{row['objective']} at {row['scale']}")
    return [f"{note} ({', '.join(names) if len(names) < len(rows) else 'all'})" for note, names in about.items()]


def throughput(rows: Sequence[Row]) -> str:
    """Return a bar chart of tokens per second as SVG; a line runs from the slowest to the fastest turn."""
    most = 1.75 * max(row["tokens_per_second"] for row in rows)
    left, parts = _left(rows), []
    for place, row in enumerate(rows):
        speed, tokens, y = row["tokens_per_second"], row["rows"] * row["length"], HEAD + BAR * place
        slow, fast = (_at(left, tokens / seconds / most) for seconds in reversed(row["seconds_spread"]))
        parts.append(f'<g class="a1">{_bar(left, _at(left, speed / most), y, "m")}</g>')
        parts.append(f'<path d="M{slow:.1f} {y + 9}H{fast:.1f}" class="x"/>')
        label = f"{count(speed)}, {row['model_flops_utilisation']:.0%} of the ceiling"
        parts.append(_text(max(_at(left, speed / most), fast) + 6, y + 13, label, "n0"))
    return _svg(rows, parts, f"Tokens per second at {rows[0]['scale']}")


def shares(rows: Sequence[Row]) -> str:
    """Return a bar chart as SVG: the share of each part in the time of a step, in %."""
    parts_of_step = list(rows[0]["shares"])
    left, parts = _left(rows), []
    for place, row in enumerate(rows):
        begin, y = 0.0, HEAD + BAR * place
        for i, part in enumerate(parts_of_step):
            end = begin + row["shares"][part]
            bar = _bar(_at(left, begin), _at(left, end), y, "m", f"{part}: {100 * row['shares'][part]:.1f} %")
            parts.append(f'<g class="a{i % len(COLOURS)}">{bar}</g>')
            begin = end
    return _svg(rows, parts, f"Time of a step by part at {rows[0]['scale']}")


def _left(rows: Sequence[Row]) -> float:
    """Return the width of the names of objectives."""
    return 10 + max(drawing.width_of(short(row["objective"])) for row in rows)


def _at(left: float, share: float) -> float:
    """Return the place of a share of the x axis."""
    return left + (WIDTH - left - 8) * share


def _bar(left: float, right: float, top: float, name: str, tip: str = "") -> str:
    title = f"<title>{escape(tip)}</title>" if tip else ""
    return f'<path d="M{left:.1f} {top}H{right:.1f}V{top + 18}H{left:.1f}z" class="{name}">{title}</path>'


def _text(x: float, y: float, text: str, name: str = "t", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y}" class="{name}" text-anchor="{anchor}">{escape(clean(text))}</text>'


def _svg(rows: Sequence[Row], parts: Sequence[str], label: str) -> str:
    """Return the drawing with the names of the objectives at the left of their bars."""
    left, height = _left(rows), HEAD + BAR * len(rows)
    names = [_text(left - 8, HEAD + BAR * i + 13, short(row["objective"]), "n0", "end") for i, row in enumerate(rows)]
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        f'aria-label="{escape(clean(label))}">{"".join([*names, *parts])}</svg>'
    )
