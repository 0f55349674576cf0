"""Minimal pairs as plain data: two sentences, of which a model is to find the first more plausible."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.spec.parts import TasksSpec

CHANCE = {"chance": 50.0}  # of an accuracy that counts ties as half


@dataclass(frozen=True)
class PairSet:
    """Pairs of sentences, and how they are grouped: level -> the group of each pair.

    The headline is the unweighted mean over the groups of the first level of the share of pairs whose `good` sentence
    has the higher score; a tie counts half. `fingerprint` is filled in by `sealed`.
    """

    name: str
    suite: str
    good: tuple[str, ...]
    bad: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]]
    fingerprint: str = ""
    baselines: Mapping[str, float] = field(default_factory=lambda: CHANCE)
    metric: str = "accuracy"
    act: str = "scoring"

    def seeds(self, spec: TasksSpec) -> int:
        """Return 1, as nothing is drawn."""
        return 1

    def settings(self, spec: TasksSpec) -> dict[str, Any]:
        """Return every setting that decides a score."""
        return {"scorers": list(spec.scorers)}


def sealed(
    name: str, suite: str, good: Sequence[str], bad: Sequence[str], groups: Mapping[str, Sequence[str]]
) -> PairSet:
    """Return the pairs with a fingerprint over everything that decides a score."""
    fixed = {level: tuple(each) for level, each in groups.items()}
    assert len(good) == len(bad) and all(len(each) == len(good) for each in fixed.values())
    text = json.dumps([name, list(good), list(bad), fixed])
    fingerprint = hashlib.sha256(text.encode()).hexdigest()[:16]
    return PairSet(name, suite, tuple(good), tuple(bad), fixed, fingerprint)
