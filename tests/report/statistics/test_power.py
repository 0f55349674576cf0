"""Power of a design: the gap that it shows, the seeds that it needs, and designs that add seeds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from boards import PAPER
from scipy import stats
from test_rule import FAR, Judged, flip_p, noise_of, spreads

from workbench.report.statistics import power
from workbench.report.statistics.group_sequential import Plan, looks, schedule
from workbench.report.statistics.intervals import ALPHA, t_above, t_quantile
from workbench.report.statistics.paired_comparison import OwnNoise, own_noises, pairwise
from workbench.report.statistics.power import (
    SIMULATED,
    _Draws,
    flip_bounds,
    gap_by_own_noise,
    needed_seeds,
    shown,
    simulate,
    unit_gap,
)
from workbench.report.statistics.power import ArmPairs as Numbers


def every_pair(arms: int) -> Numbers:
    return tuple(itertools.combinations(range(arms), 2))


@pytest.mark.parametrize(("arms", "seeds"), [(2, 5), (2, 6), (2, 10), (3, 4), (5, 3), (5, 12)])
def test_a_draw_counts_if_the_rule_claims_its_first_comparison(arms: int, seeds: int) -> None:
    draws = _Draws(arms, seeds, every_pair(arms))
    scores = np.random.default_rng(0).standard_normal((sum(len(least) for _, _, least in draws.parts), arms, seeds))
    for gap in (0.5, 2.0):
        moved = scores.copy()
        moved[:, 0] += gap
        judged = Judged(moved)
        by_t = np.flatnonzero((judged.adjusted[:, 0] < ALPHA) & (judged.means[:, 0] > 0))
        flips = [flip_p((moved[i, 0] - moved[i, 1]).tolist()) if seeds <= 10 else None for i in by_t]
        assert draws.power(gap) == sum(p is None or p < ALPHA for p in flips) / len(scores)


def test_the_draws_may_be_in_memory_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _Draws(4, 5, every_pair(4))
    monkeypatch.setattr(power, "DIFFERENCES", 500)
    some = _Draws(4, 5, every_pair(4))
    assert len(some.parts) > 40 > len(whole.parts)
    assert [some.power(gap) for gap in (0.0, 0.7, 1.5)] == [whole.power(gap) for gap in (0.0, 0.7, 1.5)]


@pytest.mark.parametrize("seeds", [6, 7, 8, 9])
def test_a_gap_just_above_its_bound_passes_the_permutation_test(seeds: int) -> None:
    differences = np.random.default_rng(seeds).standard_normal((20, seeds))
    for row, bound in zip(differences, flip_bounds(differences), strict=True):
        above, below = flip_p((row + bound + 1e-6).tolist()), flip_p((row + bound - 1e-6).tolist())
        assert above is not None and below is not None and above < ALPHA <= below


def test_needed_seeds_depend_on_the_gap_in_units_of_the_noise() -> None:
    assert needed_seeds(1.4, 1.0, 5) == needed_seeds(-2.8, 2.0, 5) == needed_seeds(0.7, 0.5, 5)
    assert needed_seeds(math.inf, 1.0, 5) is needed_seeds(math.nan, 1.0, 5) is needed_seeds(1.0, math.inf, 5) is None
    assert needed_seeds(1e6, 1.0, 5) == 2, "two seeds of five arms have four degrees of freedom"


def test_fewer_comparisons_need_fewer_seeds() -> None:
    one, every = needed_seeds(1.4, 1.0, 8, ((0, 1),)), needed_seeds(1.4, 1.0, 8)
    assert one is not None and every is not None and one < every
    unit = unit_gap(8, one, ((0, 1),))
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


def claimed(sd: tuple[float, ...], seeds: int, gap: float, pair: tuple[int, int], draws: int = 400) -> float:
    """Return how often `pairwise` claims the first arm of a pair ahead of the second; the others are level with it."""
    scores = np.random.default_rng(len(sd) * seeds).standard_normal((draws, len(sd), seeds)) * np.array(sd)[:, None]
    scores[:, pair[0]] += gap
    one, two = map(str, pair)
    found = 0
    for draw in scores:
        compared = pairwise({str(arm): dict(enumerate(row.tolist())) for arm, row in enumerate(draw)})
        found += compared[one, two].claimed if (one, two) in compared else False
    return found / draws


def paired_sd(sd: tuple[float, ...]) -> float:
    return math.sqrt(np.mean([a**2 + b**2 for a, b in itertools.combinations(sd, 2)]))


@pytest.mark.parametrize(
    ("sd", "seeds", "pair"),
    [
        ((0.5, 0.2, 5.0, 7.7, 0.6), 4, (1, 3)),
        ((1.0, 1.0, 1.0, 1.0, 5.0), 5, (4, 0)),
        ((1.0,) * 7 + (5.0,), 5, (0, 7)),
        ((1.0, 1.0, 5.0), 5, (0, 2)),
    ],
)
def test_a_noisy_pair_is_shown_four_times_in_five_at_the_gap_of_its_own_noise(
    sd: tuple[float, ...], seeds: int, pair: tuple[int, int]
) -> None:
    """By the noise of all arms alone, the gap was shown in 19 to 67 of 100 experiments."""
    arms = len(sd)
    variance = sd[pair[0]] ** 2 + sd[pair[1]] ** 2
    welch = (seeds - 1) * variance**2 / (sd[pair[0]] ** 4 + sd[pair[1]] ** 4) * (arms - 2) / (arms - 1)
    own = OwnNoise(math.sqrt(variance), max(seeds - 1, welch if arms > 3 else 0) / (seeds - 1))
    alike = unit_gap(arms, seeds)
    assert alike is not None
    gap = gap_by_own_noise(own, seeds, arms - 1)
    assert gap > 1.1 * alike * paired_sd(sd)
    assert claimed(sd, seeds, gap, pair) == pytest.approx(0.8, abs=0.08)


def test_a_gap_by_own_noise_is_that_of_the_noncentral_t_distribution() -> None:
    own = OwnNoise(2.0, 1.5)
    for seeds, reach, share in ((4, 1, 1.0), (4, 4, 1.0), (9, 4, 0.3)):
        df = 1.5 * (seeds - 1)
        least = stats.t.isf(ALPHA * share / reach / 2, df)
        gap = gap_by_own_noise(own, seeds, reach, share)
        assert stats.nct.sf(least, df, gap / 2.0 * math.sqrt(seeds)) == pytest.approx(0.8, abs=0.005)


def test_a_noisy_pair_needs_more_seeds_than_arms_that_are_alike() -> None:
    sd = (1.0, 1.0, 1.0, 1.0, 5.0)
    own = OwnNoise(math.hypot(1, 5), 1.0)
    alike, needed = (needed_seeds(8.0, paired_sd(sd), 5, own=noise) for noise in (None, own))
    assert alike is not None and needed is not None and needed > alike
    assert gap_by_own_noise(own, needed, 4) <= 8.0 < gap_by_own_noise(own, needed - 1, 4)
    assert claimed(sd, needed, 8.0, (4, 0)) > 0.73
    quiet = OwnNoise(math.sqrt(2), 3.0)
    assert needed_seeds(8.0, paired_sd(sd), 5, own=quiet) == alike
    assert needed_seeds(0.5, 1.0, 5, own=OwnNoise(100.0, 1.0)) is None
    assert needed_seeds(0.0, 1.0, 5, own=own) is None


def test_seeds_that_own_noise_needs_count_the_comparisons_and_end_at_a_thousand() -> None:
    own = OwnNoise(5.0, 1.0)
    one, every = needed_seeds(6.0, 1.0, 5, ((0, 1),), own), needed_seeds(6.0, 1.0, 5, None, own)
    assert one is not None and every is not None and one < every
    assert gap_by_own_noise(own, one, 1) <= 6.0 < gap_by_own_noise(own, one - 1, 1)
    at = {seeds: gap_by_own_noise(own, seeds, 4) for seeds in (999, 1000, 1001)}
    assert needed_seeds((at[999] + at[1000]) / 2, 0.01, 5, own=own) == 1000
    assert needed_seeds((at[1000] + at[1001]) / 2, 0.01, 5, own=own) is None


def test_own_noise_of_two_arms_is_that_of_their_pair() -> None:
    scores = {"a": {0: 1.0, 1: 5.0, 2: 3.0}, "b": {0: 2.0, 1: 2.5, 2: 1.0}, "c": {7: 1.0}}
    noises = own_noises(scores)
    assert noises.keys() == {frozenset("ab")}
    found = noises[frozenset("ab")]
    assert (found.sd, found.df_of_seed) == (pytest.approx(np.std([-1.0, 2.5, 2.0], ddof=1)), 1.0)
    more = own_noises(scores | {"d": {0: 4.0, 1: 1.0, 2: 2.0}})  # one arm of four shares no seeds with the others
    assert len(more) == 3 and more[frozenset("ab")] == found
    [two] = own_noises({"a": {0: 1.0, 1: 5.0}, "b": {0: 2.0, 1: 2.5}}).values()
    assert (two.sd, two.df_of_seed) == (pytest.approx(np.std([-1.0, 2.5], ddof=1)), 1.0)


def false_claims(arms: int, family: Numbers, plan: Plan, kind: str, draws: int) -> tuple[float, str, int]:
    """Return the largest share of experiments with a claim among equal arms, over patterns of noise, and where."""
    rates = []
    for name, spread in spreads(arms).items():
        for order, level in itertools.product((spread, spread[::-1]), {2, 3, arms} & set(range(2, arms + 1))):
            null = [i for i, pair in enumerate(family) if max(pair) < level]
            random = np.random.default_rng(100 * arms + plan.seeds[-1] + level)
            scores = noise_of(kind, random, (draws, arms, plan.seeds[-1])) * order[:, None]
            scores += np.r_[np.zeros(level), FAR * np.arange(1, arms - level + 1)][:, None]
            if null:
                found, _ = simulate(scores, plan, family)
                rates.append((float((found[:, null] != 0).any(axis=1).mean()), name, level))
    return max(rates)


@pytest.mark.parametrize(
    ("arms", "family", "most"),
    [(2, every_pair(2), 12), (3, every_pair(3), 9), (5, PAPER, 12), (5, every_pair(5), 8)],
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


@pytest.mark.parametrize(
    ("arms", "family", "counts"),
    [(2, None, schedule(12)), (5, PAPER, schedule(12)), (3, None, schedule(6)), (5, PAPER, (4,)), (5, PAPER, (5,)),
     (5, ((0, 1), (2, 3)), (5,))],
)  # fmt: skip
def test_the_promised_gap_is_shown_four_times_in_five(
    arms: int, family: Numbers | None, counts: tuple[int, ...]
) -> None:
    """The gap is shown in other draws than those that it was computed from.

    With five arms, the arm in the fewest comparisons is ahead.
    """
    promise = shown(arms, counts, family)
    assert promise is not None
    pairs = family or every_pair(arms)
    taking_part = [sum(arm in pair for pair in pairs) for arm in range(arms)]
    arm = taking_part.index(min(filter(None, taking_part)))
    scores = np.random.default_rng(7).normal(0, 3 / math.sqrt(2), (2000, arms, counts[-1]))
    scores[:, arm] += 3 * promise.gap
    found, used = simulate(scores, Plan(counts), pairs)
    right = [(found[:, i] == (1 if pair[0] == arm else -1)).mean() for i, pair in enumerate(pairs) if arm in pair]
    assert min(right) == pytest.approx(0.8, abs=0.035)
    assert used.mean() == pytest.approx(promise.seeds, abs=0.35) and promise.seeds_of_none <= counts[-1]


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
        last = next((look for look in taken if "open" not in look.status.values()), taken[-1])
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
    objected = [i for i in by_t if (flip_p(gaps[i].tolist()) or 0) >= ALPHA]
    assert objected and (decided[objected] == 0).all() and (decided != 0).sum() == len(by_t) - len(objected)


def test_quantiles_of_t_are_scipys_to_the_last_bit() -> None:
    degrees, shares = np.array([[1.0], [2.5], [4.0], [30.0], [1e4]]), np.array([0.0, 1e-9, 0.0025, 0.025, 0.3])
    assert np.array_equal(t_above(shares, degrees), stats.t.isf(shares, degrees))
    assert t_quantile(0.95, 5) == stats.t.ppf(0.975, 4) and t_quantile(0.9, 2) == stats.t.ppf(0.95, 1)
