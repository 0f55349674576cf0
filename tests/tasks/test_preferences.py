"""Which sentence of a pair is preferred, and what is counted."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from pair_runs import CPU, scored

from workbench.errors import Diverged, InputError
from workbench.models.encoder import Encoder
from workbench.spec.parts import TasksSpec
from workbench.store.run_store import RunDir
from workbench.tasks import _preferences as preferences
from workbench.tasks.common.contract import Model, take
from workbench.tasks.common.sentence_scorers import load
from workbench.tasks.minimal_pairs import PairSet, pair_set
from workbench.training.distributed import Ranks


def test_a_tie_counts_half_and_is_counted() -> None:
    good, bad = np.array([1.0, 0.0, -50.0, -50.0, 0.0]), np.array([0.0, 1.0, -50.00001, -50.001, 0.0])
    assert preferences.won(good, bad).tolist() == [1.0, 0.0, 0.5, 1.0, 0.5]


def test_a_scorer_that_knows_nothing_is_at_chance(finished: Callable[..., RunDir], toy: PairSet) -> None:
    same = pair_set("same", "minimal-pairs", toy.good, toy.good, {"paradigm": ["a"] * len(toy.good)})
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
    half = take(toy, Model(run.path / "encoder", TasksSpec(), 0), replace(CPU, precision="bf16"))
    assert half.values == exact.values and half.details["ties"] == exact.details["ties"]


def test_nan_names_the_run_and_the_pair(finished: Callable[..., RunDir], toy: PairSet, monkeypatch: Any) -> None:
    run = finished("bert-mlm")
    found = load(run.path / "encoder", ("default",), "cpu")
    broken = replace(found, scorer=lambda given: torch.where(given.ids[:, 1] == given.ids[0, 1], torch.nan, 0.0))
    monkeypatch.setattr(preferences, "of_folder", lambda *_: broken)
    with pytest.raises(Diverged, match=rf"{run.run_id}: the score \(pll\) of a sentence of pair \d+ of toy is nan"):
        scored(run, toy)


@pytest.mark.parametrize("total", [torch.sum, partial(torch.sum, dim=0, keepdim=True)])
def test_one_number_for_a_whole_batch_is_no_score(
    total: Any, finished: Callable[..., RunDir], toy: PairSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished("bert-mlm")
    found = load(run.path / "encoder", ("default",), "cpu")
    broken = replace(found, scorer=lambda given: total(found.scorer(given)))
    monkeypatch.setattr(preferences, "of_folder", lambda *_: broken)
    with pytest.raises(InputError, match=rf"{run.run_id}: the score \(pll\) of \d+ sentences has the shape \(1?,?\), "):
        scored(run, toy)


class Side(Ranks):
    """One of several processes, here threads, which add up their arrays."""

    def __init__(self, index: int, count: int, met: threading.Barrier, given: list[Any]) -> None:
        super().__init__(index, count)
        object.__setattr__(self, "met", met)
        object.__setattr__(self, "given", given)

    def total(self, numbers: Any) -> Any:
        self.given[self.index] = numbers  # type: ignore[attr-defined]
        self.met.wait(60)  # type: ignore[attr-defined]
        summed = sum(self.given)  # type: ignore[attr-defined]
        self.met.wait(60)  # type: ignore[attr-defined]
        return summed


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("count", [2, 3])
def test_several_processes_score_each_sentence_once_and_have_the_score_of_one(
    count: int, precision: Any, finished: Callable[..., RunDir], toy: PairSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preferences, "TOKENS", 20)  # few sentences a batch
    run, host, scored_by = finished("bert-mlm"), replace(CPU, precision=precision), dict[int, int]()
    alone = take(toy, Model(run.path / "encoder", TasksSpec(), 0), host)
    batches = preferences.Tokenized.batches

    def counted(texts: Any, chosen: Any, device: str, ranks: Ranks) -> Iterator[Any]:
        for part, sentences in batches(texts, chosen, device, ranks):
            scored_by[ranks.index] = scored_by.get(ranks.index, 0) + len(part)
            yield part, sentences

    monkeypatch.setattr(preferences.Tokenized, "batches", counted)
    met, given = threading.Barrier(count), [None] * count
    with ThreadPoolExecutor(count) as pool:
        sides = [Side(index, count, met, given) for index in range(count)]
        models = [Model(run.path / "encoder", TasksSpec(), ranks=side) for side in sides]
        scores = [job.result(60) for job in [pool.submit(take, toy, model, host) for model in models]]
    assert all(score.values == alone.values for score in scores)
    assert all(score.details == alone.details for score in scores)
    assert len(scored_by) == count
    if precision == "fp32":
        assert sum(scored_by.values()) == len({*toy.good, *toy.bad})


def test_electric_stands_beside_a_detector_and_shares_the_passes_of_its_generator(
    finished: Callable[..., RunDir], toy: PairSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default; its value is the one it has alone, and no masked copy is computed twice."""
    run, rows = finished("rtd"), list[int]()
    beside = scored(run, toy)
    assert beside.details["scorer"] == "originality"
    alone = scored(run, toy, scorers=("electric",))
    assert beside.values["electric"] == {"accuracy": alone.value} and alone.details["scorer"] == "electric"
    states_at = Encoder.states_at

    def counted(self: Encoder, ids: Any, *rest: Any) -> Any:
        rows.append(len(ids))
        return states_at(self, ids, *rest)

    monkeypatch.setattr(Encoder, "states_at", counted)
    for scorers in (("default", "generator-pll"), ("generator-pll",)):
        rows.append(0)
        scored(run, toy, scorers=scorers)
    both, one = rows[1 : rows.index(0, 1)], rows[rows.index(0, 1) + 1 :]
    assert sum(both) == sum(one) > 0
