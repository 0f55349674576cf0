"""Boards of a report with scores by hand, compared by the report's own rule, without files, tables or figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workbench.report.comparison import compare
from workbench.report.results import SPENT, Cell, Leaderboard
from workbench.report.statistics.group_sequential import Family, Plan, looks
from workbench.report.statistics.paired_comparison import Compared, pairwise

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
