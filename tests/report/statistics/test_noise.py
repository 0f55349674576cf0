"""Noise of paired differences and its tests, each computed again by other means or by hand."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
from scipy import stats

from workbench.report.statistics.noise import (
    ARITHMETIC_SHARE,
    holm,
    moved_by_arithmetic,
    pair_noise,
    reach_of,
    residual_df,
    two_sided,
    wider,
)
from workbench.report.statistics.paired_comparison import pairwise


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


def test_holm_takes_arrays_of_any_number_of_axes() -> None:
    p = np.array([0.01, 0.04, 0.02])
    assert holm(p) == pytest.approx([0.03, 0.04, 0.04])
    assert holm(np.broadcast_to(p, (2, 4, 3)))[1, 2] == pytest.approx([0.03, 0.04, 0.04])


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


def test_seeds_of_one_arm_alone_add_no_degrees_of_freedom() -> None:
    both = frozenset(range(3))
    assert residual_df([both, both]) == residual_df([both | {7, 8}, both | {9}]) == 2
    arms = {"a": {0: 1.0, 1: 2.0, 2: 4.0, 7: 9.0}, "b": {0: 2.0, 1: 2.5, 2: 3.0}}
    [found] = pairwise(arms).values()
    assert found.df == 2 and found.noise is not None and math.isclose(found.noise, np.std([-1, -0.5, 1], ddof=1))


@pytest.mark.parametrize("seed", range(40))
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
