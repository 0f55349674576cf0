"""Conversion of matplotlib figures to SVG elements of a page, without style attributes and with colours as CSS classes.

The page's Content-Security-Policy forbids style attributes, and dark mode needs the colours of the page. So a figure is
drawn in stand-in colours, parsed, and written again with a short list of allowed elements and attributes, so that
names of runs and arms can only be text.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree

from workbench.report.formatting import clean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SERIES = 8
# Placeholder colours for matplotlib. The page replaces each by the CSS variable of its name.
COLOURS = {f"s{i}": f"#a1b2c{i}" for i in range(SERIES)} | {
    "ink": "#a1b2d0", "muted": "#a1b2d1", "grid": "#a1b2d2", "paper": "#a1b2d3", "band": "#a1b2d4",
}  # fmt: skip
_CLASS = {code: name for name, code in COLOURS.items()}
_SVG = "{http://www.w3.org/2000/svg}"
_ELEMENTS = {"svg", "g", "path", "use", "text", "defs", "clipPath", "rect", "tspan"}
_ATTRIBUTES = {"d", "x", "y", "width", "height", "viewBox", "transform", "clip-path", "id"}
_STYLES = {
    "fill-opacity", "stroke-opacity", "opacity", "stroke-width", "stroke-dasharray", "stroke-dashoffset",
    "stroke-linecap", "stroke-linejoin", "font-size", "font-weight", "text-anchor",
}  # fmt: skip
_NUMBER = re.compile(r"-?\d+\.\d+")


@contextmanager
def drawing(name: str, size: float = 12.0) -> Iterator[None]:
    """Set matplotlib's defaults for a figure: text as text, names without mathematics, and the same ids every time."""
    import matplotlib

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "text.parse_math": False,
        "axes.formatter.use_mathtext": False,
        "font.size": size,
        "font.family": "DejaVu Sans",
        "text.color": COLOURS["ink"],
        "axes.edgecolor": COLOURS["muted"],
        "axes.labelcolor": COLOURS["ink"],
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.unicode_minus": True,
        "xtick.color": COLOURS["muted"],
        "ytick.color": COLOURS["muted"],
        "xtick.labelcolor": COLOURS["ink"],
        "ytick.labelcolor": COLOURS["ink"],
        "grid.color": COLOURS["grid"],
        "grid.linewidth": 0.8,
        "path.simplify": False,
    }
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()  # so that a user's matplotlibrc does not change reports
        matplotlib.rcParams.update(settings)
        # A name may contain letters that this font lacks; a browser has other fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        yield


def figure(width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> Figure:
    """Return an empty figure of a size in CSS pixels, without pyplot and its global state."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    empty = Figure(figsize=(width / 72, height / 72), layout=layout)
    FigureCanvasSVG(empty)
    return empty


def write(picture: Figure, name: str, label: str, tips: Mapping[str, tuple[str, str]] | None = None) -> str:
    """Return the figure as one `svg` element.

    `label` describes it for screen readers. `tips` maps the gid of an artist to its tool tip and the fragment that it
    links to ("" for none). `name` is the beginning of ids, which are unique on the page.
    """
    out = io.BytesIO()
    picture.savefig(
        out, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Type": None, "Format": None}
    )
    root = ElementTree.fromstring(out.getvalue())
    clean_tips = {gid: ("\n".join(map(clean, tip.split("\n"))), link) for gid, (tip, link) in (tips or {}).items()}
    text = "".join(_render(root, name, clean_tips, _used(root)))
    head = f'<svg class="figure" role="img" aria-label="{escape(clean(label))}"'
    return text.replace("<svg", head, 1)


def standalone(text: str, colours: str) -> str:
    """Return a figure of the page as a separate file, such as for a README: with colours, and without links."""
    view = re.search(r'viewBox="0 0 (\S+) (\S+)"', text)
    assert view is not None
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{view[1]}" height="{view[2]}"'
    style = f"<style>\n{colours}.figure {{ font-family: system-ui, sans-serif; }}\n</style>"
    return re.sub(r"<a [^>]*>|</a>", "", text).replace("<svg", head, 1).replace(">", f">{style}", 1) + "\n"


def _used(root: ElementTree.Element) -> set[str]:
    """Return the ids that other elements refer to; all others are removed."""
    ids = set()
    for element in root.iter():
        for key, value in element.attrib.items():
            if key.endswith("href"):
                ids.add(value.removeprefix("#"))
            elif value.startswith("url(#"):
                ids.add(value[5:-1])
    return ids


def _render(
    element: ElementTree.Element, name: str, tips: Mapping[str, tuple[str, str]], used: set[str]
) -> Iterator[str]:
    """Yield the text of an element and its children, with tool tips and links; elements not allowed are left out."""
    tag = element.tag.removeprefix(_SVG)
    if tag not in _ELEMENTS:
        return
    tip, target = tips.get(element.get("id", ""), ("", ""))
    if target:
        yield f'<a href="#{escape(target)}">'
    attributes = dict(_attributes(element, name, used))
    if tag == "svg":
        attributes = {"viewBox": attributes["viewBox"]}
    written = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items())
    yield f"<{tag}{written}>"
    if tip:
        yield f"<title>{escape(tip)}</title>"
    if tag in ("text", "tspan"):
        yield escape(element.text or "", quote=False)
    for child in element:
        yield from _render(child, name, tips, used)
    yield f"</{tag}>"
    if target:
        yield "</a>"


def _attributes(element: ElementTree.Element, name: str, used: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the allowed attributes of an element, with colours as classes."""
    classes = []
    for key, value in element.attrib.items():
        if key.endswith("href"):
            yield "href", f"#{name}-{value.removeprefix('#')}"
        elif key == "style":
            for style, setting in _styles(value):
                if style in ("fill", "stroke") and setting in _CLASS:
                    classes.append(f"{'f' if style == 'fill' else 'k'}-{_CLASS[setting]}")
                elif style in ("fill", "stroke") or style in _STYLES:
                    yield style, setting
        elif key == "id":
            if value in used:
                yield "id", f"{name}-{value}"
        elif value.startswith("url(#"):
            yield key, f"url(#{name}-{value[5:]}"
        elif key in _ATTRIBUTES:
            yield key, _NUMBER.sub(_shorter, value.replace("\n", ""))
    if classes:
        yield "class", " ".join(classes)


def _shorter(number: re.Match[str]) -> str:
    """Return a coordinate rounded to a tenth of a pixel, or to a hundredth if it is below ten, as in small marks."""
    value = float(number[0])
    return f"{value:.{1 if abs(value) >= 10 else 2}f}".rstrip("0").rstrip(".")


def _styles(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values in a style attribute, with the shorthand `font` as size and weight."""
    for part in text.split(";"):
        key, colon, value = part.partition(":")
        if not colon:
            continue
        key, value = key.strip(), value.strip()
        if key == "font":  # the shorthand: weight, size and family in one
            words = value.split("'")[0].split()
            yield from (("font-size", w) for w in words if w.endswith("px"))
            yield from (("font-weight", w) for w in words if w in ("bold", "700"))
        else:
            yield key, value
