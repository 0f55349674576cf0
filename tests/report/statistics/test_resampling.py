"""Permutation tests, almost stochastic order and the scatter over test examples, against scipy and by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workbench.report.statistics.resampling import almost_order, example_sd, flip_test, flip_tests

SIGNS = list(itertools.product((-1, 1), repeat=7))

SCORE = st.floats(0, 100).map(lambda v: round(v, 3))

SCORES = st.lists(SCORE, min_size=2, max_size=10)


@pytest.mark.parametrize("n", [6, 9])
def test_flips_are_scipys_exact_permutations(n: int) -> None:
    differences = np.random.default_rng(n).normal(0.5, 1, n).tolist()
    second = stats.permutation_test(
        (differences,), lambda x, axis: np.sum(x, axis=axis), permutation_type="samples", n_resamples=np.inf
    )
    assert flip_test(differences) == pytest.approx(second.pvalue, rel=1e-12)
    assert flip_test(differences[:5]) is None
    assert flip_test([1.0] * 6) == 2 / 2**6


def test_flips_of_many_seeds_are_drawn() -> None:
    """Beyond 16 pairs, 32,768 random flips approximate the test; its p agrees with the t test."""
    differences = np.random.default_rng(3).normal(0.4, 1, 30).tolist()
    assert flip_test(differences) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, abs=0.01)
    assert flip_test(differences) == flip_test(differences)


def test_random_flips_are_as_many_as_those_of_sixteen_pairs_and_one_of_them_is_none() -> None:
    assert flip_test([1.0, 2.0] * 10) == flip_test([1.0, 2.0] * 8) == 2.0**-15


def test_comparisons_that_are_made_together_have_their_own_p() -> None:
    """Whatever the scale of the others: rounding is judged by each comparison's own differences."""
    random = np.random.default_rng(5)
    comparisons = [(scale * random.normal(0.7, 1, n)).tolist() for n in (6, 8, 6, 6) for scale in (1e-9, 1.0, 1e9)]
    assert flip_tests(comparisons) == [flip_test(each) for each in comparisons]
    assert flip_tests([[0.0] * 6, [1.0] * 4]) == [1.0, None]


def test_all_flips_of_sixteen_pairs_are_tried() -> None:
    differences = np.random.default_rng(16).normal(0.3, 1, 16).round(3)
    sums = np.array([[1.0], [-1.0]]) * differences[0]
    for value in differences[1:]:
        sums = (sums[..., None] + np.array([value, -value])).reshape(2, -1)
    assert flip_test(differences.tolist()) == np.mean(np.abs(sums) >= abs(differences.sum()) - 1e-9)


@pytest.mark.parametrize("unit", [1.0, 1e6, 1e-6])
def test_sums_that_differ_by_rounding_alone_are_equal(unit: float) -> None:
    """1 + 2 - 3 and others are ties, but 0.1 + 0.2 - 0.3 is not 0; the unit of scores makes no difference."""
    whole = [1, 2, 3, -4, 5, 6, 7]
    sums = [abs(sum(sign * one for sign, one in zip(signs, whole, strict=True))) for signs in SIGNS]
    expected = sum(one >= abs(sum(whole)) for one in sums) / len(sums)
    assert flip_test([unit * one / 10 for one in whole]) == expected
    balanced = [1, 2, -3, 4, 5, -9]
    assert flip_test([unit * one / 10 for one in balanced]) == 1.0


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
    ties = [almost_order(*random.normal(70, 1, (2, 10)).tolist(), draws=200) for _ in range(200)]
    wins = [almost_order(random.normal(72, 1, 10).tolist(), random.normal(70, 1, 10).tolist()) for _ in range(50)]
    assert sum(e is not None and e < 0.2 for e in ties) <= 0.05 * 200 + 6
    assert sum(e is not None and e < 0.2 for e in wins) >= 45


def test_examples_scatter_as_shares_do() -> None:
    right = np.random.default_rng(2).binomial(100, 0.7, 20_000)
    assert example_sd(70.0, 100) == pytest.approx(right.std(), rel=0.02)
    assert example_sd(0.0, 1) == example_sd(100.0, 1) == 0.0 and example_sd(101.0, 100) is None
    assert example_sd(70.0, 0) is None and example_sd(-3.0, 100) is None and example_sd(math.nan, 100) is None
