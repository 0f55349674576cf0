"""The figure of scores during training."""

from __future__ import annotations

from pathlib import Path

import pytest
from pointed_runs import SHARES, board_with_points, overtaking, store_of

from workbench.report import write
from workbench.report.figures import during_training
from workbench.store.run_store import RunStore


def test_points_before_the_end_are_hollow_and_the_page_says_why(pointed_study: tuple[RunStore, str, Path]) -> None:
    html = pointed_study[2].read_text()
    assert during_training.HOLLOW_NOTE.replace("'", "&#39;") in html and during_training.HOLLOW in html
    assert "points.csv" in html and "pairs against compute" in html.casefold()
    alone = (pointed_study[2].parent / "compute.svg").read_text()
    assert alone.count('fill="none"') >= 2 * len(SHARES) and during_training.HOLLOW in alone


@pytest.mark.parametrize("kind", ["constant", "inverse-sqrt"])
def test_points_of_a_rate_that_suits_any_length_are_not_marked(tmp_path: Path, kind: str) -> None:
    changes = {"schedule.kind": kind}
    store, name = store_of(tmp_path, overtaking, seeds=2, **changes)
    html = write(store, name, tmp_path / "report").read_text()
    assert not any(place.unfinished for place in board_with_points(store, name).places)
    assert during_training.HOLLOW not in html and during_training.NOTE in html
