"""The arm that a report recommends for a budget, by interpolation and by bounds beyond the budgets."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Any

import made
import parsed
import pytest
from boards import Law, law, scored_by_laws, study
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from workbench.cli import app
from workbench.errors import InputError
from workbench.report import data_files, recommendation, write
from workbench.report.load import study_tables
from workbench.report.page.document import Page
from workbench.report.recommendation import BEST, Extension, Points
from workbench.report.results import ReportOptions
from workbench.report.statistics.intervals import t_interval
from workbench.spec.parts import Budget
from workbench.store.run_store import RunStore


def test_recommendations_say_when_there_is_none() -> None:
    laws = {"rtd": law(60, 0.2, 0.05), "bert-mlm": law(66, 0.2, 0.05)}
    found, results = study(laws)

    def said(budget: Budget) -> str:
        return recommendation.advise(results, found, budget)

    assert said(Budget(steps=240)).startswith("For 240 steps: take rtd. It is ahead of every other arm, of bert-mlm by")
    assert said(Budget(flops=2.4e11)).startswith("For 2.40×10¹¹ FLOPs (paper): take rtd.")
    assert said(Budget(steps=100)).startswith("For 100 steps: take rtd.")
    assert "FLOPs (matmul): take rtd" in said(Budget(flops=1e11, convention="matmul"))
    beyond = said(Budget(tokens=1.25 * 240 * 4096))
    assert "take rtd" in beyond and "1.25 times beyond what was measured" in beyond
    assert (
        "4 times beyond what was measured: rtd is ahead at the largest budget, but bert-mlm could overtake it"
        in said(Budget(tokens=4 * 240 * 4096))
    )
    assert said(Budget(steps=24_000)).startswith(
        "There is no recommendation for 24,000 steps: that is 100 times beyond"
    )
    assert said(Budget(steps=5)).startswith("There is no recommendation for 5 steps: that is 3 times below")
    few, board_ = study(laws, budgets=(120, 240))
    assert "was not run at 3 budgets with two seeds each" in recommendation.advise(board_, few, Budget(steps=400))


def test_no_recommendation_beyond_the_budgets_against_the_order_measured_there() -> None:
    """The leader at the largest budget may be overtaken, so no arm is recommended.

    rtd will overtake bert-mlm, and a fitted law would predict it.
    """
    scale = 50 * 480 ** (0.3 - 0.05)  # they cross at 480 steps
    found, results = study({"rtd": law(scale, 0.3, 0.01), "bert-mlm": law(50, 0.05, 0.01)})
    told = recommendation.advise(results, found, Budget(steps=1920))
    assert told.startswith("There is no recommendation for 1,920 steps, 8 times beyond what was measured: bert-mlm is")
    assert "rtd could overtake it" in told or "rtd does not measurably slow down" in told
    assert recommendation.advise(results, found, Budget(steps=240)).startswith("For 240 steps: take bert-mlm.")


def test_no_recommendation_between_budgets_where_the_order_changes() -> None:
    """Interpolated at this budget rtd is ahead, but at the budget below bert-mlm is."""
    scores = {"bert-mlm": {60: 60.0, 240: 61.0}, "rtd": {60: 59.0, 240: 71.0}}
    laws = {arm: (lambda arm, steps, seed: scores[arm][steps] + (seed + len(arm)) % 3 / 50) for arm in scores}
    found, results = study(laws, budgets=(60, 240))
    told = recommendation.advise(results, found, Budget(steps=120))
    assert told.startswith("There is no recommendation for 120 steps: rtd and bert-mlm change places between")
    assert recommendation.advise(results, found, Budget(steps=240)).startswith("For 240 steps: take rtd.")


def rising(top: float) -> Any:
    """Return scores that rise ever more slowly towards a ceiling, with a little noise of each run."""

    def score(arm: str, steps: int, seed: int) -> float:
        return top - 12 * (steps / 15) ** -0.9 + random.Random(f"{arm}/{steps}/{seed}").gauss(0, 0.05)

    return score


@pytest.mark.parametrize("budget", [Budget(steps=240), Budget(steps=100), Budget(steps=300)])
@pytest.mark.parametrize(("top", "worth"), [(35.0, False), (70.0, True)])
def test_an_arm_that_is_no_better_than_untrained_is_not_recommended(budget: Budget, top: float, worth: bool) -> None:
    """rtd is far ahead of bert-mlm in all cases.

    It is below or far above the 40 points of the untrained encoders.
    """
    found, results = study({"rtd": rising(top), "bert-mlm": rising(top - 15)})
    told = recommendation.advise(results, found, budget)
    assert ("take rtd" in told) is worth, told
    assert ("no recommendation" in told) is not worth
    assert told.startswith("Not shown ahead of its own untrained encoder on ") is not worth


def test_a_tie_is_no_recommendation() -> None:
    laws = {arm: law(60, 0.2, 0.5) for arm in ("rtd", "bert-mlm", "replace-mlm")} | {"electra-15": law(90, 0.2, 0.1)}
    found, results = study(laws)
    said = recommendation.advise(results, found, Budget(steps=240))
    assert "there is no single arm to recommend: with 4 seeds, " in said and "cannot be told apart" in said
    assert said.endswith("Behind these, and not recommended: electra-15.")
    one, results = study(laws, seeds=1)
    assert "no single arm to recommend" in recommendation.advise(results, one, Budget(steps=240))


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        (Budget(flops=1.29e18, convention="matmul"), "1.29×10¹⁸ FLOPs (matmul)"),
        (Budget(seconds=200), "3 min 20 s"),
        (Budget(tokens=15_625), "15,625 tokens"),
    ],
)
def test_a_budget_is_an_amount_of_the_column_that_it_limits(budget: Budget, text: str) -> None:
    results, found = study({"rtd": law(60, 0.2), "bert-mlm": law(66, 0.2)}, seeds=2)
    said = recommendation.advise(found, results, budget)
    assert said.startswith(f"There is no recommendation for {text}") and "what was measured" in said


# -- reading off
def test_reading_off_by_hand() -> None:
    curve = ((10.0, 50.0), (100.0, 60.0), (1000.0, 64.0))
    assert recommendation.read_off(curve, 100.0) == 60.0
    assert recommendation.read_off(curve, 10**1.5) == pytest.approx(55.0)  # half way in the logarithm
    assert recommendation.read_off(curve, 10**2.25) == pytest.approx(61.0)
    assert recommendation.read_off(curve, 1005.0) == 64.0  # a step's worth too much
    assert recommendation.read_off(curve, 5.0) is None and recommendation.read_off(curve, 1100.0) is None
    assert recommendation.read_off(((7.0, 50.0),), 7.0) == 50.0


@given(st.lists(st.tuples(st.floats(1, 1e18), st.floats(0, 100)), min_size=1, max_size=6), st.floats(0, 1))
def test_what_is_read_off_lies_between_its_neighbours(points: list[tuple[float, float]], share: float) -> None:
    curve = tuple(sorted({x: y for x, y in points}.items()))
    amount = math.exp(math.log(curve[0][0]) + share * (math.log(curve[-1][0]) - math.log(curve[0][0])))
    found = recommendation.read_off(curve, amount)
    ys = [y for _, y in curve]
    assert found is not None and min(ys) - 1e-9 <= found <= max(ys) + 1e-9


# -- on the page
def test_page_holds_all_of_it(tmp_path: Path) -> None:
    levels = {"rtd": (60.0, 0.2), "bert-mlm": (50.0, 0.1)}

    def truth(arm: str, steps: int, task: str, seed: int, tuning: int) -> float:
        if not steps:
            return 40.0
        scale, exponent = levels[arm]
        return 100 - scale * steps**-exponent + random.Random(f"{arm}/{steps}/{seed}").gauss(0, 0.1)

    store, name = made.study(
        tmp_path / "runs", truth, arms=tuple(levels), tasks=("order",), tunings=1, budgets=(8, 16, 32)
    )
    path = store.root / "experiments" / f"{name}.json"
    trials = [
        {
            "objective": arm, "trial": i, "values": {"optim.lr": 1e-3 * (i + 1)}, "run_ids": [], "score": score,
            "seeds": [9],
        }
        for arm in levels for i, score in enumerate((61.0, 64.0, 63.0))
    ]  # fmt: skip
    trials += [{"objective": "rtd", "trial": 3, "values": {}, "run_ids": [], "score": None, "seeds": [9]}]
    made.edit(path, tuning=trials)
    found = study_tables.read_study(RunStore(store.root), name)
    content = Page(data_files.results_of(found, {}, ReportOptions()))
    assert [(r["arm"], r["trials"], r["best"], r["at"]) for r in content.tuning_rows] == [
        ("rtd", 3, 64.0, 2), ("bert-mlm", 3, 64.0, 2),
    ]  # fmt: skip
    tree = parsed.page(write(store, name, tmp_path / "out"))
    [table] = [t for t in tree.find("table") if t.attributes.get("data-name") == "beyond"]
    beyond = " ".join(table.text.split())
    assert "at ten times the largest budget, if no arm gains faster there" in beyond
    assert len(table.find("tr")) == 3  # a row for each arm
    assert (
        "The best of many trials overestimates" in tree.by_id("tuning").text
        and "optim.lr=0.002" in tree.by_id("tuning").text
    )
    words = " ".join(tree.text.split())
    warned = "The best of many trials overestimates: settings were chosen by scores on the same rows"
    assert warned in words  # this is no `tune`, which reports on rows that it did not choose by
    made.edit(path, experiment="tune")
    assert warned not in " ".join(parsed.page(write(store, name, tmp_path / "out")).text.split())
    assert "RTD spent 1.32 times the FLOPs of BERT MLM (matmul" in words
    spent = [r for r in tree.by_id("spending").find("tr") if "1.32" in [cell.text for cell in r.find("td")]]
    assert spent and all(r.find("th")[0].text == "RTD" for r in spent)


def test_a_budget_of_ones_own_on_the_command_line(tmp_path: Path) -> None:
    store, _ = made.study(tmp_path / "runs", made.noisy(made.LEVELS), arms=("rtd", "bert-mlm"), tasks=("order",))
    words = ["report", "ablation", "--runs", str(store.root), "--budget"]
    done = CliRunner().invoke(app, [*words, "flops=1e20", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    said = " ".join(parsed.page(tmp_path / "out" / "index.html").text.split())
    assert "There is no recommendation for 1.00×10²⁰ FLOPs (matmul)" in said, "as the report counts"
    bad = CliRunner().invoke(app, [*words, "much"])
    assert isinstance(bad.exception, InputError) and "--budget 'much'" in str(bad.exception)


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
    assert recommendation.extend(points) is None, why


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
    one = recommendation.extend(scored_by_laws({"a": law}, 5, 4, 0.1, 1.0, "hand")["a"])
    assert one is not None
    assert said in one.refusal and bool(one.refusal) == bool(said)


def test_only_the_leader_at_the_largest_budget_can_be_put_forward() -> None:
    far = {"a": power_law(85, 0.5, 60), "b": power_law(70, 0.5)}
    lead = recommendation.leader_beyond(scored_by_laws(far, 5, 4, 0.1, 1.0, "far"), 2.0**5)
    assert (lead.first, lead.refusal) == ("a", "") and lead.margins["b"].mean > 5
    near = {"a": power_law(71, 0.5, 50), "b": power_law(70, 0.5)}
    told = recommendation.leader_beyond(scored_by_laws(near, 4, 4, 0.1, 1.0, "near"), 2.0**6).refusal
    assert told == "a is ahead at the largest budget, but b could overtake it if its gain per doubling lasted"
    level = {"a": power_law(70, 0.5), "b": power_law(70, 0.5)}
    assert (
        "is not shown to be ahead of"
        in recommendation.leader_beyond(scored_by_laws(level, 5, 4, 0.5, 1.0, "tie"), 2.0**5).refusal
    )
    other = scored_by_laws(far, 5, 4, 0.1, 1.0, "far") | {"b": scored_by_laws(far, 4, 4, 0.1, 1.0, "far")["b"]}
    assert "budgets of the arms are not equal" in recommendation.leader_beyond(other, 2.0**5).refusal


def test_margins_over_several_arms_are_corrected_for_their_number() -> None:
    """The lead over one rival holds at 95 %, that over three equal rivals does not, at 98.3 % each."""
    draws = random.Random("margins")
    noise = {name: [draws.gauss(0, 1.0) for _ in range(4)] for name in ("leader", "rival")}

    def points(law: Law, name: str) -> Points:
        return [(2.0**i, {s: law(float(i)) + noise[name][s] for s in range(4)}) for i in range(3)]

    leader, rival = points(power_law(75, 0.5, 70), "leader"), points(power_law(62, 0.6), "rival")
    one = {"a": leader, "b": rival}
    amounts = [2.0 ** (2 + 0.05 * n) for n in range(1, 66)]
    last = max(amount for amount in amounts if not recommendation.leader_beyond(one, amount).refusal)
    assert amounts[0] < last < amounts[-1]
    several = one | {"c": rival, "d": rival}
    assert recommendation.leader_beyond(several, amounts[0]).refusal == ""
    assert recommendation.leader_beyond(several, last).refusal.startswith("a is ahead at the largest budget, but ")


# -- simulation. Every scenario is seeded, so the counts below are the same on every machine.
def missed(law: Law, budgets: int, seeds: int, noise: float, step: float, times: int) -> tuple[int, int, int]:
    """Return how often the band misses the truth at the largest budget and at ten times it, and the number of bands."""
    stated = at_end = at_ten = 0
    top, ten = step * (budgets - 1), step * (budgets - 1) + math.log2(10)
    for i in range(times):
        one = recommendation.extend(
            scored_by_laws({"a": law}, budgets, seeds, noise, step, (law(1.0), budgets, i))["a"]
        )
        assert one is not None
        if not one.refusal:
            stated += 1
            low, high = one.band(one.amounts[-1])
            at_end += not low <= law(top) <= high
            low, high = one.band(10 * one.amounts[-1])
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
        lead = recommendation.leader_beyond(arms, 2.0**top * ratio)
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


@pytest.mark.parametrize(("full", "times"), [(False, 60), pytest.param(True, 50, marks=pytest.mark.slow)])
def test_bands_cover_whatever_the_ceiling(full: bool, times: int) -> None:
    """Check for every ceiling that at most 5 % of the bands, and two standard errors, miss the truth."""
    for ceiling in CEILINGS:
        end = ten = stated = 0
        for exponent, design in itertools.product((0.15, 0.4, 0.8), designs(full)):
            one, two, count = missed(power_law(ceiling, exponent), *design, times)
            end, ten, stated = end + one, ten + two, stated + count
        print(f"ceiling {ceiling:.0f}: {stated} bands stated, missed at the end {end}, at ten times {ten}")
        allowed = 0.05 * stated + 2 * math.sqrt(0.05 * 0.95 * stated)
        assert stated > 100 and end <= allowed and ten <= allowed


@pytest.mark.parametrize(("full", "times"), [(False, 20), pytest.param(True, 40, marks=pytest.mark.slow)])
def test_the_worse_arm_is_hardly_ever_put_forward(full: bool, times: int) -> None:
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
