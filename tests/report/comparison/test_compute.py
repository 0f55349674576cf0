"""Score over compute: interpolation, conventions that disagree, and recommendations."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import made
import parsed
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.report import write
from workbench.report.comparison import compute, spending
from workbench.report.comparison.boards import Board, board
from workbench.report.figures import tuned
from workbench.report.load import frames
from workbench.report.page import advice, by_convention, checks
from workbench.spec.parts import Budget
from workbench.store.run_store import RunStore

BUDGETS = (15, 30, 60, 120, 240)


def law(scale: float, exponent: float, noise: float = 0.0) -> Any:
    """Return scores on a power law of steps, with noise of the seed and of the run."""

    def score(arm: str, steps: int, seed: int) -> float:
        shared = random.Random(f"{seed}").gauss(0, noise)
        own = random.Random(f"{arm}/{steps}/{seed}").gauss(0, noise)
        return 100 - scale * float(steps) ** -exponent * math.exp((shared + own) / 40)

    return score


def study(
    laws: Mapping[str, Any], seeds: int = 4, budgets: tuple[int, ...] = BUDGETS, **more: Any
) -> tuple[Any, Board]:
    def truth(arm: str, steps: int, task: str, seed: int, tuning: int) -> float:
        return float(laws[arm](arm, steps, seed)) if steps else 40.0

    found = made.in_memory(truth, tuple(laws), seeds, 1, budgets, **more)
    results = board(found, "probes")
    assert results is not None
    return found, results


# -- reading off


def test_reading_off_by_hand() -> None:
    curve = ((10.0, 50.0), (100.0, 60.0), (1000.0, 64.0))
    assert compute.read_off(curve, 100.0) == 60.0
    assert compute.read_off(curve, 10**1.5) == pytest.approx(55.0)  # half way in the logarithm
    assert compute.read_off(curve, 10**2.25) == pytest.approx(61.0)
    assert compute.read_off(curve, 1005.0) == 64.0  # a step's worth too much
    assert compute.read_off(curve, 5.0) is None and compute.read_off(curve, 1100.0) is None
    assert compute.read_off(((7.0, 50.0),), 7.0) == 50.0


@given(st.lists(st.tuples(st.floats(1, 1e18), st.floats(0, 100)), min_size=1, max_size=6), st.floats(0, 1))
def test_what_is_read_off_lies_between_its_neighbours(points: list[tuple[float, float]], share: float) -> None:
    curve = tuple(sorted({x: y for x, y in points}.items()))
    amount = math.exp(math.log(curve[0][0]) + share * (math.log(curve[-1][0]) - math.log(curve[0][0])))
    found = compute.read_off(curve, amount)
    ys = [y for _, y in curve]
    assert found is not None and min(ys) - 1e-9 <= found <= max(ys) + 1e-9


# -- equal compute, under every convention


def prices(arm: str) -> Mapping[str, float]:
    """Return the FLOPs per step of an arm: rtd costs three times as much in matrix products, otherwise the same."""
    return {"paper": 1e9, "paper-sparse": 1e9, "matmul": {"rtd": 3e9}.get(arm, 1e9)}


def test_a_ranking_that_hangs_on_the_convention_is_shown_under_all() -> None:
    found, results = study({"rtd": law(60, 0.2, 0.05), "bert-mlm": law(66, 0.2, 0.05)}, price=prices)
    held, sentence = by_convention.under_each(results, found)
    assert "do not rank the arms alike" in sentence
    first = {h.convention: h.order[0] for h in held}
    assert first == {"paper": "rtd", "paper-sparse": "rtd", "matmul": "bert-mlm"}
    by = {h.convention: h for h in held}
    assert by["matmul"].amount == pytest.approx(240e9) and by["matmul"].ratio == {"rtd": 3.0, "bert-mlm": 1.0}
    at_80 = [
        60 + math.log(80 / 60) / math.log(2) * 0 for _ in range(1)
    ]  # rtd has 80 steps for 240e9, between 60 and 120
    assert len(at_80) == 1
    runs = results.run_scores
    share = math.log(80 / 60) / math.log(120 / 60)
    expected = [runs[f"rtd-60-s{s}"] + share * (runs[f"rtd-120-s{s}"] - runs[f"rtd-60-s{s}"]) for s in range(4)]
    assert by["matmul"].scores["rtd"].mean == pytest.approx(sum(expected) / 4)
    assert by["matmul"].sentence.startswith("bert-mlm is ahead of rtd")


def test_conventions_that_agree_are_not_shown() -> None:
    found, results = study({"rtd": law(60, 0.2), "bert-mlm": law(66, 0.2)})
    assert by_convention.under_each(results, found) == ([], "")


def test_arms_that_are_called_equal_are_compared_under_the_convention_of_their_budget() -> None:
    """Steps are whole numbers, so arms at one budget differ by up to two percent (`spec.experiment.EQUAL_WITHIN`)."""

    def almost(arm: str) -> Mapping[str, float]:
        return {"paper": 1.015e9 if arm == "rtd" else 1e9, "paper-sparse": 1e9, "matmul": 3e9 if arm == "rtd" else 1e9}

    found, results = study({"rtd": law(60, 0.2), "bert-mlm": law(66, 0.2)}, budgets=(60,), price=almost)
    assert spending.compute_text(found).startswith("equal: the arms\u2019 FLOPs (paper) differ by less than 1.5 %")
    held, _ = by_convention.under_each(results, found)
    assert {h.convention: len(h.order) for h in held} == {"paper": 2, "paper-sparse": 2, "matmul": 1}
    assert next(h.sentence for h in held if h.convention == "paper").startswith("rtd is first")


def test_one_budget_cannot_be_read_off_elsewhere() -> None:
    found, results = study({"rtd": law(60, 0.2), "bert-mlm": law(66, 0.2)}, budgets=(60,), price=prices)
    held, _ = by_convention.under_each(results, found)
    assert {h.convention: set(h.scores) for h in held}["matmul"] == {"bert-mlm"}
    assert "no two arms" in next(h.sentence for h in held if h.convention == "matmul")


# -- what to recommend


def test_recommendations_say_when_there_is_none() -> None:
    laws = {"rtd": law(60, 0.2, 0.05), "bert-mlm": law(66, 0.2, 0.05)}
    found, results = study(laws)

    def said(budget: Budget | None) -> str:
        return advice.advise(results, found, budget, "paper")

    assert said(None).startswith("For 240 steps: take rtd. It is ahead of every other arm, of bert-mlm by")
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
    assert "was not run at 3 budgets with two seeds each" in advice.advise(board_, few, Budget(steps=400), "paper")


def test_no_recommendation_beyond_the_budgets_against_the_order_measured_there() -> None:
    """The leader at the largest budget may be overtaken, so no arm is recommended.

    rtd will overtake bert-mlm, and a fitted law would predict it.
    """
    scale = 50 * 480 ** (0.3 - 0.05)  # they cross at 480 steps
    found, results = study({"rtd": law(scale, 0.3, 0.01), "bert-mlm": law(50, 0.05, 0.01)})
    told = advice.advise(results, found, Budget(steps=1920), "paper")
    assert told.startswith("There is no recommendation for 1,920 steps, 8 times beyond what was measured: bert-mlm is")
    assert "rtd could overtake it" in told or "rtd does not measurably slow down" in told
    assert advice.advise(results, found, Budget(steps=240), "paper").startswith("For 240 steps: take bert-mlm.")


def test_no_recommendation_between_budgets_where_the_order_changes() -> None:
    """Interpolated at this budget rtd is ahead, but at the budget below bert-mlm is."""
    scores = {"bert-mlm": {60: 60.0, 240: 61.0}, "rtd": {60: 59.0, 240: 71.0}}
    laws = {arm: (lambda arm, steps, seed: scores[arm][steps] + (seed + len(arm)) % 3 / 50) for arm in scores}
    found, results = study(laws, budgets=(60, 240))
    told = advice.advise(results, found, Budget(steps=120), "paper")
    assert told.startswith("There is no recommendation for 120 steps: rtd and bert-mlm change places between")
    assert advice.advise(results, found, Budget(steps=240), "paper").startswith("For 240 steps: take rtd.")


def rising(top: float) -> Any:
    """Return scores that rise ever more slowly towards a ceiling, with a little noise of each run."""

    def score(arm: str, steps: int, seed: int) -> float:
        return top - 12 * (steps / 15) ** -0.9 + random.Random(f"{arm}/{steps}/{seed}").gauss(0, 0.05)

    return score


@pytest.mark.parametrize("budget", [None, Budget(steps=100), Budget(steps=300)])
@pytest.mark.parametrize(("top", "worth"), [(35.0, False), (70.0, True)])
def test_an_arm_that_is_no_better_than_untrained_is_not_recommended(
    budget: Budget | None, top: float, worth: bool
) -> None:
    """rtd is far ahead of bert-mlm in all cases.

    It is below or far above the 40 points of the untrained encoders.
    """
    found, results = study({"rtd": rising(top), "bert-mlm": rising(top - 15)})
    told = advice.advise(results, found, budget, "paper")
    assert ("take rtd" in told) is worth, told
    assert ("no recommendation" in told) is not worth
    assert told.startswith("Not shown ahead of its own untrained encoder on ") is not worth


def test_a_tie_is_no_recommendation() -> None:
    laws = {arm: law(60, 0.2, 0.5) for arm in ("rtd", "bert-mlm", "replace-mlm")} | {"electra-15": law(90, 0.2, 0.1)}
    found, results = study(laws)
    said = advice.advise(results, found, None, "paper")
    assert "there is no single arm to recommend: with 4 seeds, " in said and "cannot be told apart" in said
    assert said.endswith("Behind these, and not recommended: electra-15.")
    one, results = study(laws, seeds=1)
    assert "no single arm to recommend" in advice.advise(results, one, None, "paper")


# -- on the page


@pytest.mark.parametrize(
    ("ratio", "said"), [(1.0, ""), (1.04, ""), (1.2, "rtd trained 1.20 times as long as bert-mlm")]
)
def test_seconds_that_the_clock_did_not_keep_are_marked(ratio: float, said: str) -> None:
    found, _ = study({"rtd": law(60, 0.2, 0.05), "bert-mlm": law(66, 0.2, 0.05)}, budgets=(240,))
    rows = found.rows("runs")
    for row in rows:
        if row["role"] == "arm":
            row |= {"budget": "60 seconds", "seconds": 60.0 * (ratio if row["arm"] == "rtd" else 1.0)}
    found = replace(found, runs=type(found.runs)(rows))
    results = board(found, "probes")
    assert results is not None
    text = checks.unequal(results, "60 seconds")
    assert said in text and bool(text) == bool(said)


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
    found = frames.read(RunStore(store.root), name)
    assert [(r["arm"], r["trials"], r["best"], r["at"]) for r in tuned.rows(found)] == [
        ("rtd", 3, 64.0, 2), ("bert-mlm", 3, 64.0, 2),
    ]  # fmt: skip
    tree = parsed.page(write(store, name, tmp_path / "out"))
    beyond = " ".join(tree.by_id("beyond-1").text.split())
    assert "points per doubling, last three budgets" in beyond and "No ceiling is fitted" in beyond
    assert len(tree.by_id("beyond-1").find("svg")) >= 2  # a panel for each arm
    assert (
        "The best of many trials overestimates" in tree.by_id("tuning").text
        and "optim.lr=0.002" in tree.by_id("tuning").text
    )
    words = " ".join(tree.text.split())
    assert "Which to take." in words
    warned = "The best of many trials overestimates: settings were chosen by scores on the same rows"
    assert warned in words  # this is no `tune`, which reports on rows that it did not choose by
    made.edit(path, experiment="tune")
    assert warned not in " ".join(parsed.page(write(store, name, tmp_path / "out")).text.split())
    assert "This is not at equal compute: rtd spent 1.32 times the FLOPs of bert-mlm (matmul convention)." in words
    rows = [r.find("th")[0].text for r in tree.by_id("table-1").find("table")[0].find("tr")]
    assert any("rtd" in r and "†" in r for r in rows) and not any("bert-mlm" in r and "†" in r for r in rows)


def test_a_budget_of_ones_own_on_the_command_line(tmp_path: Path) -> None:
    store, _ = made.study(tmp_path / "runs", made.noisy(made.LEVELS), arms=("rtd", "bert-mlm"), tasks=("order",))
    words = [sys.executable, "-m", "workbench", "report", "ablation", "--runs", str(store.root), "--budget"]
    done = subprocess.run([*words, "flops=1e20", "--out", str(tmp_path / "out")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = " ".join(parsed.page(tmp_path / "out" / "index.html").text.split())
    assert "There is no recommendation for 1.00×10²⁰ FLOPs (matmul)" in said, "as the report counts"
    bad = subprocess.run([*words, "much"], capture_output=True, text=True)
    assert bad.returncode == 2 and bad.stderr.count("\n") == 1 and "--budget 'much'" in bad.stderr
