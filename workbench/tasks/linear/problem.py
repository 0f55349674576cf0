"""What a linear probe reads: texts with a label, sentences with a tag on each word, or minimal pairs. Plain data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from workbench.rng import seed_of
from workbench.spec.parts import TasksSpec
from workbench.tasks.task import Examples

VERSION = 1  # raise it when a linear probe is computed differently
ROWS = 20_000  # the most texts, words or pairs that are learnt from; beyond that the readout hardly gains
HELD = 5  # one in so many training rows chooses the penalty


@dataclass(frozen=True)
class Tagged:
    """Sentences as words, and the number of each word's tag."""

    words: list[list[str]]
    targets: list[list[int]]

    def __len__(self) -> int:
        return len(self.words)

    def take(self, rows: list[int]) -> Tagged:
        """These sentences in this order."""
        return Tagged([self.words[i] for i in rows], [self.targets[i] for i in rows])

    def count(self) -> int:
        """The number of words."""
        return sum(map(len, self.words))


@dataclass(frozen=True)
class LinearProbe:
    """A measure of frozen states by a linear readout (see `workbench.tasks.task.Measure`).

    `kind` says what the rows are: `texts` (Examples), `words` (Tagged) or `pairs` (Examples of a right and a wrong
    sentence, the target being the number of the paradigm in `labels`). The headline is on the first of `tests`.
    """

    name: str
    kind: Literal["texts", "words", "pairs"]
    labels: tuple[str, ...]
    metric: str
    metrics: tuple[str, ...]
    train: Examples | Tagged
    tests: Mapping[str, Examples | Tagged]
    fingerprint: str = ""
    baselines: Mapping[str, float] = field(default_factory=dict)
    suite: str = "linear"
    act: str = "reading out"

    def seeds(self, spec: TasksSpec) -> int:
        """Return 1: nothing is drawn."""
        return 1

    def settings(self, spec: TasksSpec) -> dict[str, Any]:
        """Return every setting that decides a score."""
        return {"length": spec.length, "control": spec.control and self.kind == "words", "version": VERSION}


def sealed(probe: LinearProbe, spec: TasksSpec) -> LinearProbe:
    """The probe as `spec` wants it measured: on held-out training rows if so asked, with at most ROWS to learn from.

    Which rows are taken is decided by hashes of their content.
    """
    train, tests = probe.train, dict(probe.tests)
    if spec.held_out:
        order = ordered(probe, train, "held out")
        count = min(max(1, round(spec.held_out * len(order))), len(order) - 1)
        train, tests = train.take(sorted(order[count:])), {"held-out": train.take(sorted(order[:count]))}
    train = _capped(replace(probe, train=train), spec.rows)
    made = replace(probe, train=train, tests=tests)
    return replace(made, fingerprint=_fingerprint(made))


def _capped(probe: LinearProbe, rows: int | None) -> Any:
    """The training rows: `rows` of them at most, and no more than hold ROWS texts, words or pairs."""
    train = probe.train
    most = min(rows or len(train), len(train))
    sizes = [len(words) for words in train.words] if isinstance(train, Tagged) else [1] * len(train)
    if most == len(train) and sum(sizes) <= ROWS:
        return train
    chosen: list[int] = []
    total = 0
    for row in ordered(probe, train, "rows")[:most]:
        total += sizes[row]
        if total > ROWS and chosen:
            break
        chosen.append(row)
    return train.take(sorted(chosen))


def ordered(probe: LinearProbe, rows: Examples | Tagged, what: str) -> list[int]:
    """The numbers of all rows in an order that a hash of their content decides."""
    keys = contents(rows)
    return sorted(range(len(rows)), key=lambda row: (seed_of(0, "linear", what, probe.name, keys[row]), row))


def contents(rows: Examples | Tagged) -> list[str]:
    """The text of each row, by which copies of a row are kept together."""
    return [" ".join(words) for words in rows.words] if isinstance(rows, Tagged) else rows.first


def groups(probe: LinearProbe) -> list[str]:
    """What is set aside whole when the penalty is chosen: copies of a training row, or a paradigm of pairs."""
    if probe.kind == "pairs":
        assert isinstance(probe.train, Examples)
        return [probe.labels[int(target)] for target in probe.train.targets]
    return contents(probe.train)


def held(probe: LinearProbe) -> list[bool]:
    """Whether each training row is set aside to choose the penalty: a fifth of the groups, in hashed order."""
    found = groups(probe)
    order = sorted(set(found), key=lambda group: (seed_of(0, "linear", "penalty", probe.name, group), group))
    aside = set(order[: max(1, round(len(order) / HELD))])
    return [group in aside for group in found]


def _fingerprint(probe: LinearProbe) -> str:
    """16 hex digits over everything that decides a score: texts, tags, labels and metrics."""
    sha = hashlib.sha256(json.dumps([probe.name, probe.kind, probe.labels, probe.metric, probe.metrics]).encode())
    for name, part in {"train": probe.train, **probe.tests}.items():
        rows = [part.words] if isinstance(part, Tagged) else [part.first, part.second]
        sha.update(json.dumps([name, *rows, part.targets]).encode())
    return sha.hexdigest()[:16]
