"""Training curves in bounded memory: metrics.jsonl becomes means over bins of equally many steps."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.spec.parts import CONVENTIONS

MOST_BINS = 120
MOST_ROWS = 20_000  # read from one file; a longer one is read at every k-th row
MOST_IN_ALL = 120_000  # read from all files of a report, but MOST_BINS from each
TYPICAL_ROW = 500  # bytes

PLACE = ("step", "tokens", "seconds")
FLOPS = {name: f"flops.{name}" for name in CONVENTIONS}
NUMBERS = (int, float)
LARGEST = sys.float_info.max


@dataclass
class Bin:
    """Sums of what was logged in some neighbouring steps; a metric may be undefined in some of them."""

    rows: int = 0
    first: int = 0
    last: int = 0
    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, row: dict[str, float], step: int) -> None:
        self.first, self.last = (step if not self.rows else min(self.first, step)), max(self.last, step)
        self.rows += 1
        for name, value in row.items():
            self.sums[name] += value
            self.counts[name] += 1

    def join(self, other: Bin) -> None:
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.rows += other.rows
        for name, value in other.sums.items():
            self.sums[name] += value
            self.counts[name] += other.counts[name]

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
    if not isinstance(row, dict):
        return None
    # One expression and no call for each of the million numbers of a large report; infinity, NaN and bool fall out.
    numbers = {k: float(v) for k, v in row.items() if type(v) in NUMBERS and -LARGEST <= v <= LARGEST}
    if "step" not in numbers:
        return None
    flops = row.get("flops")
    if isinstance(flops, dict):
        for name, value in flops.items():
            if name in FLOPS and type(value) in NUMBERS and -LARGEST <= value <= LARGEST:
                numbers[FLOPS[name]] = float(value)
    return numbers


def read(path: Path, most: int = MOST_ROWS) -> Curve:
    """The curve of one metrics.jsonl, whatever its length, from about `most` of its rows.

    Raises OSError when the file cannot be read.
    """
    every = max(1, math.ceil(path.stat().st_size / (most * TYPICAL_ROW)))
    bins: dict[int, Bin] = {}
    width, skipped, last = 1, 0, {}
    bad_tail = False
    with path.open("rb") as lines:
        for line in itertools.islice(lines, 0, None, every):
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
