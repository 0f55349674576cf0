"""Boards: all results of one suite, from the tables of an experiment."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

import made
import pytest
from made import study

from workbench.report.comparison.boards import Board, board, boards
from workbench.report.load import frames
from workbench.report.load.frames import Frames
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


def levels(arm: str, steps: int, task: str, seed: int, tuning: int) -> float:
    """Return a score that tells arm, budget, task, seed and fine-tuning seed apart."""
    number = {"untrained": 0, "rtd": 10, "bert-mlm": 5}[arm]
    return 50 + number + steps / 60 + list(made.PROBES).index(task) + seed**2 / 2 + tuning**2 / 10


def made_board(frames: Frames) -> Board:
    found = board(frames, "probes")
    assert found is not None
    return found


def test_the_score_of_a_run_is_the_mean_over_tasks_of_means_over_fine_tunings() -> None:
    found = made_board(made.in_memory(levels, ("bert-mlm", "rtd"), 3, 3, (60, 120)))
    for arm, steps in (("rtd", 60), ("bert-mlm", 120)):
        wanted = {
            seed: statistics.fmean(levels(arm, steps, task, seed, n) for task in made.PROBES for n in range(3))
            for seed in range(3)
        }
        (cell,) = [cell for cell in found.cells if (cell.arm, cell.budget) == (arm, f"{steps} steps")]
        assert cell.scores == pytest.approx(wanted) and cell.spent["tokens"] == 4096 * steps
        assert cell.estimate.mean == pytest.approx(statistics.fmean(wanted.values()))
    assert found.budgets == ("60 steps", "120 steps") and found.budget == "120 steps"  # by compute, the largest last
    assert [cell.arm for cell in found.at("60 steps")] == ["rtd", "bert-mlm"] and found.arms == ("bert-mlm", "rtd")
    assert found.finetunings == (3,) and found.convention() == "paper" and not found.missing


def test_each_arm_is_held_against_the_untrained_encoder_of_its_seed() -> None:
    frames = made.in_memory(levels, ("rtd",), 3, 1)
    (cell,) = made_board(frames).cells
    assert cell.gain is not None and cell.gain.estimate.mean == pytest.approx(11.0)  # seeds cancel
    assert cell.gain.estimate.n == 3
    other = {run_id: values | {"encoder.hidden": 32 if run_id == "rtd-60-s1" else 64}
             for run_id, values in frames.settings.items()}  # fmt: skip
    (cell,) = made_board(replace(frames, settings=other)).cells
    assert cell.gain is not None and cell.gain.estimate.n == 2  # an encoder of another size is no start of it


def test_a_run_that_lacks_a_task_is_named_and_in_no_mean() -> None:
    frames = made.in_memory(levels, ("rtd", "bert-mlm"), 2, 2)
    lacks = (frames.scores["run_id"] == "rtd-60-s1") & (frames.scores["task"] == "order")
    found = made_board(replace(frames, scores=frames.scores[~lacks]))
    assert found.missing == {"rtd-60-s1": ("order",)}
    assert {cell.arm: sorted(cell.scores) for cell in found.cells} == {"rtd": [0], "bert-mlm": [0, 1]}
    assert "rtd-60-s1" not in found.run_scores
    none = replace(frames, scores=frames.scores[frames.scores["run_id"].str.startswith("untrained")])
    assert board(none, "probes") is None and boards(none) == []


def test_a_baseline_has_a_mean_where_every_counted_task_has_it() -> None:
    frames = made.in_memory(levels, ("rtd",), 2, 1)
    values = [
        ("order", "majority", 40.0),
        ("order", "majority", 40.0),
        ("next", "bag", 1.0),
        ("next", "bag", float("nan")),
    ]
    values += [(task, "chance", 10.0 * number) for number, task in enumerate(made.PROBES)]
    rows = [{"run_id": "", "task": task, "baseline": name, "value": value} for task, name, value in values]
    found = made_board(replace(frames, baselines=type(frames.baselines)(rows)))
    assert found.baselines["majority"] == {"order": 40.0} and found.baselines["bag"] == {"next": 1.0}
    assert found.baseline("majority") is None and found.baseline("absent") is None
    assert found.baseline("chance") == pytest.approx(15.0)
