"""The page of `workbench bench`: the speed of each objective, and how the time of a step is divided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.report.figures import svg
from workbench.report.figures.arm_styles import styles
from workbench.report.figures.svg import COLOURS, SERIES
from workbench.report.formatting import count, power, short
from workbench.report.page import rendering
from workbench.store.atomic import dumps, sweep_old, write_together

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]
BAR, HEAD = 26, 74  # CSS pixels: the height of one bar, and of everything around the bars


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
    scales = list(dict.fromkeys(row["scale"] for row in done))
    context = {
        "rows": done,
        "notes": notes(rows),
        "first": rows[0],
        "ceilings": {row["precision"]: row["ceiling_flops_per_second"] for row in rows},
        "speed": [(s, throughput([r for r in done if r["scale"] == s], f"t{i}")) for i, s in enumerate(scales)],
        "parts": [(s, shares([r for r in done if r["scale"] == s], f"p{i}")) for i, s in enumerate(scales)],
        "names": list(done[0]["shares"]) if done else [],
        "power": power,
    }
    return rendering.html("bench.html.j2", **context)


def notes(rows: Sequence[Row]) -> list[str]:
    """Return each note on the measurements once, with the rows that it applies to."""
    about: dict[str, list[str]] = {}
    for row in rows:
        for note in [*row["notes"], *([f"left out: {row['skipped']}"] if row["skipped"] else [])]:
            about.setdefault(note, []).append(f"{row['objective']} at {row['scale']}")
    return [f"{note} ({', '.join(names) if len(names) < len(rows) else 'all'})" for note, names in about.items()]


def throughput(rows: Sequence[Row], name: str) -> str:
    """Return a bar chart of tokens per second as SVG; a line runs from the slowest to the fastest turn."""
    style_of = styles(row["objective"] for row in rows)
    with svg.drawing(name, 12):
        figure = svg.figure(460, HEAD + BAR * len(rows))
        ax = figure.subplots()
        for place, row in enumerate(rows):
            speed, tokens = row["tokens_per_second"], row["rows"] * row["length"]
            ax.barh(place, speed, height=0.62, color=style_of[row["objective"]].colour)
            slow, fast = (tokens / seconds for seconds in reversed(row["seconds_spread"]))
            ax.plot([slow, fast], [place, place], color=COLOURS["ink"], lw=1.6)
            label = f"{count(speed)}, {row['model_flops_utilisation']:.0%} of the ceiling"
            ax.annotate(label, (max(speed, fast), place), (5, 0), textcoords="offset points", va="center", fontsize=11)
        ax.set_xlim(0, 1.75 * max(row["tokens_per_second"] for row in rows))
        _names(ax, rows, "tokens per second")
        ax.grid(visible=False)  # every bar is labelled with its number, and grid lines would cross it
        return svg.write(figure, name, f"Tokens per second at {rows[0]['scale']}")


def shares(rows: Sequence[Row], name: str) -> str:
    """Return a bar chart as SVG: the share of each part in the time of a step, in %."""
    parts = list(rows[0]["shares"])
    with svg.drawing(name, 12):
        figure = svg.figure(460, HEAD + 22 + BAR * len(rows))
        ax = figure.subplots()
        for place, row in enumerate(rows):
            left = 0.0
            for i, part in enumerate(parts):
                share = 100 * row["shares"][part]
                ax.barh(place, share, left=left, height=0.62, color=COLOURS[f"s{i % SERIES}"],
                        label=part if place == 0 else None)  # fmt: skip
                left += share
        ax.set_xlim(0, 100)
        _names(ax, rows, "% of a step")
        figure.legend(loc="outside upper left", ncols=4, frameon=False, fontsize=10, handlelength=1)
        return svg.write(figure, name, f"Time of a step by part at {rows[0]['scale']}")


def _names(ax: Axes, rows: Sequence[Row], label: str) -> None:
    """Label the bars with objectives and the x axis with `label`."""
    ax.set_yticks(range(len(rows)), [short(row["objective"]) for row in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(label)
    ax.xaxis.set_major_locator(_few())
    ax.xaxis.set_major_formatter(lambda value, _: count(value))
    ax.grid(axis="x")
    ax.set_axisbelow(True)


def _few() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(5)
