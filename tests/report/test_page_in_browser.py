"""The page in a browser: its first screen holds the answer, nothing overlaps, and the script does what it offers.

Pages with one measure and with two, decided and not, with 5 and with 40 arms are laid out at the widths of a phone, a
tablet and a desk, in both colour schemes.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import made
import numpy as np
import pytest
from browser import MISSING, barriers, chromium, opened, settle
from matplotlib.image import imread

from workbench.report import write, write_again

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"pages cannot be looked at: {', '.join(MISSING)}")
KEPT = Path(__file__).parents[2] / "reports/kept"
LAYOUT = Path(__file__).with_name("page_layout.js").read_text()
# The study of the demo; one measure at points of training; an ordered axis; two measures; undecided; 40 long names.
PAGES = (
    "ablation", "ablation-mini-h100", "generator-size-micro", "ablation-micro-danish", "ablation-wikipedia", "many",
)  # fmt: skip
DECIDED = "ablation-mini-h100"
QUICK = (DECIDED, "ablation-micro-danish")  # the other pages are laid out by `make test-slow`
EVERY = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PAGES]
SCREENS = {390: 844, 768: 1024, 1440: 900}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The page of a kept study, drawn again, or of 40 arms; each is drawn once."""
    pages: dict[str, Path] = {}

    def page(name: str) -> Path:
        if name not in pages:
            out = tmp_path_factory.mktemp(name)
            pages[name] = _many(out) if name == "many" else write_again(KEPT / name, out)
        return pages[name]

    return page


def _many(root: Path) -> Path:
    arms = tuple(f"my_objective_number_{number:02}.py" for number in range(40))
    store, name = made.study(root / "runs", made.noisy({"untrained": 50.0} | {a: 60.0 for a in arms}), arms, seeds=2)
    return write(store, name, root / "out")


# -- what is to be seen


@pytest.mark.parametrize("name", EVERY)
def test_nothing_overlaps_or_is_cut(name: str, browser: Browser, page_of: Callable[[str], Path]) -> None:
    for (width, height), dark in zip(SCREENS.items(), (True, True, False), strict=True):
        with opened(browser, page_of(name), width, height, dark=dark, unfolded=True) as tab:
            found = tab.evaluate(LAYOUT)
        assert found["faults"] == [], (width, dark, found["faults"][:20])
        assert found["wide"] <= width and found["dark"] == dark


@pytest.mark.parametrize("script", [True, False])
@pytest.mark.parametrize("name", EVERY)
def test_first_screen_holds_the_answer(
    name: str, script: bool, browser: Browser, page_of: Callable[[str], Path]
) -> None:
    """Question, answer, figure, table and how sure it is, at a desk and on a phone."""
    for width in (390, 1440):
        with opened(browser, page_of(name), width, SCREENS[width], script=script) as tab:
            found = tab.evaluate(LAYOUT)
        assert found["faults"] == [], (width, found["faults"][:20])
        assert found["words"] <= 60 and found["answer"] <= 30 and found["rows"] == 5
        assert max(found["bottoms"].values()) <= SCREENS[width], (width, found["bottoms"])


@pytest.mark.parametrize("name", EVERY)
def test_axe_finds_no_barrier(name: str, browser: Browser, page_of: Callable[[str], Path]) -> None:
    for width, dark in ((1440, False), (390, True)):
        if name != DECIDED:  # contrast takes long, and on one page it is looked at in what is folded too
            with opened(browser, page_of(name), width, SCREENS[width], dark=dark) as tab:
                assert barriers(tab) == [], (width, dark)
        with opened(browser, page_of(name), width, SCREENS[width], dark=dark, unfolded=True) as tab:
            assert barriers(tab, contrast=name == DECIDED) == [], (width, dark, "unfolded")


def test_axe_notices_a_barrier(browser: Browser, page_of: Callable[[str], Path]) -> None:
    with opened(browser, page_of(DECIDED)) as tab:
        tab.evaluate("document.querySelector('#answer .label').style.color = '#eee'")
        tab.evaluate("document.querySelector('.plot').append(document.createElement('button'))")
        assert [found.split()[0] for found in barriers(tab)] == ["button-name", "color-contrast"]


def test_folded_figures_and_every_table_are_on_paper(browser: Browser, page_of: Callable[[str], Path]) -> None:
    """The script leaves a drawing in each figure that was never opened, and print shows what is folded."""
    with opened(browser, page_of(DECIDED)) as tab:
        assert tab.locator("details:not([open]) figure").count() > 5
        assert not tab.locator("figure:not(:has(svg))").count()
        tab.emulate_media(media="print")
        settle(tab)
        drawn = "querySelector('svg')?.getBoundingClientRect().height"
        for kind, height in (("figure[data-chart]", drawn), ("table", "getBoundingClientRect().height")):
            heights = tab.evaluate(f"[...document.querySelectorAll('{kind}')].map(each => each.{height})")
            assert len(heights) > 5 and all(heights), kind
        assert not tab.locator("nav, .tools, .sort").locator("visible=true").count()


# -- what the script offers


def chart(tab: Page, name: str = "main") -> Locator:
    return tab.locator(f"[data-chart={name}]")


def texts(tab: Page, name: str = "main") -> list[str]:
    return chart(tab, name).locator("svg text").all_text_contents()


def lines(tab: Page, name: str = "main") -> int:
    return chart(tab, name).locator("path.l").count()


def test_arms_go_on_and_off_in_all_figures(browser: Browser, page_of: Callable[[str], Path]) -> None:
    with opened(browser, page_of(DECIDED)) as tab:
        before = lines(tab), lines(tab, "curve-mlm_loss"), chart(tab, "forest").locator("circle").count()
        assert before == (5, 3, 5)
        tab.locator("#answer .short button", has_text="BERT MLM").click()
        assert (lines(tab), lines(tab, "curve-mlm_loss"), chart(tab, "forest").locator("circle").count()) == (4, 2, 4)
        assert "BERT MLM" not in texts(tab) and tab.locator("#curves .key.off").all_text_contents() == ["BERT MLM"]
        key = tab.locator("#curves .key", has_text="BERT MLM")
        assert key.get_attribute("aria-pressed") == "false"
        key.press("Enter")
        assert (lines(tab), lines(tab, "curve-mlm_loss")) == (5, 3) and key.get_attribute("aria-pressed") == "true"


def test_axes_scales_and_seeds(browser: Browser, page_of: Callable[[str], Path]) -> None:
    with opened(browser, page_of(DECIDED)) as tab:
        axis = chart(tab).locator("select")
        assert axis.locator("option").all_text_contents()[:4] == ["FLOPs", "tokens", "steps", "time"]
        for value, label in (("tokens", "tokens"), ("steps", "steps"), ("seconds", "seconds of training")):
            axis.select_option(value)
            assert f"{label}, log scale" in texts(tab)
        chart(tab).get_by_role("button", name="log", exact=True).click()
        assert "seconds of training" in texts(tab)
        assert chart(tab).locator(".b").count() == 5 and not chart(tab).locator(".seed").count()
        chart(tab).get_by_role("button", name="seeds").click()
        assert chart(tab).locator(".seed").count() == 20 and not chart(tab).locator(".b").count()
        assert chart(tab, "curve-mlm_loss").locator(".seed").count() == 12
        tab.locator("#curves select[aria-label=axis]").select_option("seconds")
        assert "time" in texts(tab, "curve-mlm_loss") and "time" in texts(tab, "curve-generator_loss")


def test_values_by_mouse_finger_and_keyboard(browser: Browser, page_of: Callable[[str], Path]) -> None:
    with opened(browser, page_of(DECIDED)) as tab:
        plot, tip, said = chart(tab).locator(".plot"), chart(tab).locator(".tip"), chart(tab).locator("[aria-live]")
        last = chart(tab).locator("circle.m").last.bounding_box()
        assert last is not None
        tab.mouse.move(last["x"] + 2, last["y"] + 30)
        assert "BERT MLM 94.4 ± 0.3" in tip.inner_text() and "FLOPs" in tip.inner_text()
        tab.mouse.move(0, 0)
        assert not tip.count()
        plot.focus()
        for _ in range(7):  # points of training, at about the same compute for every arm
            tab.keyboard.press("ArrowRight")
        assert "BERT MLM 94.4 ± 0.3" in said.inner_text() and tip.count() == 1
        tab.keyboard.press("Escape")
        assert not tip.count() and said.inner_text() == ""
        place = {"x": last["x"], "y": last["y"], "pointerType": "touch"}
        plot.dispatch_event("pointerdown", {"clientX": place["x"], "clientY": place["y"], "pointerType": "touch"})
        plot.dispatch_event("pointerleave", {"pointerType": "touch"})
        assert "94.4" in tip.inner_text()


def test_zoom_by_dragging_and_by_keys(browser: Browser, page_of: Callable[[str], Path]) -> None:
    with opened(browser, page_of(DECIDED)) as tab:
        box, whole, reset = chart(tab).locator("svg").bounding_box(), texts(tab), chart(tab).get_by_text("reset zoom")
        assert box is not None and not reset.is_visible()
        tab.mouse.move(box["x"] + 300, box["y"] + 100)
        tab.mouse.down()
        tab.mouse.move(box["x"] + 420, box["y"] + 110, steps=5)
        assert chart(tab).locator("rect.zoom").count() == 1
        tab.mouse.up()
        assert texts(tab) != whole and reset.is_visible()
        reset.click()
        assert texts(tab) == whole and not reset.is_visible()
        chart(tab).locator(".plot").focus()
        tab.keyboard.press("+")
        assert texts(tab) != whole
        tab.keyboard.press("-")
        assert texts(tab) == whole


def test_tables_are_sorted_and_filtered(browser: Browser, page_of: Callable[[str], Path]) -> None:
    with opened(browser, page_of(DECIDED)) as tab:
        scores = tab.locator("table[data-name=scores]").first
        order = []
        for _ in range(2):
            scores.get_by_role("button", name="sort by score").click()
            order.append([text.split()[0] for text in scores.locator("tbody th").all_text_contents()])
        assert order[0][0] == "BERT" and order[1][0] == "chance" and order[0] == order[1][::-1]
        assert scores.locator("[aria-sort]").get_attribute("aria-sort") == "ascending"
        runs = tab.locator("table[data-name=runs]")
        runs.locator("input").fill("replace 2")
        assert {text.split()[0] for text in runs.locator("tbody tr:visible td:nth-child(2)").all_text_contents()} == {
            "Replace"
        }
        runs.locator("input").fill("")
        assert runs.locator("tbody tr:visible").count() == 24


def test_links_lead_to_a_run_and_to_the_terms_and_contents_follow(
    browser: Browser, page_of: Callable[[str], Path]
) -> None:
    with opened(browser, page_of(DECIDED)) as tab:
        current = tab.locator("nav [aria-current]")
        assert current.all_text_contents() == ["Answer"]
        link = tab.locator("table[data-name=runs] a").nth(3)
        link.click()
        section = tab.locator(str(link.get_attribute("href")))
        assert section.get_attribute("open") is not None and link.inner_text() in section.inner_text()
        assert "metrics.jsonl" in section.inner_text() and section.locator("svg").is_visible()
        tab.wait_for_timeout(100)
        top, nav = section.bounding_box(), tab.locator("nav").bounding_box()
        assert top is not None and nav is not None and nav["y"] == 0 and nav["height"] <= top["y"] < 900
        assert current.all_text_contents() == ["Runs"]
        tab.locator("#comparisons .term").first.click()
        assert tab.locator("#m-gap").is_visible() and tab.locator("#terms").get_attribute("open") is not None


# -- what can be taken along


@pytest.mark.parametrize(("figure", "panel"), [("main", False), ("forest", False), ("curve-mlm_loss", True)])
def test_figures_are_saved_as_svg_and_png(
    figure: str, panel: bool, browser: Browser, page_of: Callable[[str], Path], tmp_path: Path
) -> None:
    with opened(browser, page_of(DECIDED), dark=figure == "forest") as tab:
        box = chart(tab, figure).locator("svg").bounding_box()
        assert box is not None
        paths = {}
        for kind in ("SVG", "PNG"):
            with tab.expect_download() as waiting:
                chart(tab, figure).get_by_role("button", name=kind).click()
            assert waiting.value.suggested_filename == f"{figure}.{kind.lower()}"
            paths[kind] = tmp_path / waiting.value.suggested_filename
            waiting.value.save_as(paths[kind])
        with opened(browser, paths["SVG"]) as alone:  # it is drawn alike without the page
            drawn = alone.locator("svg").bounding_box()
    width, height = round(box["width"]), round(box["height"]) + 22 * panel
    root = ElementTree.parse(paths["SVG"]).getroot()
    assert (root.get("width"), root.get("height")) == (str(width), str(height))
    shown = [node.text for node in root.iter() if node.tag.endswith("}text")]
    title = "MLM loss of the encoder, nats" if panel else "Minimal pairs (pairs:replace), accuracy, %"
    assert title in shown and (panel or "BERT MLM" in shown)
    arms = [node for node in root.iter() if node.tag.endswith("}circle" if figure == "forest" else "}path")]
    assert len(arms) >= 3 and "class=" not in paths["SVG"].read_text()
    assert drawn is not None and (drawn["width"], drawn["height"]) == (width, height)
    pixels = imread(paths["PNG"])
    assert pixels.shape == (3 * height, 3 * width, 4)
    assert len(np.unique(pixels[..., :3].reshape(-1, 3), axis=0)) > 50  # lines, texts and their edges


def test_a_table_is_copied_as_csv_markdown_and_latex(browser: Browser, page_of: Callable[[str], Path]) -> None:
    page = page_of(DECIDED)
    with opened(browser, page) as tab:
        table, copied = tab.locator("table[data-name=scores]").first, {}
        for kind in ("CSV", "Markdown", "LaTeX"):
            table.get_by_role("button", name=kind).click()
            copied[kind] = tab.evaluate("navigator.clipboard.readText()")
            assert "copied" in table.locator("caption button").all_text_contents()
    head, *rows = csv.reader(io.StringIO(copied["CSV"]))
    assert head[:4] == ["arm", "score", "score half width", "seeds"]
    with (page.parent / "table.csv").open(newline="") as file:
        means = {row["arm"]: float(row["score"]) for row in csv.DictReader(file)}
    of_page = {row[0]: float(row[1]) for row in rows}
    assert of_page["BERT MLM bert-mlm"] == pytest.approx(means["bert-mlm"], abs=1e-9)
    assert "| BERT MLM bert-mlm | 94.4 ± 0.3 | 4 |" in copied["Markdown"]
    assert copied["LaTeX"].startswith("\\begin{tabular}{lrrrl}\n\\toprule\narm & score & seeds")
    assert "BERT MLM bert-mlm & 94.4 $\\pm$ 0.3 & 4" in copied["LaTeX"]
