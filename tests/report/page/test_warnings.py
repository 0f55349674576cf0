"""Warnings of a report."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import by_hand
import made
import parsed
import pytest
from compute_studies import law, study
from swept_runs import sweep

from workbench.report import write
from workbench.report.comparison.boards import Cell, board
from workbench.report.page import warnings
from workbench.report.statistics.paired_comparison import t_interval
from workbench.report.statistics.per_task import TaskCell


@pytest.mark.parametrize(
    ("ratio", "said"), [(1.0, ""), (1.04, ""), (1.2, "rtd trained 1.20 times as long as bert-mlm")]
)
def test_seconds_that_the_clock_did_not_keep_are_marked(ratio: float, said: str) -> None:
    found, _ = study({"rtd": law(60, 0.2, 0.05), "bert-mlm": law(66, 0.2, 0.05)}, budgets=(240,))
    rows = found.rows("runs")
    for row in rows:
        if row["role"] == "arm":
            row |= {"budget": "60 seconds", "seconds": 60.0 * (ratio if row["arm"] == "rtd" else 1.0)}
    found = replace(found, runs=type(found.runs)(rows))
    results = board(found, "probes")
    assert results is not None
    text = warnings.unequal(results, "60 seconds")
    assert said in text and bool(text) == bool(said)


def test_runs_in_no_average_say_what_became_of_them(tmp_path: Path) -> None:
    store, name = sweep(tmp_path, [{"generator.width": w} for w in (0.25, 0.5)])
    runs = {(r.spec().generator.width, r.spec().seed): r for r in store.runs()}
    made.unfinish(runs[0.25, 1])
    runs[0.25, 1].fail("diverged", "loss is nan at step 3", step=3)
    made.unfinish(runs[0.5, 2])
    shutil.rmtree(runs[0.5, 0].path)
    told = " ".join(parsed.page(write(store, name, tmp_path / "out")).by_id("absent").text.split())
    assert "diverged" in told and "interrupted" in told and "missing" in told


def test_arms_spend_alike_within_two_percent() -> None:
    def two(factor: float) -> list[Cell]:
        return [by_hand.cell("rtd", [60.0], spent=1e9), by_hand.cell("bert-mlm", [61.0], spent=1e9 * factor)]

    assert warnings.spread(two(1.019), "tokens") is None
    assert warnings.spread(two(1.5), "tokens") == ("rtd", "bert-mlm", 1.5)
    assert warnings.spread(two(0.5), "tokens") == ("bert-mlm", "rtd", 2.0)
    assert warnings.spread(two(1.5), "tokens", tolerance=0.6) is None
    assert warnings.spread(two(1.5)[:1], "tokens") is None and warnings.spread(two(0.0), "tokens") is None
    assert warnings.unequal(by_hand.board(two(1.0)), by_hand.BUDGET) == ""
    told = warnings.unequal(by_hand.board(two(1.5)), by_hand.BUDGET)
    assert told.startswith("this is not at equal compute. The arm bert-mlm spent 1.50 times the FLOPs of rtd (paper")
    assert warnings.unequal_at(by_hand.board(two(1.5))) == [f"At {by_hand.BUDGET}: {told}"]


def test_arms_that_spent_the_same_by_one_convention_only_are_told_by_the_others() -> None:
    first, second = by_hand.cell("rtd", [60.0]), by_hand.cell("bert-mlm", [61.0])
    second = replace(second, spent={**second.spent, "flops_matmul": 1.25e9})
    assert warnings.unequal(by_hand.board([first, second]), by_hand.BUDGET) == (
        "the arms spent the same under the paper convention only. The largest ratio of the FLOPs of two arms is "
        "1.25 under matmul (bert-mlm over rtd)."
    )


def test_runs_are_told_apart_by_values_that_matter() -> None:
    tables = {
        "a": {"python": "3.11", "threads": 2, "started": "x"}, "b": {"python": "3.12", "threads": 2, "started": "y"},
        "c": {}, "d": {"threads": 2},
    }  # fmt: skip
    assert warnings.by_value(tables) == {
        "python": {"3.11": ["a"], "3.12": ["b"], "None": ["d"]}, "threads": {"2": ["a", "b", "d"]}
    }  # fmt: skip
    frames = replace(made.in_memory(lambda *_: 50.0, ("rtd",), 1, 1), environments=tables)
    (told,) = warnings.environments_differ(frames)
    assert told.startswith("The runs were made in different environments: python differ")
    assert warnings.environments_differ(replace(frames, environments={"a": tables["a"]})) == []


def test_runs_that_are_in_no_average_are_counted_by_state() -> None:
    frames = made.in_memory(lambda *_: 50.0, ("rtd", "bert-mlm"), 2, 1)
    assert warnings.unfinished(frames) == [] and warnings.data_differs(frames) == []
    states = ["done", "trained", "failed", "new", "failed", "missing"]
    runs = frames.runs.assign(state=states, data=["x", "x", "y", "y", "y", "y"])
    assert warnings.unfinished(replace(frames, runs=runs)) == [
        "4 of 6 runs are in no average (2 failed, 1 missing and 1 not begun); the reason is given below for each."
    ]
    assert warnings.data_differs(replace(frames, runs=runs)) == []  # both that count were trained on the same data
    assert len(warnings.data_differs(replace(frames, runs=runs.assign(data=["x", "y", "y", "y", "y", "y"])))) == 1


@pytest.mark.parametrize(("record", "warned"), [({}, False), ({"tuning": [1]}, True)])
def test_settings_chosen_on_the_same_rows_are_warned_of(record: dict[str, object], warned: bool) -> None:
    frames = made.in_memory(lambda *_: 50.0, ("rtd",), 1, 1)
    assert bool(warnings.overestimated(replace(frames, record={"axis": "objective", **record}))) == warned
    assert warnings.overestimated(replace(frames, record={"axis": "x", "experiment": "tune", **record})) == []


def test_a_task_on_which_no_arm_beats_the_most_frequent_answer_is_named() -> None:
    def of_task(task: str, arm: str, value: float) -> TaskCell:
        return TaskCell(task, "accuracy", arm, by_hand.BUDGET, t_interval([value]), value, value, 1, None, ())

    cells = [by_hand.cell("rtd", [60.0]), by_hand.cell("bert-mlm", [61.0])]
    found = by_hand.board(
        cells, baselines={"majority": {"order": 50.0, "next": 50.0}},
        task_cells=(of_task("order", "rtd", 49.0), of_task("order", "bert-mlm", 50.0), of_task("next", "rtd", 51.0)),
    )  # fmt: skip
    (told,) = warnings.uninformative_tasks(found)
    assert told.startswith(f"On order, no arm at {by_hand.BUDGET} scores higher than always giving the most frequent")
    assert warnings.uninformative_tasks(replace(found, baselines={})) == []
