"""Templates, and the numbers and names that they write. One file comes out, which loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workbench
from workbench.report import words
from workbench.report.page.facts import known

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"


def html(name: str, **context: Any) -> str:
    """Return a whole page from a template; its style sheet is allowed by its hash and no other is."""
    style = "\n" + template("colours.css") + template("style.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    whole = {"style": style, "style_hash": f"sha256-{digest}", "version": workbench.__version__}
    return environment().get_template(name).render(whole | context)


def template(name: str) -> str:
    """Return the text of a file in `templates`."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def environment() -> Environment:
    """Templates with every value escaped, unknown names refused, and characters that can't be seen made visible."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: words.clean(value) if type(value) is str else value,
    )
    made.filters |= {
        "score": _score, "half": _half, "sd": lambda v: _number(v, ".2f"),
        "freedom": lambda v: _number(v, ".3g"), "pvalue": lambda v: _number(v, ".3f", 0.001),
        "power": words.power, "count": words.count, "duration": words.duration, "start": _start, "cap": words.capital,
    }  # fmt: skip
    made.tests["known"] = known
    return made


def _score(mean: float | None, half: float | None, sign: bool = False, places: int = 1) -> str:
    """A mean rounded as its interval asks."""
    if mean is None:
        return words.points(None)
    return words.points(mean, places if half is None else words.places_for(mean, half), sign)


def _half(half: float, mean: float) -> str:
    return f"{half:.{words.places_for(mean, half)}f}"


def _number(value: float | None, form: str, least: float = 0.0) -> str:
    if value is None:
        return "–"
    return f"< {least:g}" if 0 <= value < least else f"{value:{form}}"


def _start(value: object) -> str:
    """The beginning of a digest."""
    return str(value)[:12] if known(value) else ""
