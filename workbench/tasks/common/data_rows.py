"""What kinds of task share about rows: a hash of their content, which ones are taken, and sentences on odd ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from workbench.errors import plural
from workbench.progress import warn_once
from workbench.rng import seed_of

SHOWN = 3  # rows that are named in a sentence; the others are counted


def fingerprint(*contents: Any) -> str:
    """Return 16 hex digits of a hash over the JSON of everything that decides a score: name, labels, texts, targets."""
    return hashlib.sha256("".join(map(json.dumps, contents)).encode()).hexdigest()[:16]


def random_order(what: str, name: str, count: int) -> list[int]:
    """Return the numbers below `count` in a random order, the same every time for a purpose and a task's name."""
    import numpy as np

    order: list[int] = np.random.default_rng(seed_of(0, what, name)).permutation(count).tolist()
    return order


def aside(order: list[int], share: float) -> tuple[list[int], list[int]]:
    """Divide rows in a random order: return all others, and a share of them to test on, both with at least one row."""
    count = min(max(1, round(share * len(order))), len(order) - 1)
    return order[count:], order[:count]


def odd_rows(places: Sequence[str], tested: str, what: str) -> list[str]:
    """Return a sentence on the rows at these places, which have something odd, with the first few places; [] for none.

    `tested` says among which rows they are, such as "40 to test on".
    """
    have = "has" if len(places) == 1 else "have"
    return [f"{plural(len(places), 'row')} of the {tested} {have} {what}: {first_of(places)}"] if places else []


def first_of(places: Sequence[str], mark: str = "; ") -> str:
    """Return the first few of some places of rows, and how many more there are, for a sentence about these rows."""
    return mark.join(places[:SHOWN]) + (f" and {len(places) - SHOWN:,} more" if len(places) > SHOWN else "")


def warned(name: str, notes: Iterable[str]) -> tuple[str, ...]:
    """Return the notes on the data of a task, after a warning of each."""
    kept = tuple(notes)
    for note in kept:
        warn_once(f"{name}: {note}")
    return kept
