"""Kept reports whose runs no longer exist: their comparisons are those that the present rules make of their scores."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["generator-size", "weight-tying"])
def test_comparisons_made_again_are_those_that_are_kept(name: str, tmp_path: Path) -> None:
    """After a change of the rules, `python experiments/benchmarks/kept.py reports/kept/NAME` updates them."""
    spec = importlib.util.spec_from_file_location("kept", ROOT / "experiments/benchmarks/kept.py")
    assert spec is not None and spec.loader is not None
    kept = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kept)
    folder = shutil.copytree(ROOT / "reports/kept" / name, tmp_path / name)
    kept.correct(folder)
    for file in ("table.csv", "pairs.csv", "tasks.csv", "noise.csv"):
        assert (folder / file).read_text() == (ROOT / "reports/kept" / name / file).read_text(), file
    pages = [(place / name / "index.html").read_text() for place in (tmp_path, ROOT / "reports/kept")]
    answers = [re.findall(kept.ANSWERS, text, re.DOTALL) for text in pages]
    assert answers[0] == answers[1] and answers[0]
