"""Simulated experiments with planned looks: false claims, the gap that they show, and when they end."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from declared_pairs import PAPER
from scipy import stats
from test_rule import FAR, noise_of, spreads

from workbench.report.statistics.group_sequential import (
    Plan,
    looks,
    schedule,
)
from workbench.report.statistics.paired_comparison import ALPHA
from workbench.report.statistics.power import Family as Numbers
from workbench.report.statistics.resampling import flip_test
from workbench.report.statistics.sequential_power import shown, simulate


def every_pair(arms: int) -> Numbers:
    return tuple(itertools.combinations(range(arms), 2))


def false_claims(arms: int, family: Numbers, plan: Plan, kind: str, draws: int) -> tuple[float, str, int]:
    """Return the largest share of experiments with a claim among equal arms, over patterns of noise, and where."""
    rates = []
    for name, spread in spreads(arms).items():
        for order, level in itertools.product((spread, spread[::-1]), {2, 3, arms} & set(range(2, arms + 1))):
            null = [i for i, pair in enumerate(family) if max(pair) < level]
            random = np.random.default_rng(100 * arms + plan.most + level)
            scores = noise_of(kind, random, (draws, arms, plan.most)) * order[:, None]
            scores += np.r_[np.zeros(level), FAR * np.arange(1, arms - level + 1)][:, None]
            if null:
                found, _ = simulate(scores, plan, family)
                rates.append((float((found[:, null] != 0).any(axis=1).mean()), name, level))
    return max(rates)


@pytest.mark.parametrize(
    ("arms", "family", "most"), [(2, every_pair(2), 12), (3, every_pair(3), 9), (5, PAPER, 12), (5, every_pair(5), 8)]
)
def test_false_claims_stay_below_five_percent_over_all_looks(arms: int, family: Numbers, most: int) -> None:
    rate, *worst = false_claims(arms, family, Plan(schedule(most)), "normal", 800)
    assert rate <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 800), worst


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "heavy-tailed", "astray"])
@pytest.mark.parametrize("arms", [2, 3, 5, 8])
def test_false_claims_stay_below_five_percent_in_every_design(arms: int, kind: str) -> None:
    """The rate of every design is at most 5 % and three standard errors."""
    experiments = 2000 if arms < 8 else 750
    for most in (4, 12, 20):
        rate, *worst = false_claims(arms, every_pair(arms), Plan(schedule(most)), kind, experiments)
        assert rate <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / experiments), (most, worst)


def test_looking_without_a_plan_would_not_do() -> None:
    """If each look is judged as if it were the only one, the rate is too high: this is why shares exist."""
    scores = np.random.default_rng(3).standard_normal((2000, 2, 12))
    alone = [simulate(scores[:, :, :n], Plan((n,)), ((0, 1),))[0][:, 0] != 0 for n in schedule(12)]
    assert np.any(alone, axis=0).mean() > 0.08
    assert (simulate(scores, Plan(schedule(12)), ((0, 1),))[0] != 0).mean() <= 0.06


@pytest.mark.parametrize(("arms", "family", "most"), [(2, None, 12), (5, PAPER, 12), (3, None, 6)])
def test_the_promised_gap_is_shown_four_times_in_five(arms: int, family: Numbers | None, most: int) -> None:
    """The gap is shown in other draws than those that it was computed from.

    With five arms, the arm in the fewest comparisons is ahead.
    """
    promise = shown(arms, schedule(most), family)
    assert promise is not None
    pairs = family or every_pair(arms)
    counts = [sum(arm in pair for pair in pairs) for arm in range(arms)]
    arm = counts.index(min(counts))
    scores = np.random.default_rng(7).normal(0, 3 / math.sqrt(2), (2000, arms, most))
    scores[:, arm] += 3 * promise.gap
    found, used = simulate(scores, Plan(schedule(most)), pairs)
    right = [(found[:, i] == (1 if pair[0] == arm else -1)).mean() for i, pair in enumerate(pairs) if arm in pair]
    assert min(right) == pytest.approx(0.8, abs=0.035)
    assert used.mean() == pytest.approx(promise.seeds, abs=0.35) and promise.seeds_of_none < most


def test_large_differences_end_early_and_small_ones_at_the_limit() -> None:
    scores = np.random.default_rng(1).standard_normal((500, 2, 12))
    scores[:, 0] += 8
    assert simulate(scores, Plan(schedule(12)), ((0, 1),))[1].mean() < 4.5
    few, many = shown(2, schedule(6)), shown(2, schedule(20))
    assert few is not None and many is not None and few.gap > many.gap
    assert shown(2, (3,)) is None  # two degrees of freedom


@pytest.mark.parametrize(("arms", "most", "step"), [(2, 9, 1.5), (2, 9, 0.0), (3, 6, 1.5), (5, 12, 1.5)])
def test_one_experiment_is_judged_as_many_at_once(arms: int, most: int, step: float) -> None:
    plan = Plan(schedule(most), taken=len(schedule(most)))
    family = every_pair(arms)
    scores = np.random.default_rng(arms).normal(60, 1, (30, arms, most)) + step * np.arange(arms)[:, None]
    decided, used = simulate(scores, plan, family)
    for draw in range(30):
        named = {str(i): dict(enumerate(row)) for i, row in enumerate(scores[draw].tolist())}
        taken = looks(plan, named, [(str(a), str(b)) for a, b in family])
        last = next((look for look in taken if not look.goes_on), taken[-1])
        assert last.seeds == used[draw]
        for i, (a, b) in enumerate(family):
            verdicts = [look.compared[str(a), str(b)].verdict for look in taken if look.seeds <= last.seeds]
            first = next((verdict for verdict in verdicts if verdict != "open"), "open")
            assert {"ahead": 1, "behind": -1, "open": 0}[first] == decided[draw, i]
            assert (last.status[str(a), str(b)] == "decided") == (first != "open")


def test_the_permutation_test_counts_up_to_ten_seeds() -> None:
    scores = np.random.default_rng(1).standard_normal((1500, 2, 10)) + np.array([[0.8], [0.0]])
    decided, _ = simulate(scores, Plan((10,)), ((0, 1),))
    gaps = scores[:, 0] - scores[:, 1]
    by_t = np.flatnonzero(stats.ttest_1samp(gaps, 0, axis=1).pvalue < ALPHA)
    objected = [i for i in by_t if (flip_test(gaps[i].tolist()) or 0) >= ALPHA]
    assert objected and (decided[objected] == 0).all() and (decided != 0).sum() == len(by_t) - len(objected)
