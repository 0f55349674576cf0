"""Boards: all results of one suite, from the tables of an experiment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from made import study

from workbench.report.comparison.boards import boards
from workbench.report.load import frames
from workbench.report.load.published_scores import PublishedRun


def test_published_models_have_the_same_statistic(tmp_path: Path) -> None:
    measured = []
    for statistic in ("mean", "median"):
        found = frames.read(*study(tmp_path / statistic, lambda *_: 50.0, ("rtd",), tasks=("CoLA",),
                                   record={"tasks": {"names": ["glue"], "statistic": statistic}}))  # fmt: skip
        model = PublishedRun(
            "p", "someone/model", 1e18, "its card", {"CoLA": {0: 1.0, 1: 2.0, 2: 9.0}}, {"CoLA": "glue"}
        )
        (board,) = boards(replace(found, published=(model,)))
        measured.append(board.measured[0].score)
    assert measured == [4.0, 2.0]
