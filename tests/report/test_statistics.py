"""Closed forms by hand, scipy as a second opinion, and simulations of what the words promise."""

from __future__ import annotations

import math
import statistics as plain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workbench.report.statistics import (
    flip_test,
    holm,
    needed_seeds,
    paired_difference,
    pooled_sd,
    power,
    smallest_gap,
    t_interval,
)
from workbench.report.tables import Cell, compare

T2 = 0.95 * math.sqrt(2 / (1 - 0.95**2))  # the 97.5 % point of Student's t with 2 degrees of freedom, in closed form
SCORE = st.floats(0, 100).map(lambda v: round(v, 3))
SCORES = st.lists(SCORE, min_size=2, max_size=10)


def test_interval_of_three_values_by_hand() -> None:
    found = t_interval([67.0, 68.0, 69.0])
    assert (found.mean, found.sd, found.n) == (68.0, 1.0, 3)
    assert found.half == pytest.approx(T2 / math.sqrt(3), rel=1e-9)
    assert found.low == pytest.approx(68 - 2.4841377, abs=1e-6)
    assert found.high == pytest.approx(68 + 2.4841377, abs=1e-6)


def test_one_value_has_no_interval_and_none_has_no_mean() -> None:
    one, none = t_interval([70.5]), t_interval([])
    assert (one.mean, one.half, one.low, one.high, one.sd, one.n) == (70.5, None, None, None, None, 1)
    assert math.isnan(none.mean) and none.half is None and none.n == 0


@given(SCORES)
def test_interval_is_scipys(values: list[float]) -> None:
    found = t_interval(values)
    sem = plain.stdev(values) / math.sqrt(len(values))
    assert found.half is not None
    if sem > 1e-9:
        low, high = stats.t.interval(0.95, len(values) - 1, plain.fmean(values), sem)
        assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9)


@given(st.dictionaries(st.integers(0, 9), SCORE), st.dictionaries(st.integers(0, 9), SCORE))
def test_difference_is_scipys_paired_test_over_shared_seeds(a: dict[int, float], b: dict[int, float]) -> None:
    found = paired_difference(a | {50: 1e6}, b | {51: -1e6})  # a seed of one arm alone must not count
    shared = sorted(a.keys() & b.keys())
    assert found.seeds == tuple(shared)
    if len(shared) < 2 or plain.stdev([a[s] - b[s] for s in shared]) < 1e-9:
        assert found.verdict == "open"
        return
    second = stats.ttest_rel([a[s] for s in shared], [b[s] for s in shared])
    assert found.p == pytest.approx(second.pvalue, rel=1e-6)
    low, high = second.confidence_interval(0.95)
    assert (found.estimate.low, found.estimate.high) == pytest.approx((low, high), rel=1e-6, abs=1e-9)
    assert found.verdict == ("ahead" if low > 0 else "behind" if high < 0 else "open")


@given(SCORES, SCORES)
def test_swapping_the_arms_turns_the_sign(x: list[float], y: list[float]) -> None:
    a, b = dict(enumerate(x)), dict(enumerate(y))
    one, two = paired_difference(a, b), paired_difference(b, a)
    assert one.estimate.mean == pytest.approx(-two.estimate.mean, abs=1e-9)
    assert one.p == two.p or one.p == pytest.approx(two.p)
    turned = {"ahead": "behind", "behind": "ahead", "open": "open"}
    assert two.verdict == turned[one.verdict]


def test_what_varies_with_the_seed_alone_cancels() -> None:
    seeds = {0: 40.0, 1: 70.0, 2: 90.0}
    a = {s: level + gap for (s, level), gap in zip(seeds.items(), (1.0, 1.1, 0.9), strict=True)}
    found = paired_difference(a, seeds)
    assert found.verdict == "ahead" and found.estimate.half == pytest.approx(T2 * 0.1 / math.sqrt(3))


@pytest.mark.parametrize("gap", [0.0, 1.0])
def test_differences_without_spread_claim_nothing(gap: float) -> None:
    b = {0: 61.2, 1: 65.7, 2: 63.3}
    found = paired_difference({s: v + gap for s, v in b.items()}, b)
    assert found.p is None and found.verdict == "open"


def test_holm_by_hand() -> None:
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert adjusted == pytest.approx({"d": 0.02, "a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({}) == {} and holm({"x": 0.7}) == {"x": 0.7}
    assert max(holm({i: 0.5 for i in range(5)}).values()) == 1.0


@pytest.mark.parametrize("n", [6, 9])
def test_flips_are_scipys_exact_permutations(n: int) -> None:
    differences = np.random.default_rng(n).normal(0.5, 1, n).tolist()
    second = stats.permutation_test(
        (differences,), lambda x, axis: np.sum(x, axis=axis), permutation_type="samples", n_resamples=np.inf
    )
    assert flip_test(differences) == pytest.approx(second.pvalue, rel=1e-12)
    assert flip_test(differences[:5]) is None
    assert flip_test([1.0] * 6) == 2 / 2**6


def test_pooled_sd_by_hand() -> None:
    assert pooled_sd([[1.0, 3.0], [10.0, 10.0, 10.0], [5.0]]) == pytest.approx(math.sqrt((1 + 1) / 3))
    assert pooled_sd([[1.0], []]) is None


@pytest.mark.parametrize(("gap", "sd"), [(1.0, 1.0), (0.5, 1.0), (3.0, 1.0), (0.3, 0.9)])
def test_needed_seeds_is_the_least_with_enough_power(gap: float, sd: float) -> None:
    n = needed_seeds(gap, sd)
    assert n is not None and power(gap, sd, n) >= 0.8
    assert n == 2 or power(gap, sd, n - 1) < 0.8


def test_needed_seeds_of_a_textbook() -> None:
    assert needed_seeds(0.5, 1.0) == 34  # Cohen's d of 0.5, paired, two-sided 5 %, power 0.8
    assert needed_seeds(0.0, 1.0) is None and needed_seeds(1e-3, 1.0) is None
    assert needed_seeds(50.0, 1.0) == 2 or needed_seeds(50.0, 1.0) == 3


def test_power_is_what_a_simulation_sees() -> None:
    draws = np.random.default_rng(1).normal(1.2, 1.0, (4000, 5))
    seen = sum(
        paired_difference(dict(enumerate(row)), dict.fromkeys(range(5), 0.0)).verdict == "ahead" for row in draws
    )
    assert seen / 4000 == pytest.approx(power(1.2, 1.0, 5), abs=0.03)  # 4 standard errors


@pytest.mark.parametrize("n", [2, 3, 5, 10])
def test_smallest_gap_is_seen_four_times_in_five(n: int) -> None:
    gap = smallest_gap(0.7, n)
    assert gap is not None and power(gap, 0.7, n) == pytest.approx(0.8, abs=1e-3)
    assert smallest_gap(0.7, 1) is None


@pytest.mark.parametrize("levels", ["one level", "two levels"])
@pytest.mark.parametrize("n", [3, 5, 10])
def test_intervals_cover_what_they_promise(n: int, levels: str) -> None:
    """10,000 experiments; with two levels the scores of a run are means of three noisy fine-tunings."""
    random = np.random.default_rng(n)
    scores = random.normal(70, 0.6, (10_000, n))
    if levels == "two levels":
        scores = scores + random.normal(0, 1.3, (10_000, n, 3)).mean(axis=2)
    found = [t_interval(row) for row in scores.tolist()]
    covered = sum(e.low <= 70 <= e.high for e in found if e.low is not None and e.high is not None)
    assert 0.93 <= covered / 10_000 <= 0.97


@pytest.mark.parametrize("n", [3, 5, 10])
def test_paired_intervals_cover_what_they_promise(n: int) -> None:
    random = np.random.default_rng(100 + n)
    shared = random.normal(0, 3, (10_000, n))  # a good seed is good for both arms
    a = 71 + shared + random.normal(0, 0.5, (10_000, n))
    b = 70 + shared + random.normal(0, 0.5, (10_000, n))
    covered = 0
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        e = t_interval([p - q for p, q in zip(x, y, strict=True)])
        covered += e.low is not None and e.high is not None and e.low <= 1 <= e.high
    assert 0.93 <= covered / 10_000 <= 0.97


def test_equal_arms_are_rarely_ranked() -> None:
    """Five arms of one truth: the chance that any of ten pairs is called ahead stays below 5 %."""
    from workbench.report.answer import claimed

    random = np.random.default_rng(7)
    false = 0
    for scores in random.normal(0, 1, (800, 5, 4)) + random.normal(0, 2, (800, 1, 4)):
        cells = [Cell(str(i), "b", dict(enumerate(map(float, row))), (), {}, None) for i, row in enumerate(scores)]
        false += any(claimed(pair) for pair in compare(cells))
    assert false / 800 <= 0.065  # 5 % and two standard errors
