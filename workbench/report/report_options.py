"""The options of a report."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.spec.parts import Budget


@dataclass(frozen=True)
class ReportOptions:
    """The options of a report, as the user set them.

    `order` adds the almost stochastic order to every comparison. `budget` is the amount of compute for which the
    report recommends an arm. With `verify`, the files of every run are compared with their hashes before they are
    read.
    """

    order: bool = False
    budget: Budget | None = None
    verify: bool = True

    def budget_under(self, convention: str) -> Budget | None:
        """Return the budget, with its FLOPs under the report's convention unless it names one itself."""
        if self.budget is None or "convention" in self.budget.model_fields_set:
            return self.budget
        return Budget.model_validate({self.budget.unit: self.budget.amount, "convention": convention})
