"""The rule for "ahead": noise, t tests, corrections, the permutation test and almost stochastic order."""

from __future__ import annotations

import itertools
import math
import statistics as plain
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from test_rule import flip_p

from workbench.report.statistics.intervals import ALPHA, example_sd, pooled_sd, t_interval, t_quantile
from workbench.report.statistics.paired_comparison import (
    ARITHMETIC_SHARE,
    adjusted,
    almost_order,
    flip_tests,
    holm,
    moved_by_arithmetic,
    pair_noise,
    pairwise,
    reach_of,
    residual_df,
    two_sided,
    wider,
)

T3 = 3.182446305284263  # the 97.5 % point of Student's t with 3 degrees of freedom, from a table
SCORE = st.floats(0, 100).map(lambda v: round(v, 3))
SCORES = st.lists(SCORE, min_size=2, max_size=10)


def test_arms_come_in_the_order_of_their_means() -> None:
    """The order depends on means alone: not on names, one seed, or a seed that an arm lacks."""
    arms = {"a": {0: 50.0, 1: 52.0}, "b": {0: 10.0, 1: 99.0}, "c": {0: 60.0, 1: 60.0, 2: 60.0}, "d": {7: 1.0}}
    assert list(pairwise(arms)) == list(itertools.combinations("cbad", 2))


def test_a_look_divides_the_p_of_shared_noise_by_its_share_too() -> None:
    """For two arms with nearly equal differences in every seed, the noise shared with a third arm decides."""
    draws = np.random.default_rng(4)
    one, third = draws.normal(50, 1, 4), draws.normal(50, 1, 4)
    scores = {"a": one, "b": one + 2 + draws.normal(0, 1e-3, 4), "c": third}
    arms = {arm: dict(enumerate(map(float, values))) for arm, values in scores.items()}
    whole, look = (pairwise(arms, share=each)["b", "a"] for each in (1.0, 0.5))
    own = stats.ttest_rel(scores["b"], scores["a"]).pvalue
    assert whole.p is not None and 10 * own < whole.p < 0.5
    assert look.p == pytest.approx(2 * whole.p, rel=1e-9)


def test_one_value_has_no_interval_and_none_has_no_mean() -> None:
    one, none = t_interval([70.5]), t_interval([])
    assert (one.mean, one.half, one.low, one.high, one.sd, one.n) == (70.5, None, None, None, None, 1)
    assert math.isnan(none.mean) and none.half is None and none.n == 0


@given(SCORES)
def test_interval_is_scipys(values: list[float]) -> None:
    found = t_interval(values)
    sem = plain.stdev(values) / math.sqrt(len(values))
    assert (found.n, found.df) == (len(values), len(values) - 1) and found.half is not None
    assert (found.mean, found.sd) == pytest.approx((plain.fmean(values), plain.stdev(values)))
    if sem > 1e-9:
        low, high = stats.t.interval(0.95, len(values) - 1, plain.fmean(values), sem)
        assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9)


@settings(deadline=None)  # the first call loads scipy
@given(st.dictionaries(st.integers(0, 9), SCORE), st.dictionaries(st.integers(0, 9), SCORE))
def test_difference_is_scipys_paired_test_over_shared_seeds(a: dict[int, float], b: dict[int, float]) -> None:
    a, b = a | {50: 1e6}, b | {51: -1e6}  # a seed of one arm alone must not count
    [found] = pairwise({"a": a, "b": b}, family=[("a", "b")]).values()
    shared = sorted(a.keys() & b.keys())
    assert found.seeds == tuple(shared) and found.df == max(0, len(shared) - 1)
    if len(shared) < 4 or plain.stdev([a[s] - b[s] for s in shared]) < 1e-5:
        assert found.verdict == "open"
        return
    second = stats.ttest_rel([a[s] for s in shared], [b[s] for s in shared])
    assert found.p == pytest.approx(second.pvalue, rel=1e-6)
    assert found.estimate.n == len(shared)
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


@pytest.mark.parametrize("gap", [0.0, 1.0, 0.1])
def test_differences_without_spread_claim_nothing(gap: float) -> None:
    b = {0: 61.2, 1: 65.7, 2: 63.3, 3: 60.1}
    [found] = pairwise({"a": {s: v + gap for s, v in b.items()}, "b": b}).values()
    assert found.p is found.estimate.half is found.adjusted is None and found.verdict == "open"
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
    p = np.array([0.01, 0.04, 0.02])
    assert holm(np.broadcast_to(p, (2, 4, 3)))[1, 2] == pytest.approx([0.03, 0.04, 0.04]) == holm(p).tolist()


def test_p_is_the_larger_of_holms_and_of_the_own_noise_times_its_reach() -> None:
    found = adjusted(np.array([[0.01, 0.04]]), np.array([[0.02, 0.0]]), 3)[0]
    assert found == pytest.approx([0.06, 0.04])


def test_pooled_sd_by_hand() -> None:
    assert pooled_sd([[1.0, 3.0], [10.0, 10.0, 10.0], [5.0]]) == pytest.approx(math.sqrt((1 + 1) / 3))
    assert pooled_sd([[1.0], []]) is None


# -- second opinions
def test_the_permutation_test_can_object() -> None:
    """A claim needs both the adjusted p and the p of the permutation test below 5 %."""
    gaps = [0.9, 1.0, 1.1, 1.0, -0.4, -0.4, 1.0, 0.9, -0.4, -0.4]
    b = dict(enumerate([60.0, 64.0, 61.0, 59.0, 62.0, 63.0, 60.5, 61.5, 62.5, 58.0]))
    [found] = pairwise({"a": {s: v + gaps[s] for s, v in b.items()}, "b": b}).values()
    assert found.flip == flip_p(gaps) and found.adjusted is not None
    for p, flip, claimed in ((0.01, 0.06, False), (0.01, 0.04, True), (0.06, 0.04, False)):
        assert replace(found, adjusted=p, flip=flip).claimed is claimed


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
    assert nothing.adjusted is nothing.p is nothing.estimate.half is None
    gaps = [1.0, 1.0 + 2e-7, 1.0 - 2e-7, 1.0]
    b = dict(enumerate([61.2, 65.7, 63.3, 60.1]))
    [found] = pairwise({"a": {s: v + gaps[s] for s, v in b.items()}, "b": b}).values()
    assert found.claimed and found.estimate.half == pytest.approx(T3 * plain.stdev(gaps) / 2, rel=1e-3)


def test_arms_without_any_score_can_be_compared() -> None:
    [found] = pairwise({"a": {}, "b": {}}).values()
    assert found.adjusted is found.noise is found.p is None and found.seeds == ()


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
        p, adjusted = whole[pair].p, whole[pair].adjusted
        assert p is not None and one.p == pytest.approx(min(1.0, 4 * p))
        assert adjusted is not None and one.adjusted == pytest.approx(min(1.0, 4 * adjusted))
        if len(arms) == 2:
            assert one.estimate.sd is not None
            reach = t_quantile(1 - ALPHA / 4, 6) / math.sqrt(6)
            assert one.estimate.half == pytest.approx(reach * one.estimate.sd)
    if arms == ("b", "c"):
        assert p > 0.25, "a p above one would be seen"


@pytest.mark.parametrize(("arms", "seeds"), [(4, 2), (4, 3), (5, 4)])
def test_own_noise_of_every_pair_is_that_of_least_squares_or_its_own_if_larger(arms: int, seeds: int) -> None:
    pairs = list(itertools.combinations(range(arms), 2))
    scores = np.random.default_rng(10 * arms + seeds).normal(0, 1, (arms, seeds))
    variances = np.array([[(scores[a] - scores[b]).var(ddof=1) for a, b in pairs]])
    design = np.array([[float(arm in pair) for arm in range(arms)] for pair in pairs])
    each = np.maximum(np.linalg.lstsq(design, variances[0], rcond=None)[0], 0)
    sums = np.array([each[a] + each[b] for a, b in pairs])
    squares = np.array([max(each[a] ** 2 + each[b] ** 2, 1e-300) for a, b in pairs])  # both may be 0
    df, found = seeds - 1, pair_noise(variances, np.full(len(pairs), float(seeds)), arms, (arms - 1) * (seeds - 1))
    assert (sums < variances[0]).any() and (sums > variances[0]).any()
    assert found.own[0] == pytest.approx(np.maximum(sums, variances[0]))
    reduced = df * sums**2 / squares * (arms - 2) / (arms - 1)
    assert (reduced > df).any() and found.own_df[0] == pytest.approx(np.maximum(df, reduced))


def test_pairs_without_noise_keep_their_degrees_of_freedom() -> None:
    found = pair_noise(np.zeros((1, 6)), np.full(6, 3.0), 4, 6)
    assert (found.own == 0).all() and (found.own_df == 2).all() and found.shared[0, 0] == 0


@pytest.mark.parametrize("arms", [3, 4])
def test_pairs_that_share_one_seed_count_for_nothing(arms: int) -> None:
    """The last pair shares one seed; every other pair has its own sample variance, and one degree of freedom each."""
    pairs = arms * (arms - 1) // 2
    variances = np.array([[*range(1, pairs), np.nan]])
    seeds = np.array([2.0] * (pairs - 1) + [1.0])
    found = pair_noise(variances, seeds, arms, 3)
    assert found.shared[0, 0] == pytest.approx(variances[0, :-1].mean())
    assert found.own[0, :-1].tolist() == variances[0, :-1].tolist() and (found.own_df == 1).all()
    assert found.own_df.shape == variances.shape


def test_differences_without_error_are_certain_and_their_absence_too() -> None:
    found = two_sided(np.array([[0.0, 1.0, -2.0]]), np.zeros((1, 3)), np.full(3, 4.0), 5)
    assert found.tolist() == [[1.0, 0.0, 0.0]]


def test_the_wider_interval_brings_its_degrees_of_freedom() -> None:
    shared, own = np.array([[4.0]]), np.array([[1.0, 400.0]])
    half, df = wider(shared, 12, own, np.array([[3.0, 3.0]]), np.full(2, 4.0), 0.1)
    assert df.tolist() == [12.0, 3.0]
    assert half == pytest.approx([stats.t.isf(0.05, 12) * 2 / 2, stats.t.isf(0.05, 3) * 20 / 2])


def test_reach_counts_the_comparisons_of_one_arm_or_those_without_common_arms() -> None:
    assert reach_of([("a", "b")]) == 1
    assert reach_of([("a", "b"), ("c", "d")]) == 2, "no arm in common: both count"
    assert reach_of([("a", "b"), ("b", "c"), ("c", "d")]) == 3
    assert reach_of([("a", "b"), ("a", "c"), ("a", "d"), ("a", "e")]) == 4
    assert reach_of(list(itertools.combinations("abcde", 2))) == 4
    assert reach_of([]) == 1


@pytest.mark.parametrize("seed", range(12))
def test_residual_degrees_of_freedom_are_cells_less_the_rank_of_the_design(seed: int) -> None:
    random = np.random.default_rng(seed)
    arms, seeds, share = random.integers(1, 7), random.integers(1, 9), random.uniform(0.1, 1)
    there = random.uniform(size=(arms, seeds)) < share
    design = [[*np.eye(arms)[a], *np.eye(seeds)[s]] for a in range(arms) for s in range(seeds) if there[a, s]]
    expected = len(design) - np.linalg.matrix_rank(np.array(design)) if design else 0
    assert residual_df([frozenset(np.flatnonzero(row).tolist()) for row in there]) == expected


def test_residual_degrees_of_freedom_of_thousands_of_seeds_take_no_time() -> None:
    start = time.process_time()
    assert residual_df([frozenset(range(10_000))] * 50) == 49 * 9_999
    assert time.process_time() - start < 2


def test_another_kind_of_arithmetic_moves_means_as_in_simulated_studies_that_are_repeated() -> None:
    """A study on two kinds: the same seeds, each with a part of its noise that is the same and one that is not."""
    draws, arms, seeds, sd = 20_000, 2, 5, 1.7
    noise = np.random.default_rng(0)
    scores = noise.normal(0, 1, (1, draws, 1, seeds)) + noise.normal(
        0, sd * math.sqrt(1 - ARITHMETIC_SHARE), (1, draws, arms, seeds)
    )
    scores = scores + noise.normal(0, sd * math.sqrt(ARITHMETIC_SHARE), (2, draws, arms, seeds))
    paired = (scores[0, :, 0] - scores[0, :, 1]).std()  # as one study estimates it
    moved = (scores[1] - scores[0]).mean(-1)
    assert moved_by_arithmetic(paired, seeds) == pytest.approx(moved.std(), rel=0.02)
    assert math.sqrt(2) * moved_by_arithmetic(paired, seeds) == pytest.approx(
        (moved[:, 0] - moved[:, 1]).std(), rel=0.02
    )


SIGNS = list(itertools.product((-1, 1), repeat=7))


@pytest.mark.parametrize("n", [6, 9])
def test_flips_are_scipys_exact_permutations(n: int) -> None:
    differences = np.random.default_rng(n).normal(0.5, 1, n).tolist()
    second = stats.permutation_test(
        (differences,), lambda x, axis: np.sum(x, axis=axis), permutation_type="samples", n_resamples=np.inf
    )
    assert flip_p(differences) == pytest.approx(second.pvalue, rel=1e-12)
    assert flip_p(differences[:5]) is None
    assert flip_p([1.0] * 6) == 2 / 2**6


def test_flips_of_many_seeds_are_drawn() -> None:
    """Beyond 16 pairs, 32,768 random flips approximate the test; its p agrees with the t test."""
    differences = np.random.default_rng(3).normal(0.4, 1, 30).tolist()
    assert flip_p(differences) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, abs=0.01)
    assert flip_p(differences) == flip_p(differences)


def test_random_flips_are_as_many_as_those_of_sixteen_pairs_and_one_of_them_is_none() -> None:
    assert flip_p([1.0, 2.0] * 10) == flip_p([1.0, 2.0] * 8) == 2.0**-15


def test_comparisons_that_are_made_together_have_their_own_p() -> None:
    """Whatever the scale of the others: rounding is judged by each comparison's own differences."""
    random = np.random.default_rng(5)
    comparisons = [(scale * random.normal(0.7, 1, n)).tolist() for n in (6, 8, 6, 6) for scale in (1e-9, 1.0, 1e9)]
    assert flip_tests(comparisons) == [flip_p(each) for each in comparisons]
    assert flip_tests([[0.0] * 6, [1.0] * 4]) == [1.0, None]


def test_all_flips_of_sixteen_pairs_are_tried() -> None:
    differences = np.random.default_rng(16).normal(0.3, 1, 16).round(3)
    sums = np.array([[1.0], [-1.0]]) * differences[0]
    for value in differences[1:]:
        sums = (sums[..., None] + np.array([value, -value])).reshape(2, -1)
    assert flip_p(differences.tolist()) == np.mean(np.abs(sums) >= abs(differences.sum()) - 1e-9)


@pytest.mark.parametrize("unit", [1.0, 1e6, 1e-6])
def test_sums_that_differ_by_rounding_alone_are_equal(unit: float) -> None:
    """1 + 2 - 3 and others are ties, but 0.1 + 0.2 - 0.3 is not 0; the unit of scores makes no difference."""
    whole = [1, 2, 3, -4, 5, 6, 7]
    sums = [abs(sum(sign * one for sign, one in zip(signs, whole, strict=True))) for signs in SIGNS]
    expected = sum(one >= abs(sum(whole)) for one in sums) / len(sums)
    assert flip_p([unit * one / 10 for one in whole]) == expected
    balanced = [1, 2, -3, 4, 5, -9]
    assert flip_p([unit * one / 10 for one in balanced]) == 1.0


def test_almost_stochastic_order_by_hand() -> None:
    """(1, 4) against (2, 3) is violated on the lower half of the quantiles only: 1 of 2 squared points."""
    whole = almost_order([1.0, 4.0], [2.0, 3.0], level=0.5)  # at one half the bootstrap adds nothing
    assert whole == pytest.approx(0.5)
    assert almost_order([1.0, 6.0], [2.0, 3.0], level=0.5) == pytest.approx(1 / 10)
    assert almost_order([5.0, 6.0, 7.0], [1.0, 2.0], level=0.95) == 0.0
    assert almost_order([1.0, 2.0], [5.0, 6.0, 7.0], level=0.95) == 1.0
    assert almost_order([0.0, 0.0, 3.0], [1.0, 2.0, 2.0], level=0.95) == 1.0  # 5/6 and its margin are more than 1
    assert almost_order([1.0], [2.0, 3.0]) is None and almost_order([2.0, 2.0], [2.0, 2.0]) is None


def test_almost_stochastic_order_of_samples_of_different_sizes_by_hand() -> None:
    """Quantiles of three and of four values, cut at 1/4, 1/3, 1/2, 2/3 and 3/4."""
    gaps = np.array([1 - 2, 1 - 3, 4 - 3, 4 - 4, 9 - 4, 9 - 7])
    squares = gaps**2 * np.array([1 / 4, 1 / 12, 1 / 6, 1 / 6, 1 / 12, 1 / 4])
    found = almost_order([9, 1, 4], [2, 7, 3, 4], level=0.5)
    assert found == pytest.approx(squares[:2].sum() / squares.sum())


@given(SCORES, SCORES)
def test_violations_of_an_order_and_its_reverse_add_up(x: list[float], y: list[float]) -> None:
    one, two = almost_order(x, y, 0.5, 2), almost_order(y, x, 0.5, 2)
    if one is None or two is None:
        assert one is two is None and sorted(set(x)) == sorted(set(y))
        return
    assert one + two == pytest.approx(1.0) and 0 <= one <= 1


def test_almost_stochastic_order_of_ties_and_winners() -> None:
    random = np.random.default_rng(11)
    ties = [almost_order(*random.normal(70, 1, (2, 10)).tolist(), draws=200) for _ in range(100)]
    wins = [almost_order(random.normal(72, 1, 10).tolist(), random.normal(70, 1, 10).tolist()) for _ in range(20)]
    assert sum(e is not None and e < 0.2 for e in ties) <= 0.05 * 100 + 5
    assert sum(e is not None and e < 0.2 for e in wins) >= 18


def test_examples_scatter_as_shares_do() -> None:
    right = np.random.default_rng(2).binomial(100, 0.7, 20_000)
    assert example_sd(70.0, 100) == pytest.approx(right.std(), rel=0.02)
    assert example_sd(0.0, 1) == example_sd(100.0, 1) == 0.0 and example_sd(101.0, 100) is None
    assert example_sd(70.0, 0) is None and example_sd(-3.0, 100) is None and example_sd(math.nan, 100) is None
