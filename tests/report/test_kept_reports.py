"""A kept report, drawn again from its data files without its runs, equals the page that is kept."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from workbench.report import write_again

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
