"""The documents point at what exists."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from workbench.spec import presets, run_spec
from workbench.spec.host import KEY, OPTIONS, checked

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith(("http:", "https:")):
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        assert path.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(path), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_in_the_text_can_be_set(page: Path) -> None:
    given = re.findall(r"--set\s+([a-z_]+(?:\.[a-z_]+)*)=([^\s`,;)]*)", page.read_text(encoding="utf-8"))
    for key, value in given:
        if key.startswith(KEY):
            name = key.removeprefix(KEY)
            assert name in OPTIONS, f"{page.name}: --set {key}"
            if value and value == value.lower() and value != "...":
                checked({name: value}, page.name)
            continue
        key = key.removeprefix("start.parent.")
        known = key.startswith(run_spec.OWN_OPTIONS) or key in (*run_spec.known_keys(), *run_spec.SPELLINGS)
        assert known, f"{page.name}: --set {key}"
        of_the_page = key.startswith(run_spec.OWN_OPTIONS) or key == "start.from"  # its own words and folders
        if value and value == value.lower() and not of_the_page:
            presets.resolve("small", run_spec.overrides_of(run_spec.split_settings([f"{key}={value}"])))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_named_without_set_exist(page: Path) -> None:
    """Keys in backquotes with the sign after them, as in `tasks.pair=`, besides an axis of experiments."""
    parts = "|".join(name for name in run_spec.RunSpec.model_fields if name != "options")
    given = re.findall(rf"`((?:{parts})\.(?!parent\.)[a-z_.]+)=", page.read_text(encoding="utf-8"))
    assert set(given) <= {*run_spec.known_keys(), *run_spec.SPELLINGS, "budget.share"}


def test_files_named_in_the_text_exist() -> None:
    """Paths in backquotes that begin with a folder of ours; names with capitals stand for something."""
    folders = tuple(
        f"{path.name}/" for path in ROOT.iterdir() if path.is_dir() and path.name not in ("runs", "reports")
    )
    missing = [
        (page.name, named)
        for page in PAGES
        for named in re.findall(r"`([\w./-]+)`", page.read_text(encoding="utf-8"))
        if named.startswith(folders) and named == named.lower() and not (ROOT / named).exists()
    ]
    assert not missing
    table = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    modules = re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", table)
    assert len(modules) > 20
    assert [name for name in modules if not any((top / name).exists() for top in (ROOT / "workbench", ROOT))] == []


def test_every_decision_is_listed() -> None:
    listed = (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs/decisions").glob("0*.md")}
    assert pages == set(re.findall(r"\((0[\w-]+\.md)\)", listed))


def test_every_tutorial_and_how_to_is_listed_with_a_line_that_says_what_for() -> None:
    listed = re.findall(r"^- \[[^\]]+\]\(([\w/-]+\.md)\): \S", (ROOT / "docs/index.md").read_text(), re.MULTILINE)
    pages = {f"{path.parent.name}/{path.name}" for path in (ROOT / "docs").glob("*/*.md")}
    assert set(listed) == {page for page in pages if page.startswith(("howto/", "tutorials/"))}
    assert len(set(listed)) == len(listed)


KEPT = ROOT / "reports/kept"
SECTIONS = re.split(r"^###? ", (KEPT / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
READ = {name: part for part in SECTIONS if (KEPT / (name := re.split(r"[:\n]", part)[0])).is_dir()}


def kept_rows(name: str, table: str) -> list[dict[str, str]]:
    with open(KEPT / name / f"{table}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", sorted(READ))
def test_what_is_said_of_a_kept_report_is_in_its_tables(name: str) -> None:
    """Each "difference ± half of its interval" is a row of pairs.csv or a gain of table.csv; so are counts of pairs."""
    pairs = [(row["difference"], row["low"], row["high"]) for row in kept_rows(name, "pairs")]
    gains = [(row["gain"], row["gain_low"], row["gain_high"]) for row in kept_rows(name, "table")]
    known = {
        (f"{abs(float(mean)):.1f}", f"{(float(high) - float(low)) / 2:.1f}") for mean, low, high in pairs + gains if low
    }
    assert set(re.findall(r"(\d+\.\d) ± (\d+\.\d)", READ[name])) <= known
    counts = {
        int(number.replace(",", "")) for number in re.findall(r"on ([\d,]+) pairs", READ[name], flags=re.IGNORECASE)
    }
    assert counts <= {int(row["test_rows"]) for row in kept_rows(name, "scores") if row["suite"] == "pairs"}


def test_every_kept_report_is_read() -> None:
    assert set(READ) == {page.parent.name for page in KEPT.glob("*/index.html")}
