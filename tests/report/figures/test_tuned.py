"""The figure of the tuning budget: which trials it holds, and the best score so far."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import made

from workbench.report.figures import tuned
from workbench.report.load.frames import Frames


def frames(*entries: Any) -> Frames:
    """Return the tables of an experiment whose record has these trials."""
    empty = made.in_memory(lambda *_: 50.0, ("rtd",), 1, 1)
    return replace(empty, record={"axis": "objective", "tuning": list(entries)})


def trial(number: int, score: Any, objective: str = "rtd", **values: Any) -> dict[str, Any]:
    return {"objective": objective, "trial": number, "score": score, "values": values}


ENTRIES = (
    trial(2, 61.5, **{"optim.lr": 0.001234}), trial(0, 60.0), trial(1, 63.0, tying="none", **{"optim.lr": 2e-3}),
    trial(3, None), trial(4, float("nan")), "rubbish", {"objective": "rtd"},
    trial(0, 58.0, "ideas/mine.py"), trial(0, None, "bert-mlm"),
)  # fmt: skip


def test_trials_without_a_score_are_left_out_and_the_others_in_order() -> None:
    found = tuned.trials(frames(*ENTRIES))
    assert {arm: [(place, score) for place, score, _ in mine] for arm, mine in found.items()} == {
        "rtd": [(1, 60.0), (2, 63.0), (3, 61.5)], "mine": [(1, 58.0)]
    }  # fmt: skip


def test_a_row_has_the_best_trial_and_its_values() -> None:
    best, other = tuned.rows(frames(*ENTRIES))
    assert best == {"arm": "rtd", "trials": 3, "best": 63.0, "at": 2, "values": "tying=none, optim.lr=0.002"}
    assert (other["arm"], other["values"]) == ("mine", "")
    assert tuned.rows(frames()) == []


def test_each_trial_is_a_mark_with_a_tip_and_without_trials_there_is_no_figure() -> None:
    drawn = tuned.figure(frames(*ENTRIES), (500, 300), "tuning")
    ElementTree.fromstring(drawn)
    for text in ("rtd, trial 1: 60.0", "rtd, trial 2: 63.0", "rtd, trial 3: 61.5", "optim.lr=0.00123", "mine, trial 1"):
        assert text in drawn
    assert "trial 4" not in drawn and "bert-mlm" not in drawn
    assert tuned.figure(frames(trial(0, None)), (500, 300), "tuning") == ""
