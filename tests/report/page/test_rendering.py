"""Templates: every value is escaped, unknown names are refused, and only the page's own style sheet is allowed."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import math
import re
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

import workbench
from workbench.report.page import rendering

MADE = rendering.environment()


def rendered(template: str, **context: Any) -> str:
    return MADE.from_string(template).render(context)


class Text(html.parser.HTMLParser):
    """What a browser shows of a fragment, and whether it has any element."""

    def __init__(self, fragment: str) -> None:
        super().__init__(convert_charrefs=True)
        self.shown, self.tags = "", 0
        self.feed(fragment)
        self.close()

    def handle_data(self, data: str) -> None:
        self.shown += data

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags += 1


@given(st.text("ab<>&'\"{}%/= \n\x00\x1b\u202e\ud800é", max_size=30))
def test_any_text_is_shown_as_itself_with_unseen_characters_made_visible(text: str) -> None:
    found = Text(rendered("{{ text }}", text=text))
    visible = re.sub("[\n\x00\x1b\u202e\ud800]", "\ufffd", text)
    assert (found.shown, found.tags) == (visible, 0)


def test_text_in_an_attribute_stays_there() -> None:
    found = rendered('<p title="{{ text }}"></p>', text='"><script>')
    assert Text(found).tags == 1 and '"><script>' not in found


@pytest.mark.parametrize("template", ["{{ gone }}", "{{ row.gone }}", "{% if gone %}{% endif %}"])
def test_a_name_that_is_not_there_is_an_error(template: str) -> None:
    with pytest.raises(UndefinedError, match="gone"):
        rendered(template, row={})


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("{{ 61.26 | score(none) }}", "61.3"), ("{{ 61.26 | score(none, places=2) }}", "61.26"),
        ("{{ 61.234 | score(0.021) }}", "61.23"), ("{{ 1.26 | score(0.5, true) }}", "+1.3"),
        ("{{ -1.26 | score(0.5) }}", "−1.3"), ("{{ none | score(none) }}", "–"), ("{{ none | score(1.0) }}", "–"),
        ("{{ 0.021 | half(61.234) }}", "0.02"), ("{{ 0.9 | half(68.24) }}", "0.9"),
        ("{{ 0.456 | sd }}", "0.46"), ("{{ none | sd }}", "–"),
        ("{{ 0.0004 | pvalue }}", "&lt; 0.001"), ("{{ 0.001 | pvalue }}", "0.001"), ("{{ 0.0456 | pvalue }}", "0.046"),
        ("{{ 0.0 | pvalue }}", "&lt; 0.001"), ("{{ none | pvalue }}", "–"),
        ("{{ 1.5e12 | power }}", "1.50×10¹²"), ("{{ 15625 | count }}", "15,625"),
        ("{{ 200 | duration }}", "3 min 20 s"),
        ("{{ digest | start }}", "0123456789ab"), ("{{ none | start }}", ""),
        ("{{ 'at 6.5e14 FLOPs, lr 9.75e-07, a1e5, s0-12e3, 1e+05' | exponents }}",
         "at 6.5×10¹⁴ FLOPs, lr 9.75×10⁻⁷, a1e5, s0-12e3, 1×10⁵"),
        ("{{ 'by 1.2 ± 0.9 points, 94.4 % of <b>; 12 seeds' | unbroken }}",
         'by <span class="unit">1.2 ± 0.9 points</span>, <span class="unit">94.4 %</span> of &lt;b&gt;; '
         '<span class="unit">12 seeds</span>'),
        ("{{ 'ELECTRA 15% leads Generator 1, depth 1/2 by 1' | unbroken }}",
         '<span class="unit">ELECTRA 15%</span> leads <span class="unit">Generator 1</span>, '
         '<span class="unit">depth 1/2</span> by 1'),
    ],
)  # fmt: skip
def test_numbers_are_rounded_as_readers_need_them(template: str, shown: str) -> None:
    assert rendered(template, digest="0123456789abcdef") == shown


@pytest.mark.parametrize(
    ("value", "known"),
    [(None, False), (math.nan, False), (pd.NA, False), (0, True), ("", True), (0.0, True), (False, True)],
)
def test_a_cell_is_known_where_it_holds_anything(value: Any, known: bool) -> None:
    assert rendered("{{ value is known }}", value=value) == str(known)


def test_the_style_sheet_is_allowed_by_its_hash_and_no_other_is() -> None:
    page = rendering.render_page("bench.html.j2", ".a0{color:red}", rows=[], notes=["a <b>"], ceilings={}, by_scale={},
                          parts=[], first={"started": "", "device": "cpu", "compile": False, "threads": 1,
                                            "machine": {"gpu": None, "cpu": "x", "cores": 1},
                                            "versions": {"torch": "2"}})  # fmt: skip
    [style] = re.findall("<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert re.findall("sha256-[^']+", page) == [f"sha256-{digest}"]
    assert ".a0{color:red}" in style and rendering.template("report.css") in style
    assert "a &lt;b&gt;" in page and workbench.__version__ in page


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("use `--seeds auto`, in another store (`--runs`)",
         "use <code>--seeds auto</code>, in another store (<code>--runs</code>)"),
        ("a ` alone", "a ` alone"),
        ("`<b>` & <i>", "<code>&lt;b&gt;</code> &amp; &lt;i&gt;"),
        ("`x`, and \x00 `", "`x`, and \ufffd `"),
        ("", ""),
    ],
)  # fmt: skip
def test_commands_in_a_sentence_are_code_and_everything_is_escaped(text: str, html: str) -> None:
    assert rendered("{% from 'macros.html.j2' import sentence %}{{ sentence(text) }}", text=text) == html
