"""Scores that fall late in training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pointed_runs import board_with_points, store_of

from workbench.report.page import warnings


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ({0: 66.0, 1: 67.0}, True),
        ({0: 66.0, 1: 91.0}, False),  # one seed did not fall
        ({0: 80.5, 1: 81.5}, False),  # by 4.5 points in the mean
        ({0: 79.5, 1: 80.5}, True),  # by 5.5
    ],
)
def test_a_score_that_falls_in_every_seed_is_told(tmp_path: Path, last: dict[int, float], told: bool) -> None:
    def truth(arm: str, share: float, seed: int) -> float:
        if arm == "bert-mlm":
            return 90 + share + seed
        return last[seed] if share == 1.0 else 60 + 25 * min(share / 0.464, 1.0) + seed

    board = board_with_points(*store_of(tmp_path, truth, seeds=2))
    found = warnings.late_falls(board)
    mean = sum(last.values()) / 2
    begin = (
        f"pairs: rtd had 85.5 after 46.4 % of its training and has {mean:.1f} at its end; it fell in each of 2 seeds."
    )
    assert [text.startswith(begin) for text in found] == [True] * told


def test_runs_that_were_scored_at_their_end_alone_are_not_told_of(tmp_path: Path) -> None:
    board = board_with_points(*store_of(tmp_path, lambda arm, share, seed: 90 - 30 * share + seed, seeds=2))
    assert len(warnings.late_falls(board)) == 2
    assert warnings.late_falls(replace(board, places=())) == []
    ends = tuple(place for place in board.places if place.mark != "end")
    assert warnings.late_falls(replace(board, places=ends)) == []
