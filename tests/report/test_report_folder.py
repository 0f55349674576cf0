"""A report drawn again from its data files."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made
import pytest

from workbench.errors import InputError
from workbench.report import write, write_again
from workbench.report.results import ReportOptions
from workbench.spec.parts import CONVENTIONS, Budget


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with two budgets, two measures, a failed run, and an arm whose name is a number."""
    root = tmp_path_factory.mktemp("again")
    store, name = made.study(
        root / "runs", made.noisy(made.LEVELS), ("rtd", "bert-mlm"), budgets=(30, 60), seeds=3,
        tasks=("CoLA", "order", "next"),
    )  # fmt: skip
    broken = store.get(made.spec_of("rtd", 2, {"steps": 60}).name)
    made.unfinish(broken)
    broken.fail("diverged", '=loss, "nan" at step 7\n', step=7)
    return write(store, name, root / "out").parent


def test_it_is_the_same_page_and_the_same_files(report: Path, tmp_path: Path) -> None:
    page = write_again(report, tmp_path / "again")
    for path in sorted(page.parent.iterdir()):
        assert path.read_bytes() == (report / path.name).read_bytes(), path.name
    assert {path.name for path in page.parent.iterdir()} == {path.name for path in report.iterdir()}


def test_it_is_drawn_in_its_own_folder_without_touching_what_was_measured(report: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(report, tmp_path / "copy")
    (folder / "index.html").unlink()
    (folder / "table.csv").unlink()
    assert write_again(folder) == folder / "index.html"
    assert all(path.read_bytes() == (report / path.name).read_bytes() for path in folder.iterdir())


def test_a_page_of_another_name_has_its_own_files(report: Path, tmp_path: Path) -> None:
    page = write_again(report, tmp_path / "mine.html")
    table = (tmp_path / "mine-table.csv").read_bytes()
    (tmp_path / "mine-table.csv").unlink()
    assert write_again(page) == page and (tmp_path / "mine-table.csv").read_bytes() == table
    assert not (tmp_path / "index.html").exists() and 'href="mine-table.csv"' in page.read_text()


def test_what_the_files_lack_is_named_on_the_page(report: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(report, tmp_path / "copy")
    facts = json.loads((folder / "report.json").read_text())
    (folder / "report.json").write_text(json.dumps(facts | {"left_out": ["the <b>weather</b>"]}))
    (folder / "curves.csv").write_text("run_id,step,first_step,last_step,rows\n")
    html = write_again(folder).read_text()
    assert "which lack: the &lt;b&gt;weather&lt;/b&gt;" in html and "Training curves" not in html


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] + b'"')


def _rows(text: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(text)


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("report.json", Path.unlink, "there is no report.json"),
        ("runs.csv", Path.unlink, "there is no runs.csv"),
        ("report.json", _cut, "report.json cannot be read as JSON"),
        ("report.json", _rows('{"format": 99}'), "is not of format 1"),
        ("report.json", _rows('{"format": 1}'), "cannot be drawn again"),
        ("runs.csv", _rows("a,b\n1\n2,3,4\n"), "cannot be read as a table|cannot be drawn again"),
        ("scores.csv", _rows("run_id,seed\nx,y\n"), "cannot be drawn again"),
        ("curves.csv", _rows("run_id,step\nx,many\n"), "cannot be drawn again"),
    ],
)  # fmt: skip
def test_a_damaged_file_gets_one_sentence(
    report: Path, tmp_path: Path, name: str, damage: Callable[[Path], None], said: str
) -> None:
    folder = shutil.copytree(report, tmp_path / "copy")
    damage(folder / name)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(InputError) as error:
        write_again(folder)
    assert re.search(said, str(error.value)) and "\n" not in str(error.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


KEPT = Path(__file__).parents[2] / "reports/kept"


def cells(file: Path) -> tuple[list[str], list[float]]:
    """The text of a table with its numbers left out, and the numbers, whose last digits differ between processors."""
    texts, numbers = list[str](), list[float]()
    with open(file, encoding="utf-8", newline="") as lines:
        for cell in (cell for row in csv.reader(lines) for cell in row):
            try:
                numbers.append(float(cell))
                texts.append("number")
            except ValueError:
                texts.append(cell)
    return texts, numbers


@pytest.mark.parametrize("name", sorted(page.parent.name for page in KEPT.glob("*/index.html")))
def test_a_kept_report_is_what_its_data_files_give(name: str, tmp_path: Path) -> None:
    """After a change of the rules or of the page, `workbench report --from reports/kept/NAME` updates it."""
    page = write_again(KEPT / name, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        path.name for path in (KEPT / name).iterdir() if path.suffix != ".py"
    }
    for file in ("table.csv", "pairs.csv", "tasks.csv", "noise.csv"):
        (texts, numbers), (old_texts, old_numbers) = cells(tmp_path / file), cells(KEPT / name / file)
        assert texts == old_texts, file
        assert numbers == pytest.approx(old_numbers, rel=1e-9), file
    for file in ("runs.csv", "scores.csv", "curves.csv", "report.json"):
        assert (tmp_path / file).read_bytes() == (KEPT / name / file).read_bytes(), file
    headings = [re.findall(r"<h1>.*?</h1>", path.read_text()) for path in (page, KEPT / name / "index.html")]
    assert headings[0] == headings[1] and headings[0]


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("unit", [{"flops": 1e15}, {"steps": 7}, {"tokens": 2e6}, {"words": 3e5}, {"seconds": 0.5}])
def test_a_budget_counts_as_the_report_does_unless_it_names_a_convention(unit: dict[str, Any], convention: str) -> None:
    found = ReportOptions(budget=Budget.model_validate(unit)).budget_under(convention)
    assert found is not None and found.convention == convention
    assert {found.unit: found.amount} == unit
    for own in CONVENTIONS:
        budget = Budget.model_validate({"flops": 1e15, "convention": own})
        assert ReportOptions(budget=budget).budget_under(convention) == budget
    assert ReportOptions().budget_under(convention) is None
