"""The comparison of the arms under each convention of counting FLOPs."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from compute_studies import law, study

from workbench.report.comparison import spending
from workbench.report.page import by_convention


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
