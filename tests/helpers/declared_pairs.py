"""Comparisons declared beforehand, as the record of an experiment lists them, and the pairs of two studies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

ELECTRA = (("rtd", "bert-mlm"), ("rtd", "electra-15"))
PAPER = ((4, 0), (1, 0), (2, 0), (3, 0), (4, 3), (4, 1))  # the ablation's, with BERT MLM as arm 0


def contrast(a: str, b: str, seeds: int, seen: int = 0, label: str = "") -> dict[str, Any]:
    runs = {f"runs_{side}": [f"{arm}-60-s{seed}" for seed in range(seeds)] for side, arm in (("a", a), ("b", b))}
    return {"label": label, "a": {"objective": a}, "b": {"objective": b}, "declared": "2026", "seen": seen, **runs}


def declare(pairs: Sequence[tuple[str, str]], seeds: int = 5, **changes: Any) -> list[dict[str, Any]]:
    return [contrast(a, b, seeds, **changes) for a, b in pairs]
