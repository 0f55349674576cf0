"""Pairs of sentences with their similarity, or queries with their relevant documents, as plain data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.spec.parts import TasksSpec

VERSION = 1  # increase it when the computation of a score changes
POOLINGS = ("mean", "cls")  # the headline is that of the first
SIMILARITY, RETRIEVAL = "similarity", "retrieval"  # suites


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


@dataclass(frozen=True)
class Embedding:
    """Measure of the embeddings of a frozen encoder (see `workbench.tasks.task.Measure`).

    The headline metric is computed on the first of `tests`. `notes` are sentences on what is odd about the data.
    """

    name: str
    suite: str
    tests: Mapping[str, Similar | Relevant]
    notes: tuple[str, ...] = ()
    fingerprint: str = ""
    baselines: Mapping[str, float] = field(default_factory=dict)
    act: str = "embedding"

    @property
    def metric(self) -> str:
        """Return the headline metric."""
        return "spearman" if self.suite == SIMILARITY else "ndcg_10"

    def seeds(self, spec: TasksSpec) -> int:
        """Return 1, because nothing is drawn at random."""
        return 1

    def settings(self, spec: TasksSpec) -> dict[str, Any]:
        """Return every setting that changes a score."""
        return {"length": spec.length, "poolings": list(POOLINGS), "version": VERSION}


def sealed(task: Embedding) -> Embedding:
    """Return the task with its fingerprint, 16 hex digits of a hash over everything that decides a score."""
    sha = hashlib.sha256(json.dumps([task.name, task.suite]).encode())
    for name, part in task.tests.items():
        rows = [part.first, part.second, part.targets] if isinstance(part, Similar) else [
            list(part.queries.items()), list(part.documents.items()),
            [(query, list(grades.items())) for query, grades in part.grades.items()],
        ]  # fmt: skip
        sha.update(json.dumps([name, rows]).encode())
    return replace(task, fingerprint=sha.hexdigest()[:16])
