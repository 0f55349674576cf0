"""The drills of the reliability goals, reduced: a few kills, flips and cells each."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from drills import fuzz, grammar, training_lines
from drills.__main__ import GOALS, ROOT, apart

QUICK = [
    goal for goal in GOALS if goal.drill.partition(".")[0] in ("disk", "cells", "hostile", "fuzz", "grammar", "damage")
]
WHOLE = [goal for goal in GOALS if goal.drill.startswith(("runs.", "injected.", "lost_ranks.", "training_lines."))]

QUICKEST = ("runs.killed_and_resumed", "runs.changed_settings")
LONG = ("grammar.", "fuzz.configurations", "damage.cache_files")


def met(goal: object) -> None:
    result, found = apart(goal, quick=True)  # type: ignore[arg-type]
    if result == "not run":
        pytest.skip(found)
    assert result == "met", found


@pytest.mark.parametrize(
    "goal",
    [pytest.param(goal, marks=pytest.mark.slow if goal.drill.startswith(LONG) else ()) for goal in QUICK],
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
    assert {goal.number for goal in GOALS} == set(range(1, 30))
    assert all(bool(goal.drill) != bool(goal.tests) for goal in GOALS)


def test_a_failed_drill_is_told() -> None:
    words = [sys.executable, "-m", "tests.drills", "--alone", "disk.killed_while_saving", "0"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode not in (0, 3) and done.stdout == ""


def test_words_of_a_drill_are_what_a_process_gets() -> None:
    """Half a surrogate pair reaches a command as the bytes that would encode it, and not as a question mark."""
    assert os.fsencode(fuzz.as_typed("\ud800")) == b"\xed\xa0\x80"
    assert fuzz.as_typed("ünï") == "ünï"
    for word in fuzz.ODD:
        os.fsencode(fuzz.as_typed(word))


def test_training_lines_set_no_key_twice_and_keep_what_makes_them_short() -> None:
    options, draw = dict(grammar.commands()), random.Random(0)
    for name in training_lines.SHARES * 20:
        words = training_lines.line(name, options[name], draw)
        keys = [word.partition("=")[0] for before, word in itertools.pairwise(words) if before == "--set"]
        assert len(keys) - len(set(keys)) <= 1  # two changes may be of the same key
        assert name.startswith(words[0]) and (name in ("evaluate", "data prepare") or "steps=4" in words)


def test_the_grammar_drill_goes_on_after_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[list[str]] = []

    def attempt(words: list[str], folder: Path) -> int:
        tried.append(words)
        if len(tried) in (2, 3):
            raise (AssertionError, TimeoutError)[len(tried) - 2]("it went wrong")
        return 0

    for name in ("preload", "begin"):
        monkeypatch.setattr(grammar, name, lambda *given: None)
    monkeypatch.setattr(grammar.resource, "setrlimit", lambda *given: None)
    monkeypatch.setattr(grammar, "attempt", attempt)
    with pytest.raises(
        AssertionError, match=r"^2 of 5 lines hung or ended in an error, as listed above; 3 ended with 0"
    ):
        grammar.command_lines(tmp_path, 5)
    assert len(tried) == 5 and capsys.readouterr().err.count("it went wrong") == 2
