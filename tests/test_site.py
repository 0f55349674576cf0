"""The documentation site: pages that follow from the code name every command and every setting, and all links hold."""

from __future__ import annotations

import dataclasses
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from workbench import objectives
from workbench.cli import COMMANDS
from workbench.spec.host import Launch
from workbench.spec.run_spec import RunSpec, known_keys

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    """The pages that docs/generate.py writes below build/."""
    subprocess.run([sys.executable, "docs/generate.py"], cwd=ROOT, check=True)
    return {name: (ROOT / f"build/pages/{name}.md").read_text(encoding="utf-8") for name in ("commands", "settings")}


def test_every_command_and_every_setting_has_its_place(generated: dict[str, str]) -> None:
    assert set(re.findall(r"^## workbench (.+)$", generated["commands"], re.MULTILINE)) == {*COMMANDS, "data prepare"}
    keys = set(re.findall(r"^\| `([\w.]+)` \|", generated["settings"], re.MULTILINE))
    assert {key for key in known_keys() if not key.startswith("data.special.")} <= keys
    assert {f"launch.{field.name}" for field in dataclasses.fields(Launch)} <= keys
    options = {
        name: objectives.load(RunSpec(objective=name)).Options.model_fields.keys() for name in objectives.names()
    }
    sections = re.split(r"^## options of ", generated["settings"], flags=re.MULTILINE)[1:]
    listed = {part.split("\n")[0]: set(re.findall(r"^\| `options\.(\w+)`", part, re.MULTILINE)) for part in sections}
    assert listed == {name: set(fields) for name, fields in options.items() if fields}
    assert (
        "| `encoder.layers` | number of layers | whole number, above 0, at most 4096 | layers | "
        "`1` (nano); `2` (micro); `4` (mini); `12` (small, base); `24` (large) | table 6 |" in generated["settings"]
    )
    assert "| `sdpa`, `eager` |  | `sdpa` |  |" in generated["settings"]


def test_every_setting_has_a_meaning_in_its_declaration(generated: dict[str, str]) -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (.*?) \|", generated["settings"], re.MULTILINE)
    assert len(rows) > 130 and [key for key, meaning in rows if not re.search(r"\w{2}", meaning)] == []


def test_every_option_of_a_command_has_a_meaning(generated: dict[str, str]) -> None:
    """The pages show what --help says, whose declaration a missing sentence would leave blank."""
    shown = re.findall(
        r"^  (--[a-z-]+)(?: <[^>]+>)?(?: +(\S.*))?$\n(?: {20,}(\S.*))?", generated["commands"], re.MULTILINE
    )
    assert len(shown) > 150
    assert [name for name, behind, below in shown if not re.match(r"[^\[\s]", behind or below)] == []


def test_every_number_has_a_unit_and_no_unit_or_source_is_of_another_key(generated: dict[str, str]) -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| .*? \| (.*?) \| (.*?) \| .*? \| .*? \|$", generated["settings"], re.MULTILINE)
    keys = {key for key, _, _ in rows}
    assert len(keys) > 100
    assert [key for key, takes, unit in rows if re.search(r"\bnumber\b", takes) and not unit] == []
    listed = runpy.run_path(str(ROOT / "docs" / "settings_facts.py"))
    assert {*listed["UNITS"], *listed["SOURCES"]} <= keys


def kept_pages() -> set[str]:
    """What reports/kept/README.md links to in HTML, which neither Sphinx nor tests/test_docs.py looks at."""
    return set(re.findall(r'<a\s+href="([^"]+)"', (ROOT / "reports/kept/README.md").read_text(encoding="utf-8")))


def test_every_kept_report_is_linked() -> None:
    kept = ROOT / "reports/kept"
    assert kept_pages() == {str(page.relative_to(kept)) for page in kept.glob("*/index.html")} != set()


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(generated: dict[str, str], tmp_path: Path) -> None:
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", "docs", "-b", "html", ".", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all((tmp_path / "reports" / "kept" / name).is_file() for name in kept_pages())
    page = (tmp_path / "docs" / "reference" / "api.html").read_text(encoding="utf-8")
    assert "workbench.api.run" in page and "workbench.api.Store" in page

    index = json.loads((tmp_path / "searchindex.js").read_text(encoding="utf-8")[len("Search.setIndex(") : -1])
    pages = dict(zip(index["docnames"], range(len(index["docnames"])), strict=True))
    record = ("docs/log", "docs/mutants", "docs/drills", "docs/decisions/0", "CHANGELOG")
    left_out = {number for name, number in pages.items() if name.startswith(record)}
    found = {name: {each} if isinstance(each, int) else {*each} for name, each in index["terms"].items()}
    assert len(found) > 1000 and len(left_out) > 15 and not any(each & left_out for each in found.values())
    headings = {title.lower(): {page for page, _ in places} for title, places in index["alltitles"].items()}
    assert headings["learning rate"] == {pages["docs/howto/scales"]}  # a heading of the very words is found first
    assert headings["resume a run"] == {pages["docs/start"]}
    home = (tmp_path / "docs" / "index.html").read_text(encoding="utf-8").partition("<article")[2]
    assert all(f'href="howto/{page.stem}.html"' in home for page in (ROOT / "docs/howto").glob("*.md"))
    assert '_images/report.png"' in home
