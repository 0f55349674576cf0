"""A set of tagged sentences as a task of fine-tuning."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.rng import seed_of
from workbench.spec.parts import DATA_KEYS, TasksSpec
from workbench.tasks.task import Tagged

UNUSED = ("lm_weight", "doubled")  # settings of fine-tuning that concern texts and not words


@dataclass(frozen=True)
class Tagging:
    """Measure of an encoder that is fine-tuned to tag words (see `workbench.tasks.task.Measure`).

    The first `known` of `labels` are the tags of training words; the others occur in tests only, where they are never
    predicted. `scheme` is that of the files if the tags mark spans, and "" for parts of speech; the labels of spans are
    in IOB2 whatever the scheme. The headline metric is computed on the first of `tests`. `notes` are sentences on
    what is unusual about the data.
    """

    name: str
    labels: tuple[str, ...]
    known: int
    scheme: str
    train: Tagged
    tests: Mapping[str, Tagged]
    notes: tuple[str, ...] = ()
    fingerprint: str = ""
    baselines: Mapping[str, float] = field(default_factory=dict)
    suite: str = "tagging"
    act: str = "fine-tuning"
    epochs: float = 3.0

    @property
    def metric(self) -> str:
        """Return the headline metric."""
        return "entity_f1" if self.scheme else "accuracy"

    @property
    def scorer(self) -> str:
        """Return how the headline metric is computed, in a phrase."""
        if not self.scheme:
            return "accuracy over words"
        files = "" if self.scheme == "IOB2" else f", which the files have in {self.scheme}"
        return f"micro F1 of spans as conlleval and seqeval's default mode count them, from tags in IOB2{files}"

    def seeds(self, spec: TasksSpec) -> int:
        """Return the number of fine-tuning seeds."""
        return spec.seeds

    def settings(self, spec: TasksSpec) -> dict[str, Any]:
        """Return every setting that changes a score, with the task's own number of epochs if none is set."""
        values = spec.model_dump(mode="json", exclude={*DATA_KEYS, *UNUSED})
        return values | {"epochs": spec.epochs or self.epochs}


def fingerprinted(task: Tagging, spec: TasksSpec) -> Tagging:
    """Return the task as `spec` measures it, with its fingerprint.

    With `spec.held_out` it is tested on that share of its training sentences. At most `spec.rows` sentences are
    trained on, the same ones every time.
    """
    if spec.held_out:
        order = _order(task, "held out")
        count = min(max(1, round(spec.held_out * len(order))), len(order) - 1)
        test = task.train.take(sorted(order[:count]))
        task = replace(task, train=task.train.take(sorted(order[count:])), tests={"held-out": test}, notes=())
    if spec.rows is not None and spec.rows < len(task.train):
        task = replace(task, train=task.train.take(sorted(_order(task, "rows")[: spec.rows])))
    return replace(task, fingerprint=_fingerprint(task))


def _order(task: Tagging, what: str) -> list[int]:
    """Return the indices of the training sentences in a random order, the same every time for a task and a purpose."""
    import numpy as np

    order: list[int] = np.random.default_rng(seed_of(0, what, task.name)).permutation(len(task.train)).tolist()
    return order


def _fingerprint(task: Tagging) -> str:
    """Return 16 hex digits of a hash over everything that decides a score: words, tags, labels and scheme."""
    sha = hashlib.sha256(json.dumps([task.name, task.labels, task.known, bool(task.scheme)]).encode())
    for name, part in {"train": task.train, **task.tests}.items():
        sha.update(json.dumps([name, part.words, part.targets]).encode())
    return sha.hexdigest()[:16]
