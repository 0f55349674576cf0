"""Which sentence of a pair is preferred, and what is counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pair_runs import CPU, scored

from workbench.errors import Diverged
from workbench.spec.parts import TasksSpec
from workbench.store.run_store import RunDir
from workbench.tasks import measures
from workbench.tasks.zero_shot import preferences
from workbench.tasks.zero_shot.minimal_pairs import PairSet, sealed
from workbench.tasks.zero_shot.scorer import load


def test_a_tie_counts_half_and_is_counted() -> None:
    good, bad = np.array([1.0, 0.0, -50.0, -50.0, 0.0]), np.array([0.0, 1.0, -50.00001, -50.001, 0.0])
    assert preferences.won(good, bad).tolist() == [1.0, 0.0, 0.5, 1.0, 0.5]


def test_a_scorer_that_knows_nothing_is_at_chance(finished: Callable[..., RunDir], toy: PairSet) -> None:
    same = sealed("same", "minimal-pairs", toy.good, toy.good, {"paradigm": ["a"] * len(toy.good)})
    score = scored(finished("bert-mlm"), same)
    assert score.value == 50.0 and score.details["ties"] == score.details["pairs"] == 40


def test_the_headline_is_the_mean_over_groups(finished: Callable[..., RunDir], toy: PairSet) -> None:
    score = scored(finished("bert-mlm"), toy)
    groups = score.values["paradigm"]
    assert score.value == (groups["a"] + groups["b"]) / 2 == score.values["mean"]["accuracy"]
    assert score.baselines == {"chance": 50.0} and score.test_rows == 40 and score.seed == 0
    assert json.loads(json.dumps(score.to_json()))["scorer"] == "pll"


def test_bf16_decides_only_what_fp32_would_decide_alike(
    finished: Callable[..., RunDir], toy: PairSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished("bert-mlm")
    exact = scored(run, toy)
    monkeypatch.setattr(preferences, "TRIED", 8)
    half = measures.take(run.path / "encoder", toy, TasksSpec(), 0, replace(CPU, precision="bf16"))
    assert half.values == exact.values and half.details["ties"] == exact.details["ties"]


def test_nan_names_the_run_and_the_pair(finished: Callable[..., RunDir], toy: PairSet, monkeypatch: Any) -> None:
    run = finished("bert-mlm")
    found = load(run.path / "encoder", ("default",), "cpu")
    broken = replace(found, scorer=lambda given: torch.where(given.ids[:, 1] == given.ids[0, 1], torch.nan, 0.0))
    monkeypatch.setattr(preferences, "of_folder", lambda *_: broken)
    with pytest.raises(Diverged, match=rf"{run.run_id}: the score \(pll\) of a sentence of pair \d+ of toy is nan"):
        scored(run, toy)
