"""Studies whose scores follow laws of the compute that was spent."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

import made

from workbench.report.comparison import leaderboard
from workbench.report.results import Leaderboard

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
) -> tuple[Any, Leaderboard]:
    def truth(arm: str, steps: int, task: str, seed: int, tuning: int) -> float:
        return float(laws[arm](arm, steps, seed)) if steps else 40.0

    found = made.in_memory(truth, tuple(laws), seeds, 1, budgets, **more)
    results = leaderboard(found, "probes")
    assert results is not None
    return found, results
