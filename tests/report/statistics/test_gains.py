"""Gains over untrained encoders against the same numbers worked out by hand, and what must not change them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from workbench.report.statistics.gains import Groups, gains
from workbench.report.statistics.group_sequential import Plan
from workbench.report.statistics.paired_comparison import Compared

POINTS = st.floats(20, 90, width=32)


class Study:
    """Runs `ARM-SEED` and untrained runs `u-SEED`, which all arms start from."""

    def __init__(self, seeds: int = 4, **levels: float) -> None:
        random = np.random.default_rng(7)
        self.seeds = {f"{arm}-{seed}": seed for arm in (*levels, "u") for seed in range(seeds)}
        self.scores = {run: 50 + levels.get(run[0], 0) + float(random.normal()) for run in self.seeds}
        self.bare = {run: f"u-{seed}" for run, seed in self.seeds.items() if run[0] != "u"}
        self.groups: Groups = {("60 steps", arm): tuple(f"{arm}-{seed}" for seed in range(seeds)) for arm in levels}

    def gains(self) -> dict[tuple[str, str], Compared]:
        return gains(self.groups, self.scores, self.seeds, self.bare)

    def table(self, *arms: str) -> np.ndarray:
        """Return scores (arms, seeds)."""
        return np.array([[score for run, score in self.scores.items() if run[0] == arm] for arm in arms])


def test_two_arms_with_one_start_against_the_rule_by_hand() -> None:
    """Residuals of arm + seed give the shared noise, scipy's paired t test the own; the factor of two tests is 2."""
    study = Study(5, a=2.0, b=0.8)
    table = study.table("a", "b", "u")
    residuals = table - table.mean(1, keepdims=True) - table.mean(0) + table.mean()
    variance = 2 * (residuals**2).sum() / 8  # of a paired difference; 3 arms, 5 seeds
    means = table[:2].mean(1) - table[2].mean()
    shared = 2 * stats.t.sf(np.abs(means) / math.sqrt(variance / 5), 8)
    own = stats.ttest_rel(table[:2], table[2], axis=1).pvalue
    order = np.argsort(shared)
    holm = np.maximum.accumulate(np.minimum(1, shared[order] * [2, 1]))[np.argsort(order)]
    found = study.gains()
    for place, arm in enumerate("ab"):
        one = found["60 steps", arm]
        assert one.estimate.mean == pytest.approx(means[place]) and one.estimate.n == 5
        assert one.adjusted == pytest.approx(max(holm[place], min(1, 2 * own[place])))
        assert one.noise == pytest.approx(math.sqrt(variance)) and one.df == 8


def test_starts_of_their_own_are_further_arms_of_the_noise() -> None:
    """As where arms differ in size, so that no two of them begin with the same weights."""
    study = Study(4, a=2.0, b=1.0)
    for seed in range(4):
        study.scores[f"v-{seed}"] = 40.0 + seed * (-1) ** seed
        study.seeds[f"v-{seed}"] = seed
        study.bare[f"b-{seed}"] = f"v-{seed}"
    found = study.gains()
    table = study.table("a", "b", "u", "v")
    assert found["60 steps", "a"].estimate.mean == pytest.approx(table[0].mean() - table[2].mean())
    assert found["60 steps", "b"].estimate.mean == pytest.approx(table[1].mean() - table[3].mean())
    assert {one.df for one in found.values()} == {(4 - 1) * (4 - 1)}


def test_starts_that_overlap_are_one_arm_however_they_are_linked() -> None:
    """Those of c, the last, share one with those of a and one with those of b: three arms would count these twice."""
    study = Study(4, a=2.0, b=1.0, c=1.5)
    study.groups = {("60 steps", arm): tuple(f"{arm}-{seed}" for seed in seeds)
                    for arm, seeds in (("a", (0, 1)), ("b", (2, 3)), ("c", (1, 2)))}  # fmt: skip
    found = study.gains()
    assert [found["60 steps", arm].difference.seeds for arm in "abc"] == [(0, 1), (2, 3), (1, 2)]
    # 10 scores of 4 arms and 4 seeds: every arm shares seeds with the untrained one, so 4 + 4 - 1 are fitted.
    assert {one.df for one in found.values()} == {10 - 7}


def test_arms_without_a_start_that_was_measured_are_left_out() -> None:
    study = Study(3, a=2.0, b=1.0)
    for seed in range(3):
        del study.bare[f"b-{seed}"]
    alone = study.gains()
    assert list(alone) == [("60 steps", "a")]
    for seed in range(3):
        study.bare[f"b-{seed}"] = f"gone-{seed}"  # it was never scored
    assert study.gains() == alone
    study.bare = {}
    assert study.gains() == {} == gains({}, {}, {}, {})


def test_a_start_without_a_score_takes_its_seed_along() -> None:
    study = Study(4, a=2.0)
    del study.scores["u-2"]
    one = study.gains()["60 steps", "a"]
    assert one.difference.seeds == (0, 1, 3)
    assert one.estimate.mean == pytest.approx(
        np.mean([study.scores[f"a-{n}"] - study.scores[f"u-{n}"] for n in (0, 1, 3)])
    )


def test_before_the_first_look_of_a_plan_gains_have_no_interval() -> None:
    study = Study(6, a=2.0, b=1.0)
    plans = {"60 steps": Plan((4, 6)), "9 steps": Plan((4, 6), taken=2)}
    before, free = gains(study.groups, study.scores, study.seeds, study.bare, plans), study.gains()
    for key, one in before.items():
        assert one.estimate.mean == free[key].estimate.mean and one.estimate.half is None and one.difference.p is None
        assert one.adjusted is None and one.verdict == "open" and free[key].estimate.half is not None
    looked = gains(study.groups, study.scores, study.seeds, study.bare, {"60 steps": Plan((4, 6), taken=1)})
    assert all(one.estimate.n == 4 and one.estimate.half is not None for one in looked.values())


def test_each_budget_is_corrected_by_itself() -> None:
    study = Study(4, a=2.0, b=1.0)
    first = study.groups
    study.groups = {("9 steps", "b"): first["60 steps", "b"], **first}
    whole = study.gains()
    study.groups = first
    assert {key: one for key, one in whole.items() if key[0] == "60 steps"} == study.gains()
    study.groups = {("9 steps", "b"): first["60 steps", "b"]}
    assert {key: one for key, one in whole.items() if key[0] == "9 steps"} == study.gains()
    later, earlier = (whole[budget, "b"].adjusted for budget in ("60 steps", "9 steps"))
    assert later is not None and earlier is not None and later > earlier, "one more comparison to correct for"


@settings(max_examples=25, deadline=None)
@given(st.lists(POINTS, min_size=12, max_size=12), st.floats(-20, 20), st.permutations(range(3)))
def test_names_order_and_level_change_nothing(points: list[float], shift: float, order: list[int]) -> None:
    study = Study(3, a=0.0, b=0.0, c=0.0)
    study.scores = dict(zip(study.scores, points, strict=True))
    before = study.gains()
    keys = list(study.groups)
    study.groups = {keys[place]: study.groups[keys[place]] for place in order}
    study.scores = {run: score + shift for run, score in study.scores.items()}
    after = study.gains()
    assert after.keys() == before.keys()
    for key, one in before.items():
        assert after[key].estimate.mean == pytest.approx(one.estimate.mean, abs=1e-9)
        if one.noise and one.noise > 1e-3:
            assert after[key].adjusted == pytest.approx(one.adjusted, rel=1e-5, abs=1e-9)
            assert one.adjusted is not None and one.difference.p is not None and one.adjusted >= one.difference.p
