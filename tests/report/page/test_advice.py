"""Advice: which arm to take for a budget, and when none is recommended."""

from __future__ import annotations

import random
from typing import Any

import pytest
from compute_studies import law, study

from workbench.report.page import advice
from workbench.report.page.advice import amount_of
from workbench.spec.parts import Budget


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


@pytest.mark.parametrize(
    ("budget", "column", "text"),
    [
        (Budget(flops=1.29e18, convention="matmul"), "flops_matmul", "1.29×10¹⁸ FLOPs (matmul)"),
        (Budget(seconds=200), "seconds", "3 min 20 s"),
        (Budget(tokens=15_625), "tokens", "15,625 tokens"),
    ],
)
def test_a_budget_is_an_amount_of_the_column_that_it_limits(budget: Budget, column: str, text: str) -> None:
    amount = amount_of(budget)
    assert (amount.column, amount.value, str(amount)) == (column, budget.amount, text)
