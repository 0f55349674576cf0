"""Pairs and collections as plain data: what is read of them, and what their fingerprint covers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workbench.spec.parts import TasksSpec
from workbench.tasks.embeddings import POOLINGS, RETRIEVAL, SIMILARITY, Embedding, Relevant, Similar, fingerprinted

PAIRS = Similar(("a", "b"), ("c", "d"), (1.0, 2.0))
FOUND = Relevant(
    {"q1": "who", "q2": "what", "q3": "where"}, {"d1": "x", "d2": "y"}, {"q1": {"d1": 2.0}, "q3": {"d9": 1}}
)


def test_queries_without_a_relevant_document_are_not_read() -> None:
    assert list(FOUND.texts()) == ["who", "where", "x", "y"] and len(FOUND) == 2
    assert list(PAIRS.texts()) == ["a", "b", "c", "d"] and len(PAIRS) == 2


def test_the_metric_follows_the_suite_and_one_score_is_enough() -> None:
    for suite, metric in ((SIMILARITY, "spearman"), (RETRIEVAL, "ndcg_10")):
        task = Embedding("x", suite, {})
        assert task.metric == metric and task.seeds(TasksSpec(seeds=5)) == 1
    settings = [Embedding("x", SIMILARITY, {}).settings(TasksSpec(**more)) for more in ({}, {"lr": 1.0}, {"length": 9})]
    assert settings[0] == settings[1] != settings[2]  # nothing is trained, so only the length of texts counts
    assert settings[0]["poolings"] == list(POOLINGS)


@pytest.mark.parametrize(
    "other",
    [
        Embedding("y", SIMILARITY, {"test": PAIRS, "all": FOUND}),
        Embedding("x", RETRIEVAL, {"test": PAIRS, "all": FOUND}),
        Embedding("x", SIMILARITY, {"dev": PAIRS, "all": FOUND}),
        Embedding("x", SIMILARITY, {"test": replace(PAIRS, second=("c", "e")), "all": FOUND}),
        Embedding("x", SIMILARITY, {"test": replace(PAIRS, targets=(1.0, 3.0)), "all": FOUND}),
        Embedding("x", SIMILARITY, {"test": PAIRS, "all": replace(FOUND, queries={**FOUND.queries, "q2": "why"})}),
        Embedding("x", SIMILARITY, {"test": PAIRS, "all": replace(FOUND, documents={"d1": "x", "d2": "z"})}),
        Embedding("x", SIMILARITY, {"test": PAIRS, "all": replace(FOUND, grades={"q1": {"d1": 1.0}})}),
    ],
)
def test_the_fingerprint_covers_all_that_decides_a_score(other: Embedding) -> None:
    task = fingerprinted(Embedding("x", SIMILARITY, {"test": PAIRS, "all": FOUND}))
    assert len(task.fingerprint) == 16 and fingerprinted(replace(task, notes=("odd",))).fingerprint == task.fingerprint
    assert fingerprinted(other).fingerprint != task.fingerprint
