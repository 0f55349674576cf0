"""The scripts in examples/ run from a clean interpreter in an empty folder, cell by cell as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = ("half_masked.py",)  # an objective, which other tests run
EXAMPLES = [path for path in sorted((ROOT / "examples").glob("*.py")) if path.name not in FILES]
MADE = {
    "compare_objectives": ("reports/compare-objectives/index.html", "electra-15 minus bert-mlm"),
    "own_objective": ("reports/ablation-*/index.html", "half-masked minus bert-mlm"),
    "read_a_store": ("losses.svg", "torch.Size([1, "),
}


def test_every_example_is_known() -> None:
    assert [path.stem for path in EXAMPLES] == sorted(MADE)


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_as_it_stands(path: Path, tmp_path: Path) -> None:
    """In a rehearsal: every run takes a few steps of a few rows, and all else is done in full."""
    rehearsal = {"WORKBENCH_REHEARSAL": "1", "MPLBACKEND": "agg", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    words = [sys.executable, str(path)]
    done = subprocess.run(words, cwd=tmp_path, env=os.environ | rehearsal, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    file, told = MADE[path.stem]
    assert list(tmp_path.glob(file)) and told in done.stdout, done.stdout
