"""Rendering of page templates, with filters for numbers and names, and the page of `workbench bench`.

A page is one file that loads nothing else.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workbench
from workbench.report import drawing, formatting
from workbench.report.comparison import every_metric
from workbench.report.page import facts
from workbench.report.page.facts import known
from workbench.spec.published import points_of
from workbench.store.atomic import dumps, sweep_old, write_together

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

Row = Mapping[str, Any]

TEMPLATES = Path(__file__).parent / "templates"
COLOURS = drawing.categorical([f"part {number}" for number in range(len(drawing.PALETTE))])


def render_page(name: str, colours: str, script: str = "", /, folder: Path = TEMPLATES, **context: Any) -> str:
    """Return a page from a template, with the CSS rules of its arms' `colours` and its `script`.

    The template is in `folder` and may extend those of reports. The page's Content-Security-Policy allows its own style
    sheet and script alone, by their hashes.
    """
    style = "\n" + template("report.css") + drawing.SHAPES + "\n" + colours
    whole = {"style": style, "script": script}
    for key, text in list(whole.items()):
        whole[f"{key}_hash"] = f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
    return environment(folder).get_template(name).render(whole | {"version": workbench.__version__} | context)


def template(name: str) -> str:
    """Return the text of a file in `templates`."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


@functools.cache
def environment(folder: Path = TEMPLATES) -> Environment:
    """Return the Jinja environment, which escapes values, refuses unknown names and shows invisible characters."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=lambda value: formatting.clean(value) if type(value) is str else value,
    )  # fmt: skip
    templates.filters |= {
        "score": _score, "half": lambda half, mean: f"{half:.{formatting.places_for(mean, half)}f}",
        "sd": lambda v: _number(v, ".2f"), "pvalue": lambda v: _number(v, ".3f", 0.001),
        "power": formatting.power, "count": formatting.count, "duration": formatting.duration,
        "unbroken": _unbroken, "exponents": _exponents,
        "start": lambda digest: str(digest)[:12] if known(digest) else "",
        "raw": lambda value: str(value).removesuffix(".0"), "short": formatting.short,
    }  # fmt: skip
    templates.tests["known"] = known
    templates.globals |= {
        "notes": facts.notes, "arithmetic_note": facts.arithmetic_note, "every_metric": every_metric,
        "points_of": points_of,
    }  # fmt: skip
    return templates


def _score(mean: float | None, half: float | None, sign: bool = False, places: int = 1) -> str:
    """Return a mean with as many decimals as its interval needs, or `places` without an interval."""
    if mean is None:
        return formatting.points(None)
    return formatting.points(mean, places if half is None else formatting.places_for(mean, half), sign)


def _unbroken(text: str) -> Markup:
    """Return a sentence as markup in which no line ends between a number and its unit."""
    from markupsafe import Markup

    pattern = r"(\d[\d.]*(?: \u00b1 [\d.]+)? (?:%|points?|seeds?|h|min|days?)(?!\w))"
    return Markup(re.sub(pattern, r'<span class="unit">\1</span>', str(Markup.escape(formatting.clean(text)))))


def _exponents(text: str) -> str:
    number = r"(?<![\w.])(\d+(?:\.\d+)?)e\+?(-?\d+)\b"
    return re.sub(number, lambda match: f"{match[1]}{formatting.TIMES}{formatting.ten_to(int(match[2]))}", text)


def _number(value: float | None, form: str, least: float = 0.0) -> str:
    """Return a number in a format; a dash for None, and `< 0.001` below `least`."""
    if value is None:
        return "–"
    return f"< {least:g}" if 0 <= value < least else f"{value:{form}}"


def write_bench(rows: Sequence[Row], out: Path) -> Path:
    """Write `out`/index.html and `out`/bench.json. Returns the path of the page. Raises OSError if the disk fails.

    There is at least one row; each is measured or left out.
    """
    done = [row for row in rows if not row["skipped"]]
    by_scale: dict[str, list[Row]] = {}
    for row in done:
        by_scale.setdefault(row["scale"], []).append(row)
    page = render_page(
        "bench.html.j2", drawing.colour_rules(COLOURS), rows=done, notes=bench_notes(rows), first=rows[0],
        ceilings={row["precision"]: row["ceiling_flops_per_second"] for row in rows}, by_scale=by_scale,
        parts=list(done[0]["shares"]) if done else [], looks=len(COLOURS), width_of=drawing.width_of,
    )  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    sweep_old(out)
    numbers = dumps(list(rows)) + "\n"
    write_together({out / "bench.json": numbers.encode(), out / "index.html": page.encode("utf-8", "replace")})
    return out / "index.html"


def bench_notes(rows: Sequence[Row]) -> list[str]:
    """Return each note on the measurements once, with the rows that it applies to."""
    about: dict[str, list[str]] = {}
    for row in rows:
        for note in [*row["notes"], *([f"left out: {row['skipped']}"] if row["skipped"] else [])]:
            about.setdefault(note, []).append(f"{row['objective']} at {row['scale']}")
    return [f"{note} ({', '.join(names) if len(names) < len(rows) else 'all'})" for note, names in about.items()]
