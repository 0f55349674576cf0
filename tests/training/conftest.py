"""What tests of training share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tiny_runs import WORDS, carried_out, with_points

from workbench.data.prepare import Prepared, prepare
from workbench.store.run_store import RunDir, RunStore
from workbench.tasks import Suite
from workbench.tasks.minimal_pairs import PairSet


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A corpus of 400 short lines of ten words."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = [" ".join(WORDS[(i * i + j * (i % 7)) % 10] for j in range(9)) for i in range(400)]
    (folder / "text.txt").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    base = with_points().changed({"data.corpus": str(folder / "text.txt")})
    return prepare(base, cache=folder / "cache")


@pytest.fixture(scope="module")
def toy() -> Suite:
    """Nineteen minimal pairs of these words."""
    good = [" ".join(WORDS[(i * j) % 10] for j in range(1, 6)) for i in range(1, 20)]
    bad = [" ".join(reversed(text.split())) for text in good]
    return Suite((PairSet("toy", "minimal-pairs", good, bad, {"paradigm": ["a"] * len(good)}),))


@pytest.fixture(scope="module")
def pointed(prepared: Prepared, toy: Suite, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A finished run with points, which tests only read."""
    return carried_out(with_points(), prepared, toy, tmp_path_factory.mktemp("pointed"))


@pytest.fixture
def run(pointed: RunDir, tmp_path: Path) -> RunDir:
    """A copy of the run with points, in a store of its own."""
    shutil.copytree(pointed.path.parent, tmp_path, dirs_exist_ok=True)
    return RunStore(tmp_path).get(pointed.run_id)
