"""Known truths, with noise on both levels: what the answer says of them, time after time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import made
import pandas as pd
import pytest

from workbench.report.answer import answer
from workbench.report.tables import board

TIED = dict.fromkeys((*made.ARMS, "untrained"), 65.0)


def noisy(levels: Mapping[str, float], study: int) -> Callable[..., float]:
    """Scores whose noise differs from study to study."""

    def truth(arm: str, steps: int, task: str, seed: int, tuning: int) -> float:
        draws = random.Random(f"{study}/{arm}/{seed}/{task}")
        shared = random.Random(f"{study}/{seed}").gauss(0, 1.0)
        fine = random.Random(f"{study}/{arm}/{seed}/{task}/{tuning}").gauss(0, 0.8)
        return levels[arm] + shared + draws.gauss(0, 0.5) + fine

    return truth


def answers(levels: Mapping[str, float], arms: tuple[str, ...], seeds: int, studies: int) -> list[str]:
    said = []
    for study in range(studies):
        found = board(made.in_memory(noisy(levels, study), arms, seeds), "probes")
        assert found is not None
        said.append(answer(found, "objective").sentence)
    return said


@pytest.mark.parametrize("seeds", [3, 5])
def test_planted_ties_come_out_as_ties(seeds: int) -> None:
    """Five arms of one truth: in about 95 of 100 studies the answer ranks nobody."""
    said = answers(TIED, made.ARMS, seeds, 80)
    ranked = [one for one in said if "is ahead" in one]
    assert len(ranked) <= 0.05 * 80 + 4  # 5 % and two standard errors
    assert all(f"{seeds} seeds can\u2019t tell" in one or f"{seeds} seeds can't tell" in one
               for one in said if one not in ranked)  # fmt: skip


def test_a_planted_tie_of_two_says_how_many_seeds_a_gap_of_this_size_would_take() -> None:
    said = answers(TIED, ("rtd", "bert-mlm"), 5, 60)
    assert sum("is ahead" in one for one in said) <= 0.05 * 60 + 4
    open_ = [one for one in said if "is ahead" not in one]
    assert all("5 seeds can't tell" in one and "for a gap of this size" in one for one in open_)


@pytest.mark.parametrize("seeds", [3, 5])
def test_planted_winners_come_out_as_winners(seeds: int) -> None:
    levels = TIED | {"rtd": 75.0}
    said = answers(levels, made.ARMS, seeds, 40)
    won = [one for one in said if one.startswith("rtd is ahead of every other of the 5 objectives")]
    assert len(won) >= 38
    assert all(f"(paired, {seeds} seeds)" in one and "\u00b1" in one for one in won)


def test_six_seeds_bring_in_the_permutation_test() -> None:
    found = board(made.in_memory(noisy(TIED | {"rtd": 75.0}, 1), ("rtd", "bert-mlm"), 6), "probes")
    assert found is not None
    [pair] = found.pairs[found.budget]
    assert pair.compared.flip == 2 / 2**6 and pair.compared.claimed
    few = board(made.in_memory(noisy(TIED, 1), ("rtd", "bert-mlm"), 5), "probes")
    assert few is not None and few.pairs[few.budget][0].compared.flip is None


def test_test_examples_have_a_noise_of_their_own() -> None:
    found = board(made.in_memory(lambda *_: 70.0, ("rtd", "bert-mlm"), 3), "probes")
    assert found is not None
    noise = {n.name: n.examples for n in found.noise[found.budget]}
    assert noise["package"] == pytest.approx(100 * (0.7 * 0.3 / 500) ** 0.5)
    assert noise["order"] is None and noise["mean"] is None  # a correlation is no share of right answers


def test_noise_is_told_for_the_pair_of_arms_that_shares_fewest_seeds() -> None:
    """Two arms of five seeds and one of three: the smallest gap that could show is that of three seeds."""
    frames = made.in_memory(noisy(TIED, 1), ("rtd", "bert-mlm", "electra-15"), 5)
    late = [f"electra-15-60-s{seed}" for seed in (3, 4)]
    few = replace(frames, runs=_without(frames.runs, late), scores=_without(frames.scores, late))
    whole, part = board(frames, "probes"), board(few, "probes")
    assert whole is not None and part is not None
    assert {noise.n for noise in whole.noise[whole.budget]} == {5}
    assert {noise.n for noise in part.noise[part.budget]} == {3}


def _without(table: pd.DataFrame, runs: list[str]) -> pd.DataFrame:
    return table[~table["run_id"].isin(runs)].reset_index(drop=True)
