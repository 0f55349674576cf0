"""Training curves in bounded memory: metrics.jsonl becomes means over bins of equally many steps."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_BINS = 120
MOST_ROWS = 20_000  # read from one file; a longer one is read at every k-th row
TYPICAL_ROW = 500  # bytes

PLACE = ("step", "tokens", "seconds")
CONVENTIONS = ("paper", "paper-sparse", "matmul")


@dataclass
class Bin:
    """Sums of what was logged in some neighbouring steps; a metric may be undefined in some of them."""

    rows: int = 0
    first: int = 0
    last: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, row: dict[str, float], step: int) -> None:
        self.first, self.last = (step if not self.rows else min(self.first, step)), max(self.last, step)
        self.rows += 1
        for name, value in row.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0) + 1

    def join(self, other: Bin) -> None:
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.rows += other.rows
        for name, value in other.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0) + other.counts[name]

    def mean(self) -> dict[str, float]:
        return {name: total / self.counts[name] for name, total in self.sums.items()}


@dataclass(frozen=True)
class Curve:
    """Means over bins: `rows` of {"step", "first_step", "last_step", "rows", metric...}; `last` is the last row read.

    `width` is the number of steps in a bin, `every` says that each k-th row was read, `skipped` counts unreadable
    lines before the last; a torn last line is what a killed run leaves and is no fault.
    """

    rows: list[dict[str, float]]
    last: dict[str, float]
    width: int
    every: int
    skipped: int


def flat(row: Any) -> dict[str, float] | None:
    """The finite numbers of one logged row, FLOPs as `flops.<convention>`; None if it is no row at all."""
    if not isinstance(row, dict) or not _finite(row.get("step")):
        return None
    numbers = {str(k): float(v) for k, v in row.items() if _finite(v)}
    flops = row.get("flops")
    if isinstance(flops, dict):
        numbers |= {f"flops.{k}": float(flops[k]) for k in CONVENTIONS if _finite(flops.get(k))}
    return numbers


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def read(path: Path) -> Curve:
    """The curve of one metrics.jsonl, whatever its length. Raises OSError when the file cannot be read."""
    every = max(1, math.ceil(path.stat().st_size / (MOST_ROWS * TYPICAL_ROW)))
    bins: dict[int, Bin] = {}
    width, skipped, last = 1, 0, {}
    bad_tail = False
    with path.open("rb") as lines:
        for index, line in enumerate(lines):
            if index % every:
                continue
            skipped += bad_tail  # a bad line was not the last after all
            row = _parse(line)
            bad_tail = row is None
            if row is None:
                continue
            last, step = row, int(row["step"])
            bins.setdefault(max(0, step - 1) // width, Bin()).add(row, step)
            while len(bins) > MOST_BINS:
                width *= 2
                bins = _halved(bins)
    ordered = [bins[key] for key in sorted(bins)]
    rows = [b.mean() | {"first_step": b.first, "last_step": b.last, "rows": b.rows} for b in ordered]
    return Curve(rows, last, width, every, skipped)


def _parse(line: bytes) -> dict[str, float] | None:
    try:
        return flat(json.loads(line))
    except (ValueError, RecursionError):
        return None


def _halved(bins: dict[int, Bin]) -> dict[int, Bin]:
    joined: dict[int, Bin] = {}
    for key in sorted(bins):
        if key // 2 in joined:
            joined[key // 2].join(bins[key])
        else:
            joined[key // 2] = bins[key]
    return joined
