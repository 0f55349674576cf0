"""Rows of a linear probe as plain data: texts with a label, sentences with a tag on each word, or minimal pairs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from workbench.rng import seed_of
from workbench.spec.parts import TasksSpec
from workbench.tasks.task import Examples, Tagged

VERSION = 1  # increase it when the computation of linear probes changes
ROWS = 20_000  # texts, words or pairs to train on at most; more hardly improve the readout
HELD = 5  # one training row in so many is set aside to choose the penalty


@dataclass(frozen=True)
class LinearProbe:
    """Measure of frozen states by a linear readout (see `workbench.tasks.task.Measure`).

    `kind` says what the rows are: `texts` (Examples), `words` (Tagged) or `pairs` (Examples of a right and a wrong
    sentence, whose target is the number of the paradigm in `labels`). The headline metric is computed on the first
    of `tests`.
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
        """Return 1, because nothing is drawn at random."""
        return 1

    def settings(self, spec: TasksSpec) -> dict[str, Any]:
        """Return every setting that changes a score."""
        return {"length": spec.length, "control": spec.control and self.kind == "words", "version": VERSION}


def fingerprinted(probe: LinearProbe, spec: TasksSpec) -> LinearProbe:
    """Return the probe as `spec` measures it, with its fingerprint.

    With `spec.held_out` it is tested on that share of its training rows. At most ROWS texts, words or pairs are
    trained on. Hashes of their content decide which rows are taken.
    """
    train, tests = probe.train, dict(probe.tests)
    if spec.held_out:
        order = ordered(probe, train, "held out")
        count = min(max(1, round(spec.held_out * len(order))), len(order) - 1)
        train, tests = train.take(sorted(order[count:])), {"held-out": train.take(sorted(order[:count]))}
    train = _capped(replace(probe, train=train), spec.rows)
    selected = replace(probe, train=train, tests=tests)
    return replace(selected, fingerprint=_fingerprint(selected))


def _capped(probe: LinearProbe, rows: int | None) -> Any:
    """Return at most `rows` training rows, and no more than hold ROWS texts, words or pairs."""
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
    """Return the indices of all rows in an order that hashes of their content decide."""
    keys = contents(rows)
    return sorted(range(len(rows)), key=lambda row: (seed_of(0, "linear", what, probe.name, keys[row]), row))


def contents(rows: Examples | Tagged) -> list[str]:
    """Return the text of each row; copies of a row have the same text and stay together."""
    return [" ".join(words) for words in rows.words] if isinstance(rows, Tagged) else rows.first


def groups(probe: LinearProbe) -> list[str]:
    """Return the group of each training row; a group is set aside as a whole when the penalty is chosen.

    Copies of a row are one group; of minimal pairs, a paradigm is one.
    """
    if probe.kind == "pairs":
        assert isinstance(probe.train, Examples)
        return [probe.labels[int(target)] for target in probe.train.targets]
    return contents(probe.train)


def held(probe: LinearProbe) -> list[bool]:
    """Return whether each training row is set aside to choose the penalty: a fifth of the groups, by a hash of each."""
    group_of = groups(probe)
    order = sorted(set(group_of), key=lambda group: (seed_of(0, "linear", "penalty", probe.name, group), group))
    aside = set(order[: max(1, round(len(order) / HELD))])
    return [group in aside for group in group_of]


def _fingerprint(probe: LinearProbe) -> str:
    """Return 16 hex digits of a hash over everything that decides a score: texts, tags, labels and metrics."""
    sha = hashlib.sha256(json.dumps([probe.name, probe.kind, probe.labels, probe.metric, probe.metrics]).encode())
    for name, part in {"train": probe.train, **probe.tests}.items():
        rows = [part.words] if isinstance(part, Tagged) else [part.first, part.second]
        sha.update(json.dumps([name, *rows, part.targets]).encode())
    return sha.hexdigest()[:16]
