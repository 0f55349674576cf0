"""Minimal pairs as plain data: two sentences, of which a model should score the first higher."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from workbench.spec.parts import TasksSpec

CHANCE = {"chance": 50.0}  # accuracy of guessing; ties count half


@dataclass(frozen=True)
class PairSet:
    """Pairs of sentences and their groups: level -> the group of each pair.

    In each group of the first level, the accuracy is the share of pairs whose `good` sentence has the higher score;
    a tie counts half. The headline is the unweighted mean over these groups. `fingerprint` is filled in by
    `pair_set`.
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
        """Return 1, because nothing is drawn at random."""
        return 1

    def settings(self, spec: TasksSpec) -> dict[str, Any]:
        """Return every setting that changes a score."""
        return {"scorers": list(spec.scorers)}

    def to_json(self) -> dict[str, Any]:
        """Return the pairs as plain data, for other processes that score them."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> PairSet:
        """Return the pairs of plain data, as `to_json` returns it and JSON keeps it."""
        groups = {level: tuple(each) for level, each in raw["groups"].items()}
        return cls(**{**raw, "good": tuple(raw["good"]), "bad": tuple(raw["bad"]), "groups": groups})


def pair_set(
    name: str, suite: str, good: Sequence[str], bad: Sequence[str], groups: Mapping[str, Sequence[str]]
) -> PairSet:
    """Return the pairs with a fingerprint over everything that decides a score."""
    group_tuples = {level: tuple(each) for level, each in groups.items()}
    assert len(good) == len(bad) and all(len(each) == len(good) for each in group_tuples.values())
    text = json.dumps([name, list(good), list(bad), group_tuples])
    fingerprint = hashlib.sha256(text.encode()).hexdigest()[:16]
    return PairSet(name, suite, tuple(good), tuple(bad), group_tuples, fingerprint)
