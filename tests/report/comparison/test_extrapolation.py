"""Bounds beyond the largest budget, and crossings of arms: cases by hand, and simulations of known laws."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from scored_laws import Law, scored_by_laws

from workbench.report.comparison import extrapolation
from workbench.report.comparison.extrapolation import BEST, Extension, Points
from workbench.report.statistics.paired_comparison import t_interval

CEILINGS = (60.0, 70.0, 80.0, 90.0, 95.0, 100.0)
PAIRS = ((80.0, 95.0), (82.0, 84.0), (60.0, 100.0), (90.0, 70.0), (95.0, 80.0))


def power_law(ceiling: float, exponent: float, start: float = 40.0) -> Law:
    return lambda doublings: ceiling - (ceiling - start) * 2.0 ** (-exponent * doublings)


def late_start(plateau: float, height: float, middle: float, width: float) -> Law:
    """Return a law with a plateau and then a logistic rise around `middle`, as replaced token detection has."""
    return lambda doublings: plateau + height / (1 + math.exp(-(doublings - middle) / width))


# -- by hand


def test_the_bounds_by_hand() -> None:
    one = Extension((1.0, 2.0, 4.0), {0: (10.0, 16.0, 19.0), 1: (11.0, 16.0, 21.0)})
    assert one.slope.mean == pytest.approx((4.5 + 5.0) / 2)  # least squares: (last - first) / 2 at equal steps
    assert one.bend().mean == pytest.approx((-3.0 + 0.0) / 2)
    assert one.ends() == {0: 19.0, 1: 21.0}
    assert one.line(8.0) == pytest.approx({0: 15.0 + 2 * 4.5, 1: 16.0 + 2 * 5.0})  # two doublings from the middle
    low, high = one.band(8.0)
    assert low == t_interval([19.0, 21.0]).low and high == min(BEST, t_interval([24.0, 26.0]).high or 0.0)


def test_no_band_reaches_beyond_the_best_score() -> None:
    one = Extension((1.0, 2.0, 4.0), {0: (70.0, 85.0, 95.0), 1: (71.0, 86.0, 96.0)})
    assert one.band(40.0)[1] == BEST


def test_budgets_that_are_not_evenly_spaced_are_weighed_by_their_doublings() -> None:
    one = Extension((1.0, 2.0, 16.0), {0: (10.0, 12.0, 18.0), 1: (20.0, 22.0, 28.0)})  # two points a doubling
    assert one.slope.mean == pytest.approx(2.0) and one.bend().mean == pytest.approx(0.0)
    assert one.line(32.0) == pytest.approx({0: 20.0, 1: 30.0})


@pytest.mark.parametrize(
    ("points", "why"),
    [
        ([(1.0, {0: 1.0, 1: 2.0}), (2.0, {0: 2.0, 1: 3.0})], "two budgets"),
        ([(float(x), {0: float(x)}) for x in (1, 2, 4)], "one seed"),
        ([(1.0, {0: 1.0, 1: 2.0}), (2.0, {0: 2.0, 2: 3.0}), (4.0, {0: 2.0, 1: 3.0})], "one seed in common"),
        ([(1.0, {0: 1.0, 1: 2.0}), (2.0, {0: 2.0, 1: 3.0}), (2.01, {0: 2.0, 1: 3.0})], "two budgets that are one"),
    ],
)
def test_too_little_is_not_extended(points: Points, why: str) -> None:
    assert extrapolation.extension(points) is None, why


@pytest.mark.parametrize(
    ("law", "said"),
    [
        (power_law(80, 0.4), ""),
        (lambda doublings: 60.0, "does not measurably rise"),
        (lambda doublings: 60.0 - doublings, "does not measurably rise"),
        (lambda doublings: 40.0 + 3 * doublings, "does not measurably slow down"),
        (late_start(40, 40, 4.0, 0.8), "does not measurably slow down"),
    ],
)
def test_an_arm_is_extended_only_where_it_rises_and_slows_down(law: Law, said: str) -> None:
    one = extrapolation.extension(scored_by_laws({"a": law}, 5, 4, 0.1, 1.0, "hand")["a"])
    assert one is not None
    assert said in one.refusal and bool(one.refusal) == bool(said)


def test_only_the_leader_at_the_largest_budget_can_be_put_forward() -> None:
    far = {"a": power_law(85, 0.5, 60), "b": power_law(70, 0.5)}
    lead = extrapolation.lead(scored_by_laws(far, 5, 4, 0.1, 1.0, "far"), 2.0**5)
    assert (lead.first, lead.refusal) == ("a", "") and lead.margins["b"].mean > 5
    near = {"a": power_law(71, 0.5, 50), "b": power_law(70, 0.5)}
    told = extrapolation.lead(scored_by_laws(near, 4, 4, 0.1, 1.0, "near"), 2.0**6).refusal
    assert told == "a is ahead at the largest budget, but b could overtake it if its gain per doubling lasted"
    level = {"a": power_law(70, 0.5), "b": power_law(70, 0.5)}
    assert (
        "is not shown to be ahead of"
        in extrapolation.lead(scored_by_laws(level, 5, 4, 0.5, 1.0, "tie"), 2.0**5).refusal
    )
    other = scored_by_laws(far, 5, 4, 0.1, 1.0, "far") | {"b": scored_by_laws(far, 4, 4, 0.1, 1.0, "far")["b"]}
    assert "budgets of the arms are not equal" in extrapolation.lead(other, 2.0**5).refusal


def test_margins_over_several_arms_are_corrected_for_their_number() -> None:
    """The lead over one rival holds at 95 %, that over three equal rivals does not, at 98.3 % each."""
    draws = random.Random("margins")
    noise = {name: [draws.gauss(0, 1.0) for _ in range(4)] for name in ("leader", "rival")}

    def points(law: Law, name: str) -> Points:
        return [(2.0**i, {s: law(float(i)) + noise[name][s] for s in range(4)}) for i in range(3)]

    leader, rival = points(power_law(75, 0.5, 70), "leader"), points(power_law(62, 0.6), "rival")
    one = {"a": leader, "b": rival}
    amounts = [2.0 ** (2 + 0.05 * n) for n in range(1, 66)]
    last = max(amount for amount in amounts if not extrapolation.lead(one, amount).refusal)
    assert amounts[0] < last < amounts[-1]
    several = one | {"c": rival, "d": rival}
    assert extrapolation.lead(several, amounts[0]).refusal == ""
    assert extrapolation.lead(several, last).refusal.startswith("a is ahead at the largest budget, but ")


# -- simulation. Every scenario is seeded, so the counts below are the same on every machine.


def missed(law: Law, budgets: int, seeds: int, noise: float, step: float, times: int) -> tuple[int, int, int]:
    """Return how often the band misses the truth at the largest budget and at ten times it, and the number of bands."""
    stated = at_end = at_ten = 0
    top, ten = step * (budgets - 1), step * (budgets - 1) + math.log2(10)
    for i in range(times):
        one = extrapolation.extension(
            scored_by_laws({"a": law}, budgets, seeds, noise, step, (law(1.0), budgets, i))["a"]
        )
        assert one is not None
        if not one.refusal:
            stated += 1
            low, high = one.band(one.end)
            at_end += not low <= law(top) <= high
            low, high = one.band(one.end * 10)
            at_ten += not low <= law(ten) <= high
    return at_end, at_ten, stated


def outcome(first: Law, second: Law, budgets: int, seeds: int, noise: float, step: float, times: int) -> list[int]:
    """Return how often the better and the worse arm at twice and ten times the largest budget are recommended."""
    found = [0, 0]
    for i, ratio in itertools.product(range(times), (2.0, 10.0)):
        top = step * (budgets - 1)
        arms = scored_by_laws(
            {"a": first, "b": second}, budgets, seeds, noise, step, (first(1.0), second(1.0), budgets, i)
        )
        lead = extrapolation.lead(arms, 2.0**top * ratio)
        if not lead.refusal:
            place = top + math.log2(ratio)
            better = "a" if first(place) > second(place) else "b"
            found[lead.first != better] += 1
    return found


def designs(full: bool) -> list[tuple[int, int, float, float]]:
    """Return designs of a study: budgets, seeds, noise, and doublings from one budget to the next."""
    if full:
        return list(itertools.product((3, 4, 6), (2, 3, 5), (0.2, 0.5, 1.0), (1.0, 2.0)))
    return [(3, 3, 0.5, 1.0), (4, 5, 0.5, 1.0), (6, 2, 0.2, 1.0), (4, 3, 1.0, 2.0)]


def bands(full: bool, times: int) -> None:
    """Check for every ceiling that at most 5 % of the bands, and two standard errors, miss the truth."""
    for ceiling in CEILINGS:
        end = ten = stated = 0
        for exponent, design in itertools.product((0.15, 0.4, 0.8), designs(full)):
            one, two, count = missed(power_law(ceiling, exponent), *design, times)
            end, ten, stated = end + one, ten + two, stated + count
        print(f"ceiling {ceiling:.0f}: {stated} bands stated, missed at the end {end}, at ten times {ten}")
        allowed = 0.05 * stated + 2 * math.sqrt(0.05 * 0.95 * stated)
        assert stated > 100 and end <= allowed and ten <= allowed


def recommendations(full: bool, times: int) -> None:
    """Check that the worse arm is recommended in at most 5 % of studies of each scenario.

    The better arm must be recommended if both are far apart.
    """
    scenarios: dict[str, tuple[Law, Law]] = {
        f"{a:.0f}/{b:.0f}": (power_law(a, 0.6), power_law(b, 0.35)) for a, b in PAIRS
    }
    scenarios["far apart"] = (power_law(85, 0.4, 60), power_law(70, 0.4))
    for design in designs(full):
        top = design[3] * (design[0] - 1)
        cases = dict(scenarios)
        for after, width in ((0.0, 0.8), (1.0, 0.4), (1.0, 1.5), (2.0, 0.8)):  # the rise is yet to come, or under way
            rise = late_start(40, 45, top + after, width)
            cases[f"late {after:g}, {width:g}"] = (power_law(70, 0.4, 55), rise)
        cases["saturating logistic"] = (late_start(40, 45, top / 2, 1.2), power_law(80, 0.15))
        for name, (first, second) in cases.items():
            right, wrong = outcome(first, second, *design, times)
            if full:
                print(f"{design} {name}: right {right}, wrong {wrong} of {2 * times}")
            assert wrong <= 0.05 * 2 * times + 1, (name, design)
            if name == "far apart" and design == (4, 5, 0.5, 1.0):
                assert right >= 0.8 * times


def test_bands_cover_whatever_the_ceiling() -> None:
    bands(full=False, times=60)


def test_the_worse_arm_is_hardly_ever_put_forward() -> None:
    recommendations(full=False, times=20)


@pytest.mark.slow
def test_bands_cover_whatever_the_ceiling_in_full() -> None:
    bands(full=True, times=50)


@pytest.mark.slow
def test_the_worse_arm_is_hardly_ever_put_forward_in_full() -> None:
    recommendations(full=True, times=40)
