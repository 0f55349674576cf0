"""Several looks while seeds are added: false claims, power, and equal results for one experiment and for many."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import made
import numpy as np
import pytest
from boards import ELECTRA, declare
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workbench.report.comparison import leaderboard
from workbench.report.results import Leaderboard
from workbench.report.statistics.group_sequential import (
    Family,
    Look,
    Plan,
    compare,
    final,
    looks,
    plan_of,
    schedule,
    status_of,
    still_shown,
)
from workbench.report.statistics.intervals import ALPHA, Estimate
from workbench.report.statistics.paired_comparison import Compared, pairwise
from workbench.report.verdict import verdict_of


@given(st.integers(2, 1000))
def test_looks_come_in_growing_blocks_up_to_the_most_seeds(most: int) -> None:
    seeds = schedule(most)
    assert seeds[-1] == most and list(seeds) == sorted(set(seeds)) and (seeds[0] == 4 or seeds == (most,))
    assert all(2 <= b - a <= a for a, b in itertools.pairwise(seeds))
    shares = Plan(seeds).shares
    assert math.isclose(sum(shares), 1.0) and all(share > 0 for share in shares)
    assert math.isclose(sum(shares[:1]), (seeds[0] / most) ** 2)


def experiment(gap: float, most: int, seed: int = 0) -> dict[str, dict[int, float]]:
    rows = np.random.default_rng(seed).normal(60, 1, (2, most)) + np.array([[gap], [0.0]])
    return {"a": dict(enumerate(rows[0].tolist())), "b": dict(enumerate(rows[1].tolist()))}


def test_a_claim_never_stands_beside_an_interval_that_holds_zero() -> None:
    claimed = 0
    for seed in range(60):
        arms = experiment(1.2, 12, seed)
        for taken in range(1, 5):
            [found] = final(looks(Plan(schedule(12), taken=taken), arms, [("a", "b")])).values()
            assert found.estimate.half is not None
            assert found.verdict == "open" or abs(found.estimate.mean) > found.estimate.half
            claimed += found.verdict == "ahead"
    assert claimed > 40


def test_a_look_is_about_the_seeds_of_its_plan_alone() -> None:
    arms = experiment(0.8, 12, 4)
    late = {arm: {s: v if s < 6 else 1e6 * (arm == "a") for s, v in row.items()} for arm, row in arms.items()}
    plan = Plan(schedule(12), taken=2)
    family = Family((("a", "b"),), plan)
    assert compare(arms, family) == compare(late, family)
    [(pair, found)] = compare(late, family).items()
    assert found.seeds == tuple(range(6))
    [alone] = pairwise({arm: {s: row[s] for s in range(6)} for arm, row in arms.items()}, family=[pair]).values()
    p = alone.p
    assert p is not None and found.p == pytest.approx(min(1.0, p / plan.shares[1]))
    assert found.estimate.half is not None and alone.estimate.half is not None
    assert found.estimate.half > alone.estimate.half


def test_before_the_first_look_nothing_is_known() -> None:
    [found] = compare(experiment(50, 12), Family((("a", "b"),), Plan(schedule(12))), order=True).values()
    assert (found.adjusted, found.flip, found.order, found.p, found.estimate.half) == (None,) * 5
    assert not found.claimed and math.isnan(found.estimate.mean) and found.estimate.n == 0


def test_what_is_out_of_reach_is_hardly_ever_shown_after_all() -> None:
    """With equal arms, a comparison that is out of reach at one look is seldom significant at the last."""
    plan, draws = Plan(schedule(12)), 4000
    scores = np.random.default_rng(9).standard_normal((draws, 2, 12))
    gaps = scores[:, 0] - scores[:, 1]
    means, noise = gaps[:, :9].mean(axis=1), gaps[:, :9].std(axis=1, ddof=1)
    gone = still_shown(plan, 2, means, noise, 8, 2, 1) < 0.05
    last = np.abs(gaps.mean(axis=1)) / gaps.std(axis=1, ddof=1) * math.sqrt(12)
    shown_after_all = 2 * stats.t.sf(last, 11) < ALPHA * plan.shares[-1]
    assert gone.mean() > 0.5 and shown_after_all[gone].mean() < 0.005


def test_the_scores_of_a_look_are_those_of_its_seeds_from_the_first_on() -> None:
    plan, scores = Plan((4, 6), first=10), dict.fromkeys((0, 9, 10, 13, 14, 15, 16), 1.0)
    assert [sorted(plan.so_far(scores, taken)) for taken in (0, 1, 2)] == [[], [10, 13], [10, 13, 14, 15]]


def test_the_probability_of_being_shown_follows_from_a_normal_prediction_of_the_last_mean() -> None:
    """Of six differences of mean 0.5, and of six more around the upper end of their interval of 90 %."""
    plan, noise, arms, reach = Plan((4, 6, 12)), 1.2, 3, 2
    effect = 0.5 + stats.t.ppf(0.9, 5) * noise / math.sqrt(6)
    critical = stats.t.ppf(1 - 0.05 * (1 - (6 / 12) ** 2) / reach / 2, 2 * 11) * noise / math.sqrt(12)
    last = stats.norm(0.5 / 2 + effect / 2, noise * math.sqrt(6) / 12)
    assert still_shown(plan, 1, -0.5, noise, 5, arms, reach) == pytest.approx(1 - last.cdf(critical))


def made_up(
    mean: float, adjusted: float | None, half: float | None = 0.5, flip: float | None = None, noise: float | None = 1.0
) -> Compared:
    seeds = tuple(range(6))
    return Compared(Estimate(mean, half, 1.0, 6, 5), seeds, 0.01, adjusted, flip, None, noise, 5)


def test_a_comparison_without_interval_or_noise_stays_open_until_the_last_look() -> None:
    plan = Plan((4, 6, 12))
    for found in (made_up(0.1, None, half=None), made_up(0.1, 0.9, noise=0.0)):
        assert status_of(plan, 1, found, 2, 1) == "open" and status_of(plan, 2, found, 2, 1) == "not decided"
    assert status_of(plan, 1, made_up(0.01, 0.9), 2, 1) == "out of reach"
    assert status_of(plan, 1, made_up(0.9, 0.2), 2, 1) == "open"
    assert status_of(plan, 1, made_up(0.9, 0.01), 2, 1) == "decided"


def finally_of(*found: Compared) -> Compared:
    [last] = final([Look(n, 0.5, {("a", "b"): one}, {}) for n, one in zip((4, 6, 12), found, strict=False)]).values()
    return last


def test_an_earlier_decision_stands_if_the_last_look_bears_it_out() -> None:
    """Its p is used; difference and interval are those of the last look."""
    last = made_up(0.8, 0.2, flip=0.3)
    assert finally_of(made_up(0.9, 0.001, flip=0.01), last) == replace(last, adjusted=0.001, flip=0.01)
    assert finally_of(made_up(0.9, 0.04), made_up(0.9, 0.0), last).adjusted == 0.0
    assert finally_of(made_up(0.9, 0.001, flip=0.2), made_up(0.9, 0.02), last).adjusted == 0.02, "the first was open"


@pytest.mark.parametrize(
    "last", [made_up(0.4, 0.2), made_up(-0.8, 0.2), made_up(0.8, None, half=None), made_up(-0.8, 0.02)]
)
def test_an_earlier_decision_falls_if_the_last_look_does_not_bear_it_out(last: Compared) -> None:
    assert finally_of(made_up(0.9, 0.001), last) == last


def test_looks_that_decided_nothing_leave_the_last_as_it_is() -> None:
    last = made_up(0.8, 0.3)
    assert finally_of(made_up(0.9, 0.001, flip=0.2), made_up(0.9, None), last) == last
    assert finally_of(made_up(0.9, 0.3), made_up(0.9, None), made_up(0.8, None)) == made_up(0.8, None)


# -- in a report


def study(levels: dict[str, float], taken: int, most: int = 12, seeds: int = 12) -> Leaderboard:
    frames = made.in_memory(made.noisy(levels, 1.0), tuple(arm for arm in levels if arm != "untrained"), seeds)
    counts = schedule(most)
    record = {
        "axis": "objective", "contrasts": declare(ELECTRA, seeds), "looks": [{"seeds": n} for n in counts[:taken]],
        "design": {"seeds": list(counts), "first": 0, "measure": "probes"},
    }  # fmt: skip
    found = leaderboard(replace(frames, record=record), "probes")
    assert found is not None
    return found


def test_a_study_holds_its_plan_and_what_each_look_found() -> None:
    found = study(made.LEVELS | {"electra-15": 70.0}, 3)
    decided = {frozenset(pair) for pair, status in found.looks[-1].status.items() if status == "decided"}
    assert decided == {frozenset(("rtd", "bert-mlm"))} and len(found.family.pairs) == 2
    assert found.family.plan is not None and found.family.plan.seeds == (4, 6, 9, 12)
    assert round(found.family.level, 1) == 98.4 and [look.seeds for look in found.looks] == [4, 6, 9]
    none = verdict_of(study(made.LEVELS, 0), "objective")
    assert none.kind == "undecided" and "is ahead" not in none.sentence


@pytest.mark.parametrize(
    "record",
    [
        {}, {"design": {}}, {"design": {"seeds": [4, 3], "first": 0}}, {"design": {"seeds": "4", "first": 0}},
        {"design": {"seeds": 5, "first": 0}}, {"design": {"seeds": [0, 4], "first": 0}},
        {"design": {"seeds": [4, 6], "first": None}}, {"design": {"seeds": [True], "first": 0}}, {"design": 3},
    ],
)  # fmt: skip
def test_a_record_without_a_usable_design_has_no_plan(record: dict[str, Any]) -> None:
    assert plan_of(record) is None


def test_looks_count_in_the_order_of_the_plan() -> None:
    design = {"seeds": [4, 6, 9], "first": 7}
    assert plan_of({"design": design, "looks": [{"seeds": 9}, {"seeds": 4}]}) == Plan((4, 6, 9), 7, 1)
    assert plan_of({"design": design, "looks": [{"seeds": 6}, {"seeds": 4}]}) == Plan((4, 6, 9), 7, 2)
    assert plan_of({"design": design, "looks": [{"seeds": n} for n in (4, 6, 9)]}) == Plan((4, 6, 9), 7, 3)
    assert plan_of({"design": {"seeds": [1, 4], "first": 0}}) == Plan((1, 4))


def test_no_pair_of_an_exploratory_measure_is_declared() -> None:
    arms = experiment(5, 6)
    family = Family((("a", "b"),), exploratory=True)
    assert [(found.declared, found.order) for found in compare(arms, family).values()] == [(False, None)]
    assert [found.declared for found in compare(arms, replace(family, exploratory=False)).values()] == [True]
