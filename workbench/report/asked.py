"""What a reader wants of a report besides what it always holds."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.parts import Budget


@dataclass(frozen=True)
class Asked:
    """`order` adds the almost stochastic order to every comparison; `budget` is what a recommendation is wanted for.

    With `verify` the files of every run are compared with their hashes before they are read.
    """

    order: bool = False
    budget: Budget | None = None
    verify: bool = True
