"""A matplotlib figure as an element of the page: colours as classes, names as text, ids of its own, the same bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from workbench.report.figures import svg
from workbench.report.figures.svg import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HOSTILE = "<script>\"'&$x^{2}$\x07\u202e"
VISIBLE = "<script>\"'&$x^{2}$\ufffd\ufffd"


def drawn(draw: Callable[[Axes], object], name: str = "f0", label: str = "a label", **tips: tuple[str, str]) -> str:
    with svg.drawing(name):
        figure = svg.figure(200, 100, layout=None)
        ax = figure.add_axes((0.1, 0.2, 0.8, 0.7))  # from 20 to 180, and from 10 to 80 from above
        ax.set_xlim(0, 8)
        ax.set_ylim(0, 7)
        draw(ax)
        return svg.write(figure, name, label, tips)


def marked(ax: Axes) -> None:
    ax.plot([2], [3.5], "o", color=COLOURS["s1"], mew=0, gid="tip-0")


def test_a_mark_stands_at_its_values_in_css_pixels() -> None:
    root = ElementTree.fromstring(drawn(marked, **{"tip-0": ("here", "")}))
    assert root.attrib["viewBox"] == "0 0 200 100"
    [group] = [g for g in root.iter("g") if g.find("title") is not None]
    [mark] = group.iter("use")
    assert float(mark.attrib["x"]) == pytest.approx(20 + 2 * 160 / 8, abs=0.06)
    assert float(mark.attrib["y"]) == pytest.approx(10 + 70 / 2, abs=0.06)


def test_colours_are_classes_and_nothing_has_a_style() -> None:
    def draw(ax: Axes) -> None:
        for place, code in enumerate(COLOURS.values()):
            ax.plot([place, place], [0, 1], color=code)
        ax.axhspan(1, 2, color=COLOURS["band"])
        ax.text(1, 1, "word", color=COLOURS["s3"])

    text = drawn(draw)
    found = [e for e in ElementTree.fromstring(text).iter() if "class" in e.attrib]
    classes = {c for e in found for c in e.attrib["class"].split()}
    assert {f"k-{name}" for name in COLOURS} | {"f-band", "f-s3", "figure"} <= classes
    assert not any(code in text for code in COLOURS.values()) and "style" not in text and "#000" not in text


def test_names_stay_names() -> None:
    def draw(ax: Axes) -> None:
        marked(ax)
        ax.set_title("<b> & $x^{2}$")

    text = drawn(draw, label=f"{HOSTILE}\n", **{"tip-0": (f"{HOSTILE}\nsecond", 'x"><b>')})
    root = ElementTree.fromstring(text)
    assert root.attrib["aria-label"] == f"{VISIBLE}\ufffd"
    [title] = root.iter("title")
    assert title.text == f"{VISIBLE}\nsecond"
    assert [a.attrib["href"] for a in root.iter("a")] == ['#x"><b>']
    assert "<b> & $x^{2}$" in [t.text for t in root.iter("text")]
    assert {e.tag for e in root.iter()} <= {"svg", "g", "path", "use", "text", "defs", "clipPath", "rect", "title", "a"}


@pytest.mark.parametrize(("target", "links"), [("run-3", ["#run-3"]), ("", [])])
def test_a_mark_leads_to_its_row(target: str, links: list[str]) -> None:
    root = ElementTree.fromstring(drawn(marked, **{"tip-0": ("a run", target), "tip-9": ("not drawn", "run-9")}))
    assert [a.attrib["href"] for a in root.iter("a")] == links
    assert [t.text for t in root.iter("title")] == ["a run"]
    for link in root.iter("a"):
        assert link.find(".//use") is not None and link.find(".//title") is not None


def test_ids_are_those_that_are_used_and_differ_from_figure_to_figure() -> None:
    of = {}
    for name in ("f0", "f1"):
        text = drawn(marked, name)
        root = ElementTree.fromstring(text)
        ids = [e.attrib["id"] for e in root.iter() if "id" in e.attrib]
        used = {e.attrib["href"][1:] for e in root.iter("use")} | set(re.findall(r"url\(#([^)]+)\)", text))
        assert sorted(ids) == sorted(used) and ids
        of[name] = set(ids)
    assert not of["f0"] & of["f1"]


def test_the_same_figure_has_the_same_bytes_whatever_settings_a_reader_has() -> None:
    import matplotlib

    one = drawn(marked)
    with matplotlib.rc_context({"font.size": 40, "axes.facecolor": "red", "lines.markersize": 99, "figure.dpi": 33}):
        assert drawn(marked) == one
        assert matplotlib.rcParams["font.size"] == 40 and matplotlib.rcParams["axes.facecolor"] == "red"
    assert not re.search(r"<(metadata|style|script)|<!--|<\?xml", one)


def test_coordinates_are_written_to_a_tenth_of_a_pixel() -> None:
    def draw(ax: Axes) -> None:
        ax.plot([1 / 3, 2 / 3, 5.01], [1 / 7, 2 / 7, 3 / 7], color=COLOURS["ink"])

    text = drawn(draw)
    places = [len(number) for number in re.findall(r"\d\d\.(\d+)", " ".join(re.findall(r' d="([^"]+)"', text)))]
    assert places and max(places) == 1
    [line] = re.findall(r'd="M (2[0-9.]+ [0-9.]+ +L [0-9.]+ [0-9.]+ +L [0-9.]+ [0-9.]+)', text)[-1:]
    numbers = [float(n) for n in line.replace("L", "").split()]
    expected = [20 + 20 / 3, 80 - 10 / 7, 20 + 40 / 3, 80 - 20 / 7, 20 + 20 * 5.01, 80 - 30 / 7]
    assert numbers == pytest.approx(expected, abs=0.051)


def test_letters_that_the_font_lacks_are_left_to_the_browser() -> None:
    words = "漢字 \U0001f600"
    assert words in drawn(lambda ax: ax.text(1, 1, words))


def test_a_file_of_its_own_has_its_colours_and_no_links() -> None:
    text = drawn(marked, **{"tip-0": ("a run", "run-3")})
    alone = svg.standalone(text, ".k-s0 { stroke: red }\n")
    root = ElementTree.fromstring(alone)
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg" and (root.attrib["width"], root.attrib["height"]) == ("200", "100")
    [style] = root.iter(f"{space}style")
    assert ".k-s0 { stroke: red }" in (style.text or "")
    assert not list(root.iter(f"{space}a")) and "run-3" not in alone
    inside: list[Any] = [e.tag for e in ElementTree.fromstring(text).iter() if e.tag not in ("a", "style")]
    assert [e.tag.removeprefix(space) for e in root.iter() if e.tag != f"{space}style"] == inside


def test_every_series_has_a_colour_of_its_own() -> None:
    assert len(set(COLOURS.values())) == len(COLOURS) and {f"s{i}" for i in range(svg.SERIES)} <= COLOURS.keys()
