"""Notes under scores that need no training: which scorers there were, how many pairs tied, what others published."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import by_hand
import made
import pandas as pd
import pytest
from by_hand import cell

from workbench.report.comparison.boards import Board
from workbench.report.load.frames import Frames
from workbench.report.page.facts import scoring_notes as notes
from workbench.spec.published import BABYLM
from workbench.spec.scoring import SUITES, ZERO_SHOT

ARMS = ("rtd", "bert-mlm", "electra-15")
BOARD = by_hand.board([cell(arm, [60.0, 61.0]) for arm in ARMS], suite="pairs", tasks=("pairs",))
EMPTY = made.in_memory(lambda *_: 0.0, (), 0)


def row(arm: str, seed: int, scorer: str, ties: int = 0, rows: int = 1000, suite: str = "pairs") -> dict[str, Any]:
    run = f"{arm}-{by_hand.BUDGET}-s{seed}"
    return {"run_id": run, "suite": suite, "task": "t", "scorer": scorer, "ties": ties, "test_rows": rows}


def frames(*rows: dict[str, Any]) -> Frames:
    return replace(EMPTY, scores=pd.DataFrame(rows, columns=["run_id", "suite", "task", "scorer", "ties", "test_rows"]))


@pytest.mark.parametrize("suite", SUITES)
def test_only_scores_without_training_and_of_tagging_have_notes(suite: str) -> None:
    found = notes(by_hand.board([cell("rtd", [60.0])], suite=suite), frames(row("rtd", 0, "pll", suite=suite)))
    assert bool(found) == (suite in (*ZERO_SHOT, "tagging"))


def test_tagging_is_told_by_task_and_way_of_scoring() -> None:
    rows = [row("rtd", seed, "F1 of spans", suite="tagging") for seed in (0, 1)]
    found = notes(by_hand.board([cell("rtd", [60.0])], suite="tagging"), frames(*rows))
    assert found == ["t: F1 of spans."]


def test_one_scorer_is_told_with_its_arms() -> None:
    one, *_ = notes(BOARD, frames(row("rtd", 0, "pll"), row("rtd", 1, "pll")))
    two, *_ = notes(BOARD, frames(row("rtd", 0, "pll"), row("bert-mlm", 0, "pll")))
    assert "pll (rtd)" in one and "pll (rtd and bert-mlm)" in two
    assert one.count(".") == two.count(".") == 1


def test_several_scorers_are_told_apart() -> None:
    told, *_ = notes(
        BOARD, frames(row("rtd", 0, "originality"), row("bert-mlm", 0, "pll"), row("electra-15", 1, "pll"))
    )
    assert "originality (rtd) and pll (bert-mlm and electra-15)" in told and told.count(".") > 1


def test_the_untrained_encoder_has_a_scorer_too() -> None:
    bare = cell("untrained", [50.0], budget="none")
    found = replace(BOARD, untrained=bare)
    rows = frames(row("rtd", 0, "pll"), row("rtd", 1, "pll") | {"run_id": bare.runs[0]})
    assert "pll (rtd and untrained)" in notes(found, rows)[0]
    assert "pll (rtd)." in notes(BOARD, rows)[0]  # runs that are on no board


def test_ties_are_added_up_over_the_runs_of_the_suite() -> None:
    rows = [row("rtd", 0, "pll", 3), row("bert-mlm", 0, "pll", 1200, 2500), row("rtd", 1, "pll", 99, suite="blimp"),
            row("rtd", 1, "", 99)]  # fmt: skip
    _, told = notes(BOARD, frames(*rows))
    assert "1,203 of 3,500 " in told


def test_no_ties_are_said_where_there_were_pairs() -> None:
    assert len(notes(BOARD, frames(row("rtd", 0, "pll")))) == 2
    assert not any(letter.isdigit() for letter in notes(BOARD, frames(row("rtd", 0, "pll")))[1])
    assert notes(BOARD, frames()) == [] == notes(BOARD, frames(row("rtd", 0, "")))


@pytest.mark.parametrize(
    ("tasks", "shown"), [(("blimp-filtered",), True), (("blimp", "blimp-filtered"), True), (("blimp",), False)]
)
def test_published_points_stand_beside_the_same_pairs_alone(tasks: tuple[str, ...], shown: bool) -> None:
    found: Board = replace(BOARD, suite="blimp", tasks=tasks)
    text = " ".join(notes(found, frames(row("rtd", 0, "pll", suite="blimp"))))
    for point in BABYLM:
        assert text.count(f"{point.name} {point.blimp:.1f} ({point.year})") == shown
    for size in {point.data for point in BABYLM}:
        assert text.count(f" {size} words ") == shown
