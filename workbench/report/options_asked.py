"""What a reader wants of a report besides what it always holds."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.spec.parts import Budget


@dataclass(frozen=True)
class Asked:
    """`order` adds the almost stochastic order to every comparison; `budget` is what a recommendation is wanted for.

    With `verify` the files of every run are compared with their hashes before they are read.
    """

    order: bool = False
    budget: Budget | None = None
    verify: bool = True

    def budget_under(self, convention: str) -> Budget | None:
        """Return the budget with its FLOPs counted as the report counts them, where it does not say how itself."""
        if self.budget is None or "convention" in self.budget.model_fields_set:
            return self.budget
        return Budget.model_validate({self.budget.unit: self.budget.amount, "convention": convention})
