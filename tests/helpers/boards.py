"""Boards of reports with scores by hand, and studies whose scores have planted levels or follow laws."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import made
import pandas as pd

from workbench.report.comparison import compare, leaderboard, leaderboards
from workbench.report.load.study_tables import Frames, read_study
from workbench.report.page import warnings
from workbench.report.recommendation import BEST, Points
from workbench.report.results import SPENT, Cell, Leaderboard, Verdict
from workbench.report.statistics.group_sequential import Family, Plan, looks
from workbench.report.statistics.paired_comparison import Compared, pairwise
from workbench.report.verdict import verdict_of
from workbench.store.run_store import RunStore

BUDGET = "60 steps"


def cell(
    arm: str, scores: Sequence[float] | Mapping[int, float], budget: str = BUDGET, spent: float = 1e9,
    gain: Compared | None = None,
) -> Cell:  # fmt: skip
    """One arm at a budget, with a run for each seed, which spent this much of everything."""
    of_seed = dict(scores) if isinstance(scores, Mapping) else dict(enumerate(scores))
    runs = tuple(f"{arm}-{budget}-s{seed}" for seed in sorted(of_seed))
    return Cell(arm, budget, of_seed, runs, dict.fromkeys(SPENT, spent), gain)


def gain(by: float, noise: float = 0.1, seeds: int = 5) -> Compared:
    """How far an arm is ahead of its untrained encoder: claimed where that is much more than the noise."""
    wobble = [noise * (-1) ** s * (1 + s) for s in range(seeds)]
    arms = {"arm": {s: 50 + by + wobble[s] for s in range(seeds)}, "untrained": dict.fromkeys(range(seeds), 50.0)}
    return pairwise(arms, family=[("arm", "untrained")])["arm", "untrained"]


def board(
    cells: Iterable[Cell], declared: Iterable[tuple[str, str]] = (), plan: Plan | None = None, **changes: Any
) -> Leaderboard:
    """These cells, whose budgets stand in the order of their first one; `declared` are pairs at the last of them."""
    cells = tuple(cells)
    budgets = tuple(dict.fromkeys(one.budget for one in cells))
    family = Family(tuple(declared), plan)
    families = {budgets[-1]: family} if family.pairs else {}
    last = {one.arm: one.scores for one in cells if one.budget == budgets[-1]}
    fields: dict[str, Any] = {
        "suite": "probes", "label": "probe score", "tasks": ("order",), "metrics": {"order": "accuracy"},
        "budgets": budgets, "cells": cells, "untrained": None,
        "pairs": {b: compare([c for c in cells if c.budget == b], family=families.get(b, Family())) for b in budgets},
        "task_cells": (), "noise": {}, "baselines": {}, "missing": {}, "finetunings": (1,), "published": None,
        "run_scores": {r: one.scores[s] for one in cells for s, r in zip(sorted(one.scores), one.runs, strict=True)},
        "families": families, "looks": tuple(looks(plan, last, family.pairs)) if plan else (),
    } | changes  # fmt: skip
    return Leaderboard(**fields)


def board_of(frames: Frames) -> Leaderboard:
    found = leaderboard(frames, "probes")
    assert found is not None
    return found


def board_with_points(store: RunStore, name: str) -> Leaderboard:
    (found,) = leaderboards(read_study(store, name))
    return found


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
    return found, board_of(found)


ELECTRA = (("rtd", "bert-mlm"), ("rtd", "electra-15"))
PAPER = ((4, 0), (1, 0), (2, 0), (3, 0), (4, 3), (4, 1))  # the ablation's, with BERT MLM as arm 0


def contrast(a: str, b: str, seeds: int, seen: int = 0, label: str = "") -> dict[str, Any]:
    runs = {f"runs_{side}": [f"{arm}-60-s{seed}" for seed in range(seeds)] for side, arm in (("a", a), ("b", b))}
    return {"label": label, "a": {"objective": a}, "b": {"objective": b}, "declared": "2026", "seen": seen, **runs}


def declare(pairs: Sequence[tuple[str, str]], seeds: int = 5, **changes: Any) -> list[dict[str, Any]]:
    return [contrast(a, b, seeds, **changes) for a, b in pairs]


def declared_study(
    levels: dict[str, float], rows: Sequence[dict[str, Any]], seeds: int = 5
) -> tuple[Leaderboard, Frames]:
    """Return the board and the tables of a study with these levels, whose record declares these comparisons."""
    frames = made.in_memory(made.noisy(levels, 1.0), tuple(arm for arm in levels if arm != "untrained"), seeds)
    frames = replace(frames, record={"axis": "objective", "contrasts": list(rows)})
    return board_of(frames), frames


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
    found = board_of(frames)
    told = " ".join(each.reason for each in warnings.cautions(frames, [found], {}))
    return found, frames, verdict_of(found, "objective"), told


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
