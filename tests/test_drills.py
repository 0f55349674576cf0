"""The drills of the reliability goals, reduced: a few kills, flips and cells each."""

from __future__ import annotations

import subprocess
import sys

import pytest
from drills.__main__ import GOALS, ROOT, apart

QUICK = [
    goal for goal in GOALS if goal.drill.partition(".")[0] in ("disk", "cells", "hostile", "fuzz", "grammar", "damage")
]
WHOLE = [goal for goal in GOALS if goal.drill.startswith(("runs.", "injected."))]

QUICKEST = ("runs.killed_and_resumed", "runs.changed_settings", "runs.stopped_by_signals")


def met(goal: object) -> None:
    result, found = apart(goal, quick=True)  # type: ignore[arg-type]
    if result == "not run":
        pytest.skip(found)
    assert result == "met", found


@pytest.mark.parametrize(
    "goal",
    [pytest.param(goal, marks=pytest.mark.slow if goal.drill.startswith("grammar") else ()) for goal in QUICK],
    ids=lambda goal: goal.drill,
)
def test_files_and_leases(goal: object) -> None:
    met(goal)


@pytest.mark.parametrize(
    "goal",
    [pytest.param(goal, marks=() if goal.drill in QUICKEST else pytest.mark.slow) for goal in WHOLE],
    ids=lambda goal: goal.drill,
)
def test_whole_commands(goal: object) -> None:
    met(goal)


def test_every_goal_has_a_drill_or_tests() -> None:
    assert {goal.number for goal in GOALS} == set(range(1, 29))
    assert all(bool(goal.drill) != bool(goal.tests) for goal in GOALS)


def test_a_failed_drill_is_told() -> None:
    words = [sys.executable, "-m", "tests.drills", "--alone", "disk.killed_while_saving", "0"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode not in (0, 3) and done.stdout == ""
