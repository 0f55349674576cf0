"""Scores of linear probes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_probes import CPU, SPEC, pairs, sentences

from workbench.tasks import linear_probe
from workbench.tasks.common.contract import Model, take
from workbench.tasks.common.examples import Examples, Tagged, Task
from workbench.tasks.linear_probe import LinearProbe, by_paradigm, fingerprinted, points


def test_equal_sentences_are_ties(encoder: Path) -> None:
    task = pairs()
    same = {"held-out paradigms": Examples(["bada", "kefe logo " * 9], ["bada", "kefe logo " * 9], [0, 0])}
    assert take(replace(task, tests=same), Model(encoder, SPEC, 0), CPU).value == 50.0


def test_matthews_weighs_labels_alike(encoder: Path) -> None:
    rows = sentences(400, 5)
    has = [int("bada" in words and "kefe" in words) for words in rows]
    texts = Examples([" ".join(words) for words in rows], None, has)
    task = Task("rare", "table", ("no", "yes"), "matthews", ("matthews", "accuracy"), 1.0, texts, {"dev": texts})
    probe = fingerprinted(linear_probe.of_task(task), SPEC)
    assert np.mean(has) < 0.2 and take(probe, Model(encoder, SPEC, 0), CPU).value > 20


def test_entities_count_when_type_and_both_ends_are_right() -> None:
    labels = ("B-LOC", "B-PER", "I-PER", "O")
    rows = Tagged([["a", "b", "c"], ["d", "e"]], [[1, 2, 3], [0, 3]])
    probe = LinearProbe("n", "words", labels, "entity_f1", ("entity_f1", "accuracy"), rows, {"test": rows})
    assert points(probe, rows, np.array([1, 2, 3, 0, 3])) == {"entity_f1": 100.0, "accuracy": 100.0}
    assert points(probe, rows, np.array([1, 3, 3, 0, 3])) == {"entity_f1": 50.0, "accuracy": 80.0}
    assert points(probe, rows, np.array([2, 2, 3, 0, 0]))["entity_f1"] == pytest.approx(80.0)  # a stray I- begins one
    assert points(probe, rows, np.array([3, 3, 3, 3, 3]))["entity_f1"] == 0.0


def test_paradigms_weigh_alike_however_many_pairs_they_have() -> None:
    rows = Examples(["x"] * 5, ["y"] * 5, [0, 0, 0, 0, 2])
    probe = LinearProbe("n", "pairs", ("a", "b", "c"), "accuracy", ("accuracy",), rows, {"test": rows})
    predicted = np.array([1.0, 0.5, 0.0, 1.0, 0.0])
    assert by_paradigm(probe, rows, predicted) == {"a": 62.5, "c": 0.0}  # a tie counts half; b has no pair
    assert points(probe, rows, predicted) == {"accuracy": 31.25}
