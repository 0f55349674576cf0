"""Power by simulation: each draw is judged by the rule itself, one experiment after the other."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from test_rule import Judged

from workbench.report.statistics.paired_comparison import ALPHA
from workbench.report.statistics.power import SIMULATED, _Draws, flip_bounds, needed_seeds, unit_gap
from workbench.report.statistics.resampling import flip_test


def every_pair(arms: int) -> tuple[tuple[int, int], ...]:
    return tuple(itertools.combinations(range(arms), 2))


@pytest.mark.parametrize(("arms", "seeds"), [(2, 5), (2, 6), (2, 10), (3, 4), (5, 3), (5, 12)])
def test_a_draw_counts_if_the_rule_claims_its_first_comparison(arms: int, seeds: int) -> None:
    draws = _Draws(arms, seeds, every_pair(arms))
    scores = np.random.default_rng(0).standard_normal((len(draws.means), arms, seeds))
    for gap in (0.5, 2.0):
        moved = scores.copy()
        moved[:, 0] += gap
        judged = Judged(moved)
        by_t = np.flatnonzero((judged.adjusted[:, 0] < ALPHA) & (judged.means[:, 0] > 0))
        flips = [flip_test((moved[i, 0] - moved[i, 1]).tolist()) if seeds <= 10 else None for i in by_t]
        assert draws.power(gap) == sum(p is None or p < ALPHA for p in flips) / len(scores)


@pytest.mark.parametrize(("arms", "seeds", "count"), [(2, 5, 4000), (5, 10, 2000), (8, 30, 1000)])
def test_small_designs_are_simulated_more_often(arms: int, seeds: int, count: int) -> None:
    assert len(_Draws(arms, seeds, every_pair(arms)).means) == count


@pytest.mark.parametrize("seeds", [6, 7, 8, 9])
def test_a_gap_just_above_its_bound_passes_the_permutation_test(seeds: int) -> None:
    differences = np.random.default_rng(seeds).standard_normal((20, seeds))
    for row, bound in zip(differences, flip_bounds(differences), strict=True):
        above, below = flip_test((row + bound + 1e-6).tolist()), flip_test((row + bound - 1e-6).tolist())
        assert above is not None and below is not None and above < ALPHA <= below


def test_needed_seeds_depend_on_the_gap_in_units_of_the_noise() -> None:
    assert needed_seeds(1.4, 1.0, 5) == needed_seeds(-2.8, 2.0, 5) == needed_seeds(0.7, 0.5, 5)
    assert needed_seeds(math.inf, 1.0, 5) is needed_seeds(math.nan, 1.0, 5) is needed_seeds(1.0, math.inf, 5) is None
    assert needed_seeds(1e6, 1.0, 5) == 2, "two seeds of five arms have four degrees of freedom"


def test_fewer_comparisons_need_fewer_seeds() -> None:
    one, every = needed_seeds(1.4, 1.0, 8, 1), needed_seeds(1.4, 1.0, 8)
    assert one is not None and every is not None and one < every
    unit = unit_gap(8, one, 1)
    assert unit is not None and unit <= 1.4


@pytest.mark.parametrize("gap", [0.6, 0.7, 0.8, 0.9, 1.1])
def test_no_simulated_number_of_seeds_that_shows_the_gap_is_passed_over(gap: float) -> None:
    units = {seeds: unit_gap(2, seeds) or math.inf for seeds in SIMULATED}
    enough = next(seeds for seeds in SIMULATED if units[seeds] <= gap)
    n = needed_seeds(gap, 1.0, 2)
    assert n is not None and max((s for s in SIMULATED if s < enough), default=1) < n <= enough


def test_more_than_a_thousand_seeds_are_no_answer() -> None:
    unit = unit_gap(2, 30)
    assert unit is not None
    assert needed_seeds(unit * math.sqrt(30 / 999.5), 1.0, 2) == 1000
    assert needed_seeds(unit * math.sqrt(30 / 1000.5), 1.0, 2) is None
