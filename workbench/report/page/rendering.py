"""Rendering of the page templates, with filters for numbers and names. A page is one file that loads nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workbench
from workbench.report import formatting
from workbench.report.figures import drawing
from workbench.report.page.facts import known

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"


def html(name: str, colours: str, script: str = "", /, **context: Any) -> str:
    """Return a page from a template, with the CSS rules of its arms' `colours` and its `script`.

    Its Content-Security-Policy allows its own style sheet and script alone, by their hashes.
    """
    style = "\n" + template("report.css") + drawing.SHAPES + "\n" + colours
    whole = {"style": style, "script": script, "style_hash": _hash(style), "script_hash": _hash(script)}
    return environment().get_template(name).render(whole | {"version": workbench.__version__} | context)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def template(name: str) -> str:
    """Return the text of a file in `templates`."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def environment() -> Environment:
    """Return the Jinja environment: it escapes values, refuses unknown names and replaces invisible characters."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: formatting.clean(value) if type(value) is str else value,
    )
    templates.filters |= {
        "score": _score, "half": _half, "sd": lambda v: _number(v, ".2f"),
        "freedom": lambda v: _number(v, ".3g"), "pvalue": lambda v: _number(v, ".3f", 0.001),
        "power": formatting.power, "count": formatting.count, "duration": formatting.duration,
        "unbroken": _unbroken, "exponents": _exponents, "start": _start,
        "raw": lambda value: str(value).removesuffix(".0"), "cap": formatting.capital,
    }  # fmt: skip
    templates.tests["known"] = known
    return templates


def _score(mean: float | None, half: float | None, sign: bool = False, places: int = 1) -> str:
    """Return a mean with as many decimals as its interval needs, or `places` without an interval."""
    if mean is None:
        return formatting.points(None)
    return formatting.points(mean, places if half is None else formatting.places_for(mean, half), sign)


def _half(half: float, mean: float) -> str:
    """Return half the width of an interval with as many decimals as its mean has."""
    return f"{half:.{formatting.places_for(mean, half)}f}"


def _unbroken(text: str) -> Markup:
    """Return a sentence as markup in which no line ends between a number and its unit."""
    from markupsafe import Markup, escape

    pattern = r"(\d[\d.]*(?: \u00b1 [\d.]+)? (?:%|points?|seeds?|h|min|days?)(?!\w))"
    return Markup(re.sub(pattern, r'<span class="unit">\1</span>', str(escape(formatting.clean(text)))))


def _exponents(text: str) -> str:
    """Return a text with `6.5e14` written as `6.5×10¹⁴`."""
    return re.sub(r"(?<![\w.])(\d+(?:\.\d+)?)e\+?(-?\d+)\b", _as_power, text)


def _as_power(match: re.Match[str]) -> str:
    return f"{match[1]}{formatting.TIMES}{formatting.ten_to(int(match[2]))}"


def _number(value: float | None, form: str, least: float = 0.0) -> str:
    """Return a number in a format; a dash for None, and `< 0.001` below `least`."""
    if value is None:
        return "–"
    return f"< {least:g}" if 0 <= value < least else f"{value:{form}}"


def _start(value: object) -> str:
    """Return the first twelve characters of a hash; "" if it is unknown."""
    return str(value)[:12] if known(value) else ""
