"""Kept reports whose runs no longer exist: their comparisons are those that the present rules make of their scores."""

from __future__ import annotations

import csv
import importlib.util
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


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


@pytest.mark.parametrize("name", sorted(page.parent.name for page in (ROOT / "reports/kept").glob("*/index.html")))
def test_comparisons_made_again_are_those_that_are_kept(name: str, tmp_path: Path) -> None:
    """After a change of the rules, `python experiments/benchmarks/kept.py reports/kept/NAME` updates them."""
    spec = importlib.util.spec_from_file_location("kept", ROOT / "experiments/benchmarks/kept.py")
    assert spec is not None and spec.loader is not None
    kept = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kept)
    folder = shutil.copytree(ROOT / "reports/kept" / name, tmp_path / name)
    kept.correct(folder)
    for file in ("table.csv", "pairs.csv", "tasks.csv", "noise.csv", "verdict.csv"):
        (texts, numbers), (old_texts, old_numbers) = cells(folder / file), cells(ROOT / "reports/kept" / name / file)
        assert texts == old_texts, file
        assert numbers == pytest.approx(old_numbers, rel=1e-9), file
    pages = [(place / name / "index.html").read_text() for place in (tmp_path, ROOT / "reports/kept")]
    answers = [re.findall(kept.ANSWERS, text, re.DOTALL) for text in pages]
    assert answers[0] == answers[1] and answers[0]
