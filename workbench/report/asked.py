"""What a reader wants of a report besides what it always holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Asked:
    """`order` adds the almost stochastic order to every comparison."""

    order: bool = False
