"""The options of a report: the budget that it recommends an arm for, under the report's own count of FLOPs."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.report.report_options import ReportOptions
from workbench.spec.parts import CONVENTIONS, Budget


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_without_a_budget_there_is_none(convention: str) -> None:
    assert ReportOptions().budget_under(convention) is None


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("unit", [{"flops": 1e15}, {"steps": 7}, {"tokens": 2e6}, {"words": 3e5}, {"seconds": 0.5}])
def test_a_budget_counts_as_the_report_does(unit: dict[str, Any], convention: str) -> None:
    found = ReportOptions(budget=Budget.model_validate(unit)).budget_under(convention)
    assert found is not None and found.convention == convention
    assert {found.unit: found.amount} == unit


@pytest.mark.parametrize("own", CONVENTIONS)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_budget_keeps_the_convention_that_it_names(own: str, convention: str) -> None:
    budget = Budget.model_validate({"flops": 1e15, "convention": own})
    assert ReportOptions(budget=budget).budget_under(convention) == budget
