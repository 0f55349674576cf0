"""Statistics of reports: closed forms by hand, scipy as a second opinion, and simulations of coverage."""

from __future__ import annotations

import math
import statistics as plain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from workbench.report.statistics.noise import adjusted, holm
from workbench.report.statistics.paired_comparison import (
    ALPHA,
    Compared,
    by_mean,
    pairwise,
    pooled_sd,
    t_interval,
    t_quantile,
)
from workbench.report.statistics.resampling import almost_order, flip_test

T2 = 0.95 * math.sqrt(2 / (1 - 0.95**2))  # the 97.5 % point of Student's t with 2 degrees of freedom, in closed form
T3 = 3.182446305284263  # and with 3, from a table
SCORE = st.floats(0, 100).map(lambda v: round(v, 3))
SCORES = st.lists(SCORE, min_size=2, max_size=10)


def test_interval_of_three_values_by_hand() -> None:
    found = t_interval([67.0, 68.0, 69.0])
    assert (found.mean, found.sd, found.n, found.df) == (68.0, 1.0, 3, 2)
    assert found.half == pytest.approx(T2 / math.sqrt(3), rel=1e-9)
    assert found.low == pytest.approx(68 - 2.4841377, abs=1e-6)
    assert found.high == pytest.approx(68 + 2.4841377, abs=1e-6)


def test_arms_come_in_the_order_of_their_means() -> None:
    """The order depends on means alone: not on names, one seed, or a seed that an arm lacks."""
    arms = {"a": {0: 50.0, 1: 52.0}, "b": {0: 10.0, 1: 99.0}, "c": {0: 60.0, 1: 60.0, 2: 60.0}, "d": {7: 1.0}}
    assert by_mean(arms) == ["c", "b", "a", "d"]


def test_a_look_divides_the_p_of_shared_noise_by_its_share_too() -> None:
    """For two arms with nearly equal differences in every seed, the noise shared with a third arm decides."""
    draws = np.random.default_rng(4)
    one, third = draws.normal(50, 1, 4), draws.normal(50, 1, 4)
    scores = {"a": one, "b": one + 2 + draws.normal(0, 1e-3, 4), "c": third}
    arms = {arm: dict(enumerate(map(float, values))) for arm, values in scores.items()}
    whole, look = (pairwise(arms, share=each)["b", "a"] for each in (1.0, 0.5))
    own = stats.ttest_rel(scores["b"], scores["a"]).pvalue
    assert whole.difference.p is not None and 10 * own < whole.difference.p < 0.5
    assert look.difference.p == pytest.approx(2 * whole.difference.p, rel=1e-9)


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


@settings(deadline=None)  # the first call loads scipy
@given(st.dictionaries(st.integers(0, 9), SCORE), st.dictionaries(st.integers(0, 9), SCORE))
def test_difference_is_scipys_paired_test_over_shared_seeds(a: dict[int, float], b: dict[int, float]) -> None:
    a, b = a | {50: 1e6}, b | {51: -1e6}  # a seed of one arm alone must not count
    [found] = pairwise({"a": a, "b": b}, family=[("a", "b")]).values()
    shared = sorted(a.keys() & b.keys())
    assert found.difference.seeds == tuple(shared) and found.df == max(0, len(shared) - 1)
    if len(shared) < 4 or plain.stdev([a[s] - b[s] for s in shared]) < 1e-5:
        assert found.verdict == "open"
        return
    second = stats.ttest_rel([a[s] for s in shared], [b[s] for s in shared])
    assert found.difference.p == pytest.approx(second.pvalue, rel=1e-6)
    assert found.difference.estimate.n == len(shared)
    low, high = second.confidence_interval(0.95)
    assert (found.estimate.low, found.estimate.high) == pytest.approx((low, high), rel=1e-6, abs=1e-9)


ROWS = st.lists(st.lists(SCORE, min_size=4, max_size=4), min_size=3, max_size=5)


@settings(deadline=None)
@given(ROWS)
def test_swapping_the_arms_turns_the_sign(rows: list[list[float]]) -> None:
    arms = {str(i): dict(enumerate(row)) for i, row in enumerate(rows)}
    one, two = (pairwise(arms, family=[pair]) for pair in (("0", "2"), ("2", "0")))
    [one, two] = [*one.values(), *two.values()]
    assert one.estimate.mean == pytest.approx(-two.estimate.mean, abs=1e-9) and one.estimate.half == two.estimate.half
    assert one.adjusted == two.adjusted
    assert two.verdict == {"ahead": "behind", "behind": "ahead", "open": "open"}[one.verdict]


def test_what_varies_with_the_seed_alone_cancels() -> None:
    seeds = {0: 40.0, 1: 70.0, 2: 90.0, 3: 10.0}
    a = {s: level + gap for (s, level), gap in zip(seeds.items(), (1.0, 1.1, 0.9, 1.0), strict=True)}
    [found] = pairwise({"a": a, "b": seeds}).values()
    assert found.claimed and found.estimate.half == pytest.approx(T3 * math.sqrt(0.02 / 3) / 2)


@pytest.mark.parametrize("gap", [0.0, 1.0, 0.1])
def test_differences_without_spread_claim_nothing(gap: float) -> None:
    b = {0: 61.2, 1: 65.7, 2: 63.3, 3: 60.1}
    [found] = pairwise({"a": {s: v + gap for s, v in b.items()}, "b": b}).values()
    assert found.difference.p is found.estimate.half is found.adjusted is None and found.verdict == "open"
    assert found.estimate.n == 4 and found.estimate.sd == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("others", [1, 3])
def test_equal_differences_are_judged_by_the_noise_of_the_other_arms(others: int) -> None:
    """Equal differences in every seed carry no information on their noise; the other arms provide it."""
    b = {0: 61.2, 1: 65.7, 2: 63.3, 3: 60.1}
    arms = {"a": {s: v + 5 for s, v in b.items()}, "b": b}
    arms |= {f"other {i}": {s: v + (i + 1) * (-1) ** (s + i) for s, v in b.items()} for i in range(others)}
    found = pairwise(arms)["a", "b"]
    assert found.estimate.half is not None and found.estimate.half > 0.5
    assert found.adjusted is not None and found.adjusted > 1e-4


def test_holm_by_hand() -> None:
    adjusted = holm(np.array([[0.01, 0.04, 0.03, 0.005], [0.5, 0.5, 0.5, 0.5]]))
    assert adjusted[0] == pytest.approx([0.03, 0.06, 0.06, 0.02]) and (adjusted[1] == 1).all()
    assert holm(np.array([[0.7]])) == 0.7


def test_p_is_the_larger_of_holms_and_of_the_own_noise_times_its_reach() -> None:
    found = adjusted(np.array([[0.01, 0.04]]), np.array([[0.02, 0.0]]), 3)[0]
    assert found == pytest.approx([0.06, 0.04])


def test_pooled_sd_by_hand() -> None:
    assert pooled_sd([[1.0, 3.0], [10.0, 10.0, 10.0], [5.0]]) == pytest.approx(math.sqrt((1 + 1) / 3))
    assert pooled_sd([[1.0], []]) is None


@pytest.mark.parametrize("levels", ["one level", "two levels"])
@pytest.mark.parametrize("n", [3, 5, 10])
def test_intervals_cover_what_they_promise(n: int, levels: str) -> None:
    """10,000 experiments are simulated.

    With two levels, the score of a run is the mean of three noisy fine-tunings.
    """
    random = np.random.default_rng(n)
    scores = random.normal(70, 0.6, (10_000, n))
    if levels == "two levels":
        scores = scores + random.normal(0, 1.3, (10_000, n, 3)).mean(axis=2)
    found = [t_interval(row) for row in scores.tolist()]
    covered = sum(e.low <= 70 <= e.high for e in found if e.low is not None and e.high is not None)
    assert 0.93 <= covered / 10_000 <= 0.97


# -- second opinions


def test_the_permutation_test_can_object() -> None:
    """A claim needs both the adjusted p and the p of the permutation test below 5 %."""
    gaps = [0.9, 1.0, 1.1, 1.0, -0.4, -0.4, 1.0, 0.9, -0.4, -0.4]
    b = dict(enumerate([60.0, 64.0, 61.0, 59.0, 62.0, 63.0, 60.5, 61.5, 62.5, 58.0]))
    [found] = pairwise({"a": {s: v + gaps[s] for s, v in b.items()}, "b": b}).values()
    assert found.flip == flip_test(gaps) and found.adjusted is not None
    objected = Compared(found.difference, 0.01, 0.06, None, found.noise, found.df)
    assert not objected.claimed and Compared(found.difference, 0.01, 0.04, None, found.noise, found.df).claimed
    assert not Compared(found.difference, 0.06, 0.04, None, found.noise, found.df).claimed


NOISY = {
    "a": {0: 61.0, 1: 65.5, 2: 63.1, 3: 60.4, 4: 62.0, 5: 64.2},
    "b": {0: 58.2, 1: 61.7, 2: 60.3, 3: 57.1, 4: 58.8, 5: 60.9},
    "c": {0: 57.0, 1: 62.0, 2: 59.0, 3: 58.0, 4: 57.2, 5: 61.5},
}


def test_the_order_is_that_of_the_two_arms_and_found_where_asked_for() -> None:
    """The order is computed from the two arms of each pair; the scores of other arms give another number."""
    assert all(one.order is None for one in pairwise(NOISY).values())
    for (a, b), one in pairwise(NOISY, order=True).items():
        assert one.order is not None and one.order == almost_order(list(NOISY[a].values()), list(NOISY[b].values()))


def test_there_is_no_permutation_test_where_nothing_can_be_claimed() -> None:
    [same] = pairwise({"a": {s: v + 1 for s, v in NOISY["b"].items()}, "b": NOISY["b"]}).values()
    assert same.adjusted is same.flip is None
    assert all(one.flip is not None for one in pairwise(NOISY).values())


def test_rounding_is_no_noise_and_the_smallest_noise_is() -> None:
    """Rounding puts an error of 1e-14 on sixty points; differences that scatter by 1e-7 were measured."""
    [nothing] = pairwise({"a": dict.fromkeys(range(4), 0.0), "b": dict.fromkeys(range(4), 0.0)}).values()
    assert nothing.adjusted is nothing.difference.p is nothing.estimate.half is None
    gaps = [1.0, 1.0 + 2e-7, 1.0 - 2e-7, 1.0]
    b = dict(enumerate([61.2, 65.7, 63.3, 60.1]))
    [found] = pairwise({"a": {s: v + gaps[s] for s, v in b.items()}, "b": b}).values()
    assert found.claimed and found.estimate.half == pytest.approx(T3 * plain.stdev(gaps) / 2, rel=1e-3)


def test_arms_without_any_score_can_be_compared() -> None:
    [found] = pairwise({"a": {}, "b": {}}).values()
    assert found.adjusted is found.noise is found.difference.p is None and found.difference.seeds == ()


def test_two_seeds_of_two_arms_have_noise_though_nothing_is_claimed_from_it() -> None:
    [found] = pairwise({"a": {0: 3.0, 1: 5.0}, "b": {0: 1.0, 1: 2.0}}).values()
    assert found.df == 1 and found.noise == found.estimate.sd == pytest.approx(plain.stdev([2.0, 3.0]))
    assert found.adjusted is None


def test_arms_that_share_one_seed_are_not_compared() -> None:
    """Other pairs of the family are compared: they have three degrees of freedom or more."""
    arms = {"a": NOISY["a"], "b": NOISY["b"], "c": {0: 57.0, 9: 60.0}}
    found = pairwise(arms)
    assert found["a", "c"].adjusted is found["a", "c"].estimate.half is None and found["a", "c"].estimate.n == 1
    assert found["a", "b"].adjusted is not None and found["a", "b"].estimate.sd == pytest.approx(
        plain.stdev([NOISY["a"][s] - NOISY["b"][s] for s in range(6)])
    )


@pytest.mark.parametrize("arms", [("a", "b"), ("b", "c"), ("a", "b", "c")])
def test_a_look_that_may_spend_a_quarter_has_four_times_the_p(arms: tuple[str, ...]) -> None:
    scores = {arm: NOISY[arm] for arm in arms}
    whole, look = pairwise(scores), pairwise(scores, share=0.25)
    for pair, one in look.items():
        p, adjusted = whole[pair].difference.p, whole[pair].adjusted
        assert p is not None and one.difference.p == pytest.approx(min(1.0, 4 * p))
        assert adjusted is not None and one.adjusted == pytest.approx(min(1.0, 4 * adjusted))
        if len(arms) == 2:
            assert one.estimate.sd is not None
            reach = t_quantile(1 - ALPHA / 4, 6) / math.sqrt(6)
            assert one.estimate.half == pytest.approx(reach * one.estimate.sd)
    if arms == ("b", "c"):
        assert p > 0.25, "a p above one would be seen"
