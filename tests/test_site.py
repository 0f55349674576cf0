"""The documentation site: pages that follow from the code name every command and every setting, and all links hold."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.cli import COMMANDS
from workbench.spec.run_spec import known_keys

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
    assert (
        "| `encoder.layers` | whole number, above 0, at most 4096 | layers | "
        "`1` (nano); `2` (micro); `4` (mini); `12` (small, base); `24` (large) | table 6 |" in generated["settings"]
    )
    assert "| `encoder.attention` | `sdpa`, `eager` |  | `sdpa` |  |" in generated["settings"]


def test_every_number_has_a_unit_and_no_unit_or_source_is_of_another_key(generated: dict[str, str]) -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (.*?) \| (.*?) \| .*? \| .*? \|$", generated["settings"], re.MULTILINE)
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
    assert "workbench.api.studies.run" in page and "workbench.api.stored.Store" in page

    index = json.loads((tmp_path / "searchindex.js").read_text(encoding="utf-8")[len("Search.setIndex(") : -1])
    pages = dict(zip(index["docnames"], range(len(index["docnames"])), strict=True))
    left_out = {pages[name] for name in ("docs/log", "docs/mutants", "docs/drills", "CHANGELOG")}
    found = {name: {each} if isinstance(each, int) else {*each} for name, each in index["terms"].items()}
    assert len(found) > 1000 and not any(each & left_out for each in found.values())
    headings = {title.lower(): {page for page, _ in places} for title, places in index["alltitles"].items()}
    assert headings["learning rate"] == {pages["docs/howto/scales"]}  # a heading of the very words is found first
    home = (tmp_path / "docs" / "index.html").read_text(encoding="utf-8").partition("<article")[2]
    assert all(f'href="howto/{page.stem}.html"' in home for page in (ROOT / "docs/howto").glob("*.md"))
    assert '_images/report.png"' in home
