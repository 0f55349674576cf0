"""Scores of arms that follow laws of compute, with noise."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from workbench.report.recommendation import BEST, Points

Law = Callable[[float], float]  # doublings of the smallest budget -> true score


def scored_by_laws(
    laws: Mapping[str, Law], budgets: int, seeds: int, noise: float, step: float, key: object
) -> dict[str, Points]:
    """Return the scores of every arm: its law, noise of the run, and half as much noise shared within a seed."""
    draws = random.Random(str(key))
    shared = [draws.gauss(0, noise / 2) for _ in range(seeds)]
    return {
        arm: [
            (2.0 ** (step * i), {s: min(BEST, law(step * i) + shared[s] + draws.gauss(0, noise)) for s in range(seeds)})
            for i in range(budgets)
        ]
        for arm, law in laws.items()
    }
