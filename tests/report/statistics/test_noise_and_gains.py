"""Scores of each task, gains over untrained encoders, and the noise of a design."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from workbench.report.comparison import every_metric, task_cells
from workbench.report.statistics import power
from workbench.report.statistics.group_sequential import Groups, Plan, gains_over_untrained
from workbench.report.statistics.intervals import example_sd, score_of
from workbench.report.statistics.paired_comparison import Compared, own_noises
from workbench.report.statistics.power import Noise, gap_by_own_noise, gap_of, noise_rows, shown

ARMS, TASKS, SEEDS, TUNINGS = ("a", "b", "c"), ("Zürich", "next"), 4, 3
Tuned = dict[str, dict[str, dict[int, float]]]


class Cell(NamedTuple):
    arm: str
    runs: tuple[str, ...]


def scores(spread: float = 1.0) -> Tuned:
    """Return scores of every run `ARM-SEED` on both tasks, each fine-tuned three times."""
    random = np.random.default_rng(3)
    return {
        f"{arm}-{seed}": {task: {n: 50 + spread * float(random.normal()) for n in range(TUNINGS)} for task in TASKS}
        for arm in ARMS
        for seed in range(SEEDS)
    }


def runs_of(arm: str, seeds: int = SEEDS) -> tuple[str, ...]:
    return tuple(f"{arm}-{seed}" for seed in range(seeds))


def seeds_of(tuned: Tuned) -> dict[str, int]:
    return {run: int(run.split("-")[1]) for run in tuned}


def array(tuned: Tuned, task: str) -> np.ndarray:
    """Return scores (arms, seeds, fine-tunings)."""
    return np.array([[list(tuned[run][task].values()) for run in runs_of(arm)] for arm in ARMS])


# ---- cells ----
@pytest.mark.parametrize("statistic", ["mean", "median"])
def test_the_cell_of_an_arm_holds_mean_median_and_best_over_its_runs(statistic: str) -> None:
    tuned = scores()
    groups = {("60 steps", arm): runs_of(arm) for arm in ARMS[:2]}
    bare = {f"{arm}-{seed}": f"c-{seed}" for arm in ARMS[:2] for seed in range(SEEDS)}
    cells = list(task_cells(tuned, dict.fromkeys(TASKS, "accuracy"), groups, seeds_of(tuned), bare, statistic))
    assert [(cell.task, cell.arm) for cell in cells] == list(itertools.product(TASKS, ARMS[:2]))
    for cell in cells:
        values = array(tuned, cell.task)[ARMS.index(cell.arm)]
        each = values.mean(1) if statistic == "mean" else np.median(values, 1)
        low, high = stats.t.interval(0.95, SEEDS - 1, each.mean(), stats.sem(each))
        assert (cell.estimate.mean, cell.estimate.low, cell.estimate.high) == pytest.approx((each.mean(), low, high))
        assert (cell.median, cell.best) == pytest.approx((np.median(values, 1).mean(), values.max(1).mean()))
        assert (cell.finetunings, cell.metric, cell.budget) == (SEEDS * TUNINGS, "accuracy", "60 steps")
        flat = {run: score_of(tuned, run, cell.task, statistic) for run in tuned}
        assert cell.gain == gains_over_untrained(groups, flat, seeds_of(tuned), bare)["60 steps", cell.arm]
    with pytest.raises(KeyError):
        score_of(tuned, "a-0", "next", "mode")


def test_runs_that_lack_a_task_are_left_out_of_it_alone() -> None:
    tuned = scores()
    for seed in range(SEEDS):
        del tuned[f"b-{seed}"]["next"]
    del tuned["a-1"]["next"]
    groups = {("60 steps", arm): runs_of(arm) for arm in ("empty", "b", "a")} | {("60 steps", "empty"): ()}
    cells = {
        (cell.task, cell.arm): cell
        for cell in task_cells(tuned, dict.fromkeys(TASKS, "x"), groups, seeds_of(tuned), {})
    }
    assert set(cells) == {("Zürich", "a"), ("Zürich", "b"), ("next", "a")}
    assert cells["next", "a"].runs == ("a-0", "a-2", "a-3") and cells["next", "a"].finetunings == 9
    assert cells["Zürich", "a"].runs == runs_of("a") and cells["Zürich", "a"].gain is None


def test_one_run_fine_tuned_once_has_no_interval() -> None:
    tuned = {"a-0": {"next": {5: 61.5}}}
    [cell] = task_cells(tuned, {"next": "accuracy"}, {("60 steps", "a"): ("a-0",)}, {"a-0": 0}, {})
    assert (cell.estimate.mean, cell.median, cell.best, cell.finetunings) == (61.5, 61.5, 61.5, 1)
    assert cell.estimate.half is None and cell.gain is None
    assert list(task_cells({}, {"next": "accuracy"}, {("60 steps", "a"): ("a-0",)}, {}, {})) == []


# ---- every metric ----
def row(run: str, value: float, metric: str = "f1", task: str = "next", split: str = "test") -> dict[str, Any]:
    return {"run_id": run, "task": task, "split": split, "metric": metric, "value": value}


def test_runs_count_alike_however_often_they_were_fine_tuned() -> None:
    rows = [row("a-0", 10), row("a-0", 20), row("a-0", 60), row("a-1", 50), row("a-0", 7, "accuracy")]
    found = every_metric(rows, [Cell("a", runs_of("a", 3)), Cell("b", ("b-0",))], {"next": "accuracy"})
    assert [key for *key, _ in found] == [["next", "test", "f1"], ["next", "test", "accuracy"]]
    f1, accuracy = (estimates for *_, estimates in found)
    assert (f1["a"].mean, f1["a"].n) == (40, 2) and f1["a"].sd == pytest.approx(math.sqrt(200))
    assert (accuracy["a"].mean, accuracy["a"].n, accuracy["a"].half) == (7, 1, None)
    assert f1["b"].n == 0 and math.isnan(f1["b"].mean)
    (*_, medians), _ = every_metric(rows, [Cell("a", runs_of("a", 3))], {"next": "accuracy"}, "median")
    assert (medians["a"].mean, medians["a"].n) == (35, 2)


def test_splits_count_as_metrics_and_tasks_with_only_one_are_left_out() -> None:
    cells = [Cell("a", ("a-0",))]
    two = [row("a-0", 1), row("a-0", 2, split="dev")]
    assert len(every_metric(two, cells, {"next": "f1"})) == 2
    assert every_metric(two[:1], cells, {"next": "f1"}) == []
    assert every_metric(two, cells, {"order": "f1"}) == [], "a task without a headline metric"
    assert every_metric([two[0], row("a-0", math.nan, split="dev")], cells, {"next": "f1"}) == []
    assert every_metric([], cells, {"next": "f1"}) == []


# ---- noise ----
def noise_of(tuned: Tuned, suite: tuple[str, ...] = TASKS, **changes: Any) -> dict[str, Noise]:
    given_to_it: dict[str, Any] = {
        "tasks": TASKS, "arms": {arm: runs_of(arm) for arm in ARMS}, "seeds": seeds_of(tuned), "examples": {},
    } | changes  # fmt: skip
    return {one.name: one for one in noise_rows(tuned, suite, **given_to_it)}


@pytest.mark.parametrize("statistic", ["mean", "median"])
def test_noise_of_the_mean_and_of_each_task_by_hand(statistic: str) -> None:
    tuned = scores()
    found = noise_of(tuned, statistic=statistic)
    assert list(found) == ["mean", *TASKS]
    for name, one in found.items():
        tasks = TASKS if name == "mean" else (name,)
        within = np.mean([array(tuned, task) for task in tasks], axis=0)
        of_runs = np.mean([getattr(np, statistic)(array(tuned, task), 2) for task in tasks], axis=0)
        gaps = [of_runs[a] - of_runs[b] for a, b in itertools.combinations(range(3), 2)]
        assert one.finetuning == pytest.approx(math.sqrt(within.var(2, ddof=1).mean()))
        assert one.pretraining == pytest.approx(math.sqrt(of_runs.var(1, ddof=1).mean()))
        assert one.paired == pytest.approx(math.sqrt(np.mean([gap.var(ddof=1) for gap in gaps])))
        assert (one.n, one.df, one.examples) == (SEEDS, (3 - 1) * (SEEDS - 1), None)
    counted = noise_of(tuned, statistic=statistic, examples=dict.fromkeys(TASKS, 100.0))["next"]
    mean = getattr(np, statistic)(array(tuned, "next"), 2).mean()
    assert counted.examples == pytest.approx(example_sd(mean, 100.0), rel=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-20, 20), min_size=3, max_size=3), st.lists(st.floats(-20, 20), min_size=4, max_size=4))
def test_levels_of_arms_and_seeds_are_no_noise(levels: list[float], shared: list[float]) -> None:
    """A shift of an arm changes nothing; one that all arms of a seed share changes only the noise within arms."""
    tuned = scores()
    for run, tasks in tuned.items():
        shift = levels[ARMS.index(run[0])] + shared[int(run[2:])]
        tuned[run] = {task: {n: value + shift for n, value in seeds.items()} for task, seeds in tasks.items()}
    for name, one in noise_of(scores()).items():
        moved = noise_of(tuned)[name]
        assert (moved.finetuning, moved.paired, moved.gap) == pytest.approx((one.finetuning, one.paired, one.gap))


def test_a_single_task_is_the_mean() -> None:
    tuned = scores()
    [name] = found = noise_of(tuned, ("next",), tasks=("next",))
    assert name == "mean" and found["mean"].paired == noise_of(tuned)["next"].paired


def test_the_gap_grows_with_the_noise_and_with_the_comparisons() -> None:
    one, two = noise_of(scores())["mean"], noise_of(scores(2.0))["mean"]
    assert one.gap is not None and two.gap == pytest.approx(2 * one.gap)
    declared = noise_of(scores(), declared=[("a", "b")])["mean"].gap
    assert declared is not None and declared < one.gap
    assert noise_of(scores(), declared=[("a", "nowhere")])["mean"].gap == one.gap, "no arm of these"


def test_a_run_that_lacks_a_task_counts_for_the_others() -> None:
    tuned = scores()
    del tuned["b-2"]["next"], tuned["c-0"]
    found = noise_of(tuned)
    assert {name: (one.n, one.df) for name, one in found.items()} == {
        "mean": (2, 10 - 3 - 4 + 1), "Zürich": (3, 11 - 3 - 4 + 1), "next": (2, 10 - 3 - 4 + 1),
    }  # fmt: skip


def test_only_fine_tuning_seeds_of_all_tasks_count_within_a_run() -> None:
    tuned: Tuned = {"a-0": {"Zürich": {0: 50.0, 1: 54.0, 2: 99.0}, "next": {0: 60.0, 1: 66.0, 7: 0.0}}}
    found = noise_of(tuned, arms={"a": ("a-0",)})
    assert found["mean"].finetuning == pytest.approx(np.std([55, 60], ddof=1))
    assert (found["mean"].pretraining, found["mean"].paired, found["mean"].gap, found["mean"].n) == (
        None, None, None, 0,
    )  # fmt: skip


def test_without_runs_there_is_no_noise() -> None:
    for one in noise_of({}, examples=dict.fromkeys(TASKS, 100.0)).values():
        assert (one.finetuning, one.pretraining, one.paired, one.examples, one.gap) == (None,) * 5
        assert (one.n, one.df) == (0, 0)


def test_test_examples_are_a_binomial_sample_of_each_accuracy() -> None:
    tuned = scores()
    found = noise_of(tuned, examples={"Zürich": 400.0, "next": 100.0})
    each = [
        stats.binom.std(rows, array(tuned, task).mean() / 100) / rows * 100
        for task, rows in zip(TASKS, (400, 100), strict=True)
    ]
    assert [found[task].examples for task in TASKS] == pytest.approx(each)
    assert found["mean"].examples == pytest.approx(math.sqrt(each[0] ** 2 + each[1] ** 2) / 2)
    one = noise_of(tuned, examples={"next": 100.0})
    assert one["mean"].examples is None is one["Zürich"].examples and one["next"].examples == pytest.approx(each[1])
    assert noise_of(tuned, examples={"Zürich": 400.0, "next": 0.0})["mean"].examples is None


def test_the_gap_of_a_pair_under_a_plan_is_that_of_its_last_look() -> None:
    """At the last look of three, a part of the 5 % is spent already, and there are more seeds than there are scores."""
    random = np.random.default_rng(2)
    arms = {arm: dict(enumerate(random.normal(60, sd, 4).tolist())) for arm, sd in (("a", 5), ("b", 1), ("c", 1))}
    own, plan = own_noises(arms)[frozenset("ab")], Plan((4, 6, 9))
    found = gap_of(arms, "a", "b", 4, None, plan)
    assert found == gap_by_own_noise(own, 9, 2, 1 - (6 / 9) ** 2) != gap_by_own_noise(own, 9, 2)
    assert gap_of(arms, "a", "b", 4, ((0, 1),), None) == gap_by_own_noise(own, 4, 1)
    assert gap_of({"a": {0: 1.0, 1: 2.0}, "b": {0: 3.0}}, "a", "b", 1, None, None) == 0.0


def noisy(spread: dict[str, float]) -> Tuned:
    """Return scores of runs whose arms differ in noise."""
    random = np.random.default_rng(5)
    return {
        f"{arm}-{seed}": {"next": {0: 50 + sd * float(random.normal())}}
        for arm, sd in spread.items()
        for seed in range(SEEDS)
    }


@pytest.mark.parametrize("plan", [None, Plan((4, 6, 9))])
@pytest.mark.parametrize("declared", [(), [("a", "b")]])
def test_the_widest_gap_is_that_of_the_noisiest_pair(declared: list[tuple[str, str]], plan: Plan | None) -> None:
    tuned = noisy({"a": 9.0, "b": 1.0, "c": 1.0})
    found = noise_of(tuned, ("next",), tasks=("next",), declared=declared, plan=plan)["mean"]
    arms = {arm: {seed: tuned[f"{arm}-{seed}"]["next"][0] for seed in range(SEEDS)} for arm in ARMS}
    pairs, family = declared or list(itertools.combinations(ARMS, 2)), ((0, 1),) if declared else None
    gaps = {pair: gap_of(arms, *pair, SEEDS, family, plan) for pair in pairs}
    assert found.gap is not None and found.widest_gap == max(gaps.values()) > found.gap


@pytest.mark.parametrize("declared", [(), [("a", "b")]])
def test_the_gap_of_a_plan_is_that_of_all_its_looks(declared: list[tuple[str, str]]) -> None:
    plan, tuned = Plan((4, 6, 9)), noisy({"a": 2.0, "b": 2.0, "c": 2.0})
    found = noise_of(tuned, ("next",), tasks=("next",), declared=declared, plan=plan)["mean"]
    design = shown(3, plan.seeds, ((0, 1),) if declared else None)
    assert found.paired is not None and design is not None and found.gap == found.paired * design.gap
    two = noise_of(tuned, ("next",), tasks=("next",), arms={arm: runs_of(arm) for arm in "ab"}, plan=Plan((2, 3)))
    assert two["mean"].gap is None is two["mean"].widest_gap, "too few degrees of freedom at the last look"


def test_arms_with_the_same_noise_have_no_wider_gap() -> None:
    """Differences of these residuals have one variance for every pair of arms."""
    residuals = {"a": (1, 1, -1, -1), "b": (1, -1, 1, -1), "c": (1, -1, -1, 1)}
    tuned: Tuned = {
        f"{arm}-{s}": {"next": {0: 50.0 + x}} for arm, each in residuals.items() for s, x in enumerate(each)
    }
    found = noise_of(tuned, ("next",), tasks=("next",))["mean"]
    assert found.gap is not None and found.widest_gap == found.gap
    assert noise_of(scores(0.0))["mean"].gap is None, "without noise there is nothing to tell a gap by"


@pytest.mark.parametrize("seed", range(4))
def test_the_widest_of_many_pairs_is_found_without_computing_all(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arms of nine kinds of noise; few pairs have both much noise and few degrees of freedom."""
    random = np.random.default_rng(seed)
    tuned: Tuned = {
        f"{arm}-{s}": {"next": {0: 50 + (1 + number % 9) * float(random.normal())}}
        for number, arm in enumerate("abcdefghijkl")
        for s in range(SEEDS)
    }
    arms = {arm: {s: tuned[f"{arm}-{s}"]["next"][0] for s in range(SEEDS)} for arm in "abcdefghijkl"}
    gaps = {pair: gap_of(arms, *pair, SEEDS, None, None) for pair in itertools.combinations(arms, 2)}
    computed: list[float] = []

    def counted(own: Any, *more: Any) -> float:
        computed.append(gap_by_own_noise(own, *more))
        return computed[-1]

    monkeypatch.setattr(power, "gap_by_own_noise", counted)
    found = noise_of(tuned, ("next",), tasks=("next",), arms={arm: runs_of(arm) for arm in arms})["mean"]
    assert found.widest_gap == max(gaps.values())
    assert len(computed) < 20 < len(gaps)


def test_declared_arms_that_share_no_two_seeds_have_no_noise_of_their_own() -> None:
    """The gap of a plan is known by the noise of the other arms, before the declared ones have two seeds in common."""
    tuned = noisy({"a": 2.0, "b": 2.0, "c": 2.0})
    for seed in (1, 2, 3):
        del tuned[f"a-{seed}"]
    arms = {arm: tuple(run for run in runs_of(arm) if run in tuned) for arm in ARMS}
    found = noise_of(tuned, ("next",), tasks=("next",), arms=arms, declared=[("a", "b")], plan=Plan((4, 6, 9)))["mean"]
    assert found.gap is not None and found.widest_gap == found.gap


@pytest.mark.parametrize("plan", [None, Plan((4, 6, 9))])
def test_arms_without_any_noise_have_no_smallest_gap(plan: Plan | None) -> None:
    """Noise that was not observed may still exist, so that 0 is not claimed, with fixed seeds or looks of a plan."""
    tuned = {r: {"next": {0: 50.0 + place}} for place, arm in enumerate("abc") for r in runs_of(arm)}
    found = noise_of(tuned, ("next",), tasks=("next",), plan=plan)["mean"]
    assert found.paired == 0 and found.gap is None and found.widest_gap is None
    apart = {"a": ("a-0",), "b": ("b-1",), "c": ("c-2",)}  # no two arms have a seed in common
    found = noise_of(noisy({"a": 2.0, "b": 2.0, "c": 2.0}), ("next",), tasks=("next",), arms=apart, plan=plan)["mean"]
    assert found.paired is None and found.gap is None and found.widest_gap is None


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
        return gains_over_untrained(self.groups, self.scores, self.seeds, self.bare)

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
    assert [found["60 steps", arm].seeds for arm in "abc"] == [(0, 1), (2, 3), (1, 2)]
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
    assert study.gains() == {} == gains_over_untrained({}, {}, {}, {})


def test_a_start_without_a_score_takes_its_seed_along() -> None:
    study = Study(4, a=2.0)
    del study.scores["u-2"]
    one = study.gains()["60 steps", "a"]
    assert one.seeds == (0, 1, 3)
    assert one.estimate.mean == pytest.approx(
        np.mean([study.scores[f"a-{n}"] - study.scores[f"u-{n}"] for n in (0, 1, 3)])
    )


def test_before_the_first_look_of_a_plan_gains_have_no_interval() -> None:
    study = Study(6, a=2.0, b=1.0)
    plans = {"60 steps": Plan((4, 6)), "9 steps": Plan((4, 6), taken=2)}
    before, free = gains_over_untrained(study.groups, study.scores, study.seeds, study.bare, plans), study.gains()
    for key, one in before.items():
        assert one.estimate.mean == free[key].estimate.mean and one.estimate.half is None and one.p is None
        assert one.adjusted is None and one.verdict == "open" and free[key].estimate.half is not None
        assert one.flip is one.order is None and free[key].flip is not None
    looked = gains_over_untrained(
        study.groups, study.scores, study.seeds, study.bare, {"60 steps": Plan((4, 6), taken=1)}
    )
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
            assert one.adjusted is not None and one.p is not None and one.adjusted >= one.p
