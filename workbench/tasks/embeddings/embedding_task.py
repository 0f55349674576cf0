"""Pairs of sentences with their similarity, or queries with their relevant documents, as plain data.

With `tasks.embeddings=contrastive` (mean pooling) or `contrastive-cls`, the encoder is fine-tuned before it is
measured, with the loss of sentence-transformers that LOSSES names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.rng import seed_of
from workbench.spec.parts import TasksSpec

VERSION = 1  # increase it when the computation of a score changes
POOLINGS = ("mean", "cls")  # the headline is the score by the first
SIMILARITY, RETRIEVAL = "similarity", "retrieval"  # suites
LOSSES = {SIMILARITY: "CoSENTLoss", RETRIEVAL: "MultipleNegativesRankingLoss"}
SCALE = 20.0  # by which both losses multiply cosines, sentence-transformers' default
EPOCHS = 3.0
USED = (
    "embeddings", "lr", "layer_decay", "extra_decay", "weight_decay", "warmup", "batch", "length", "dropout", "clip",
    "overlap", "bias_correction", "rows",
)  # fmt: skip


@dataclass(frozen=True)
class Similar:
    """N pairs of sentences and how similar their meanings are, in any unit."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    targets: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.first)

    def texts(self) -> Iterator[str]:
        """Yield every sentence."""
        yield from (*self.first, *self.second)

    def pairs(self) -> list[tuple[str, str]]:
        """Return the pairs of sentences."""
        return list(zip(self.first, self.second, strict=True))

    def take(self, rows: Sequence[int]) -> Similar:
        """Return the pairs with these numbers."""
        first, second = (tuple(side[row] for row in rows) for side in (self.first, self.second))
        return Similar(first, second, tuple(self.targets[row] for row in rows))


@dataclass(frozen=True)
class Relevant:
    """Queries and documents by their ids, and for each query the grade of each relevant document, above 0.

    A grade may be that of a document which is not in the collection; it counts as never found.
    """

    queries: Mapping[str, str]
    documents: Mapping[str, str]
    grades: Mapping[str, Mapping[str, float]]

    def __len__(self) -> int:
        return len(self.grades)

    def texts(self) -> Iterator[str]:
        """Yield every text that is read: the queries with relevant documents, and all documents."""
        yield from (self.queries[query] for query in self.grades)
        yield from self.documents.values()

    def pairs(self) -> list[tuple[str, str]]:
        """Return each query with each of its relevant documents that the collection has."""
        return [(self.queries[query], self.documents[document]) for query, document in self._places()]

    def take(self, rows: Sequence[int]) -> Relevant:
        """Return the collection with the relevance of the pairs with these numbers alone."""
        places = self._places()
        grades: dict[str, dict[str, float]] = {}
        for query, document in (places[row] for row in rows):
            grades.setdefault(query, {})[document] = self.grades[query][document]
        return replace(self, grades=grades)

    def _places(self) -> list[tuple[str, str]]:
        """Return the ids of the pairs."""
        return [(query, each) for query, grades in self.grades.items() for each in grades if each in self.documents]


@dataclass(frozen=True)
class Embedding:
    """Measure of an encoder's embeddings (see `workbench.tasks.task.Measure`), frozen or fine-tuned on `train`.

    The headline metric is computed on the first of `tests`. `notes` are sentences on what is odd about the data.
    """

    name: str
    suite: str
    tests: Mapping[str, Similar | Relevant]
    notes: tuple[str, ...] = ()
    fingerprint: str = ""
    baselines: Mapping[str, float] = field(default_factory=dict)
    train: Similar | Relevant | None = None

    @property
    def act(self) -> str:
        return "embedding" if self.train is None else "fine-tuning"

    @property
    def metric(self) -> str:
        """Return the headline metric."""
        return "spearman" if self.suite == SIMILARITY else "ndcg_10"

    def seeds(self, spec: TasksSpec) -> int:
        """Return the number of fine-tuning seeds, or 1 for a frozen encoder, of which nothing is drawn at random."""
        return 1 if self.train is None else spec.seeds

    def settings(self, spec: TasksSpec) -> dict[str, Any]:
        """Return every setting that changes a score."""
        if self.train is None:
            return {"length": spec.length, "poolings": list(POOLINGS), "version": VERSION}
        return {name: getattr(spec, name) for name in USED} | {
            "epochs": spec.epochs or EPOCHS, "loss": LOSSES[self.suite], "scale": SCALE, "version": VERSION,
        }  # fmt: skip


def fingerprinted(task: Embedding, rows: int | None = None) -> Embedding:
    """Return the task with at most `rows` training pairs, the same ones every time, and with its fingerprint.

    The fingerprint is 16 hex digits of a hash over everything that decides a score.
    """
    if task.train is not None and rows is not None and rows < (count := len(task.train.pairs())):
        import numpy as np

        chosen = np.random.default_rng(seed_of(0, "rows", task.name)).permutation(count)[:rows]
        task = replace(task, train=task.train.take(sorted(chosen.tolist())))
    sha = hashlib.sha256(json.dumps([task.name, task.suite]).encode())
    for name, part in {**task.tests, **({} if task.train is None else {"train": task.train})}.items():
        content = [part.first, part.second, part.targets] if isinstance(part, Similar) else [
            list(part.queries.items()), list(part.documents.items()),
            [(query, list(grades.items())) for query, grades in part.grades.items()],
        ]  # fmt: skip
        sha.update(json.dumps([name, content]).encode())
    return replace(task, fingerprint=sha.hexdigest()[:16])
