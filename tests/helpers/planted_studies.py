"""Studies with planted levels, and what is said of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import made
import pandas as pd

from workbench.report.comparison import leaderboard
from workbench.report.load.study_tables import Frames
from workbench.report.page import warnings
from workbench.report.results import Leaderboard, Verdict
from workbench.report.verdict import verdict_of


def noise_of(levels: Mapping[str, float], study: int) -> Callable[..., float]:
    """Scores whose noise differs from study to study."""

    def truth(arm: str, steps: int, task: str, seed: int, tuning: int) -> float:
        draws = random.Random(f"{study}/{arm}/{seed}/{task}")
        shared = random.Random(f"{study}/{seed}").gauss(0, 1.0)
        fine = random.Random(f"{study}/{arm}/{seed}/{task}/{tuning}").gauss(0, 0.8)
        return levels[arm] + shared + draws.gauss(0, 0.5) + fine

    return truth


def judged(
    levels: Mapping[str, float], bag: float | None = None, seeds: int = 5
) -> tuple[Leaderboard, Frames, Verdict, str]:
    """A study, its verdict, and what stands under "Before you rely on it"."""
    arms = tuple(arm for arm in levels if arm != "untrained")
    frames = made.in_memory(noise_of(levels, 3), arms, seeds)
    if bag is not None:
        rows = [{"run_id": "", "task": task, "baseline": "bag-of-words", "value": bag} for task in made.PROBES]
        frames = replace(frames, baselines=pd.DataFrame(rows))
    found = leaderboard(frames, "probes")
    assert found is not None
    told = " ".join(each.reason for each in warnings.cautions(frames, [found], {}))
    return found, frames, verdict_of(found, "objective"), told
