"""Null experiments through a whole report: arms that differ only in name, and how often one is called ahead.

Every statement to the reader counts: the answer, the text below it, the recommendation and the table of pairs.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import made
import parsed
import pytest
from declared_pairs import declare
from scipy import stats

from workbench.report import csv_tables, write
from workbench.report.comparison.boards import boards
from workbench.report.comparison.verdict import verdicts
from workbench.report.load.frames import Frames
from workbench.report.page import advice
from workbench.report.statistics.group_sequential import schedule
from workbench.report.statistics.power import family_of, unit_gap

EXPERIMENTS = 200
MOST = int(stats.binom.ppf(0.99, EXPERIMENTS, 0.05))  # false claims that a rate of 5 % stays within, 99 times in 100
CLAIM = re.compile(r"\bis ahead\b|: take |^Take |^Higher ")
FIVE = (*((arm, "bert-mlm") for arm in made.ARMS if arm != "bert-mlm"), ("rtd", "electra-15"))


def in_name_only(study: int, gaps: dict[str, float] | None = None) -> Callable[..., float]:
    """Return the law of arms with equal true scores: noise of the seed, of the run (unequal by arm) and of the task."""

    def truth(arm: str, steps: int, task: str, seed: int, tuning: int) -> float:
        shared = random.Random(f"{study}/{seed}").gauss(0, 2)
        own = random.Random(f"{study}/{arm}/{seed}").gauss(0, 3.0 if arm == "rtd" and gaps is None else 1.0)
        level = 55.0 if arm == "untrained" else 65.0 + (gaps or {}).get(arm, 0.0)
        return level + shared + own

    return truth


def claims(frames: Frames) -> list[str]:
    """Return every sentence and row of a report in which one arm is called ahead."""
    found = []
    boards_found = boards(frames)
    found += [str(verdict) for verdict in verdicts(boards_found, frames) if CLAIM.search(str(verdict))]
    for board in boards_found:
        text = advice.advise(board, frames, None, "paper")
        found += [text] if CLAIM.search(text) else []
        found += [f"{row['a']} ahead of {row['b']}" for row in csv_tables.pairs(board) if row["verdict"] == "ahead"]
    return found


def record(pairs: Sequence[tuple[str, str]], seeds: int, planned: bool) -> dict[str, Any]:
    made_up: dict[str, Any] = {"axis": "objective", "contrasts": declare(pairs, seeds) if pairs else []}
    if planned:
        made_up["design"] = {"seeds": list(schedule(seeds)), "first": 0, "measure": "probes"}
        made_up["looks"] = [{"seeds": count} for count in schedule(seeds)]
    return made_up


@pytest.mark.parametrize(
    ("arms", "pairs", "seeds", "planned"),
    [
        (("rtd", "bert-mlm"), (), 5, False),
        pytest.param(("rtd", "bert-mlm"), (("rtd", "bert-mlm"),), 9, True, marks=pytest.mark.slow),
        pytest.param(made.ARMS, FIVE, 4, False, marks=pytest.mark.slow),
        (made.ARMS, FIVE, 6, True),
    ],
    ids=["two arms", "two arms, seeds added", "declared", "declared, seeds added"],
)
def test_arms_that_differ_in_name_only_are_called_ahead_in_at_most_five_percent(
    arms: tuple[str, ...], pairs: tuple[tuple[str, str], ...], seeds: int, planned: bool
) -> None:
    wrong = 0
    for study in range(EXPERIMENTS):
        frames = made.in_memory(in_name_only(study), arms, seeds, tunings=1)
        wrong += bool(claims(replace(frames, record=record(pairs, seeds, planned))))
    assert wrong <= MOST


def test_a_planted_difference_of_the_promised_size_is_told_four_times_in_five() -> None:
    """The drill detects a real difference.

    The path is the same, and the arm in the fewest comparisons is ahead by the smallest gap.
    """
    arms, pairs, seeds, told = ("rtd", "bert-mlm", "electra-15"), (("rtd", "bert-mlm"), ("rtd", "electra-15")), 5, 0
    unit = unit_gap(3, seeds, family_of(arms, pairs))
    assert unit is not None
    gaps = {"bert-mlm": -unit * 2**0.5}  # paired differences scatter by the square root of 2
    for study in range(100):
        frames = made.in_memory(in_name_only(study, gaps), arms, seeds, tunings=1)
        found = claims(replace(frames, record=record(pairs, seeds, False)))
        told += "rtd ahead of bert-mlm" in found
    assert 70 <= told <= 90


@pytest.mark.slow
def test_null_experiments_on_disk_are_reported_without_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate also holds for stores of run directories and whole pages."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    wrong = 0
    for study in range(EXPERIMENTS):
        store, name = made.study(
            tmp_path / str(study), in_name_only(study), ("rtd", "bert-mlm"), 5, tunings=1, tasks=("package",)
        )
        page = parsed.page(write(store, name, tmp_path / f"{study}.html"))
        verdicts = [row["verdict"] for row in parsed.sheet(tmp_path / f"{study}-pairs.csv")]
        wrong += "ahead" in verdicts or bool(CLAIM.search(page.find("header")[0].text))
    assert wrong <= MOST
