"""Comparisons declared beforehand, as the record of an experiment lists them, and the pairs of two studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import made

from workbench.report.comparison import leaderboard
from workbench.report.load.study_tables import Frames
from workbench.report.results import Leaderboard

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
    found = leaderboard(frames, "probes")
    assert found is not None
    return found, frames
