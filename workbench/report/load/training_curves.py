"""Training curves in bounded memory: the rows of metrics.jsonl as means over bins of equally many steps."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from workbench.spec.parts import CONVENTIONS
from workbench.store.atomic import LONGEST_LINE, lines_of
from workbench.store.validation import last_line

MOST_BINS = 120
MOST_ROWS = 20_000  # rows read from one file; of a longer one, every k-th row is read
MOST_IN_ALL = 120_000  # rows read from all files of a report together, but at least FEWEST_ROWS from each
FEWEST_ROWS = 16
END_ROWS = 8  # of a thinned curve, in the last tenth of the log, by which the end of training is judged
END_SHARE = 0.1
TYPICAL_ROW = 500  # bytes

PLACE = ("step", "tokens", "seconds")
FLOPS = {name: f"flops.{name}" for name in CONVENTIONS}
NUMBERS = (int, float)
LARGEST = sys.float_info.max
PEAK = "device_memory_bytes"  # the largest amount since the process began, so a mean over a resumption means nothing


@dataclass
class Bin:
    """Sums of the metrics logged in neighbouring steps, with a count for each, since some rows may lack a metric.

    `peak` is the largest value of the metric PEAK, 0 if no row has it.
    """

    rows: int = 0
    first: int = 0
    last: int = 0
    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    peak: float = 0.0

    def add(self, row: dict[str, float], step: int) -> None:
        """Add one logged row."""
        self.first, self.last = (step if not self.rows else min(self.first, step)), max(self.last, step)
        self.rows += 1
        for name, value in row.items():
            self.sums[name] += value
            self.counts[name] += 1
        self.peak = max(self.peak, row.get(PEAK, 0.0))

    def join(self, other: Bin) -> None:
        """Add the rows of another bin."""
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.rows += other.rows
        for name, value in other.sums.items():
            self.sums[name] += value
            self.counts[name] += other.counts[name]
        self.peak = max(self.peak, other.peak)

    def mean(self) -> dict[str, float]:
        """Return the mean of each metric over the rows that have it, and of PEAK the largest value."""
        means = {name: total / self.counts[name] for name, total in self.sums.items()}
        return means | ({PEAK: self.peak} if PEAK in means else {})


@dataclass(frozen=True)
class Curve:
    """A training curve as means over bins: `rows` of {"step", "first_step", "last_step", "rows", metric...}.

    `last` is the last row that was read, `width` the number of steps in a bin, and every `every`-th row was read.
    `skipped` counts unreadable lines, except the last line of the file: a killed run may leave it incomplete, which is
    not a fault.
    """

    rows: list[dict[str, float]]
    last: dict[str, float]
    width: int
    every: int
    skipped: int


def flat(row: Any) -> dict[str, float] | None:
    """Return the finite numbers of one logged row, FLOPs as `flops.<convention>`; None if it is not a row."""
    if not isinstance(row, dict):
        return None
    # A large report has millions of numbers, hence no call for each. Infinity, NaN and bool are dropped.
    numbers = {k: float(v) for k, v in row.items() if type(v) in NUMBERS and -LARGEST <= v <= LARGEST}
    if "step" not in numbers:
        return None
    flops = row.get("flops")
    if isinstance(flops, dict):
        for name, value in flops.items():
            if name in FLOPS and type(value) in NUMBERS and -LARGEST <= value <= LARGEST:
                numbers[FLOPS[name]] = float(value)
    return numbers


def rows_of_each(files: int) -> int:
    """Return how many rows of each log a report on so many runs reads."""
    return min(MOST_ROWS, max(FEWEST_ROWS, MOST_IN_ALL // max(1, files)))


def read(path: Path, most: int = MOST_ROWS) -> Curve:
    """Return the curve of a metrics.jsonl file of any length, from about `most` of its rows.

    With fewer than MOST_BINS rows, the curve is thinned: END_ROWS of them are from the last tenth of the log, and the
    others are spread over all that comes before. Raises OSError if the file cannot be read.
    """
    every = max(1, math.ceil(path.stat().st_size / (most * TYPICAL_ROW)))
    if every > 1 and most < MOST_BINS:
        return _thinned(path, most)
    bins: dict[int, Bin] = {}
    width, skipped, last = 1, 0, {}
    bad_tail = False
    with path.open("rb") as file:
        for line in itertools.islice(lines_of(file), 0, None, every):
            skipped += bad_tail  # the bad line before was not the last one
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


def _thinned(path: Path, most: int) -> Curve:
    """Return a curve of single rows, found at places in the file of which only their lines are read."""
    size = path.stat().st_size
    end = int((1 - END_SHARE) * size)
    before = most - END_ROWS
    places = [end * number // before for number in range(before)]
    places += [end + (size - end) * number // END_ROWS for number in range(END_ROWS - 1)]
    with path.open("rb") as file:
        lines = [line for line in (_line_at(file, place) for place in places) if line.endswith(b"\n")]
        lines += filter(None, [last_line(file)[0]])
    parsed = [_parse(line) for line in lines]
    by_step = {int(row["step"]): row for row in parsed if row is not None}
    rows = [by_step[step] | {"first_step": step, "last_step": step, "rows": 1} for step in sorted(by_step)]
    last = by_step[max(by_step)] if by_step else {}
    return Curve(rows, last, 1, 1, sum(row is None for row in parsed))


def _line_at(file: BinaryIO, place: int) -> bytes:
    """Return the first line of a file that begins at a place or after it."""
    file.seek(max(0, place - 1))
    if place:
        file.readline(LONGEST_LINE)
    return file.readline(LONGEST_LINE)


def _parse(line: bytes) -> dict[str, float] | None:
    try:
        return flat(json.loads(line))
    except (ValueError, RecursionError):
        return None


def _halved(bins: dict[int, Bin]) -> dict[int, Bin]:
    """Return half as many bins, each joined from two neighbours."""
    joined: dict[int, Bin] = {}
    for key in sorted(bins):
        if key // 2 in joined:
            joined[key // 2].join(bins[key])
        else:
            joined[key // 2] = bins[key]
    return joined
