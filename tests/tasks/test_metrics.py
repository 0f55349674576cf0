"""Metrics equal their definitions, written out here over counts and exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.tasks.common.metrics import metric

LABELS = st.integers(2, 5).flatmap(
    lambda k: st.lists(st.tuples(st.integers(0, k - 1), st.integers(0, k - 1)), min_size=1, max_size=60)
)


def f1_of(label: int, pairs: list[tuple[int, int]]) -> Fraction:
    hits = sum(p == t == label for p, t in pairs)
    total = sum((p == label) + (t == label) for p, t in pairs)
    return Fraction(2 * hits, total) if total else Fraction(0)


@settings(max_examples=80, deadline=None)
@given(LABELS)
def test_of_labels(pairs: list[tuple[int, int]]) -> None:
    predicted, true = np.array(pairs).T
    assert metric("accuracy", predicted, true) == pytest.approx(sum(p == t for p, t in pairs) / len(pairs))
    assert metric("f1", predicted, true) == pytest.approx(float(f1_of(1, pairs)))
    labels = {label for pair in pairs for label in pair}
    mean = float(sum(f1_of(label, pairs) for label in labels) / len(labels))
    assert metric("macro_f1", predicted, true) == pytest.approx(mean)
    # Gorodkin's correlation is Pearson's of the labels as one-hot vectors, summed over the labels.
    n, parts = len(pairs), [Fraction(0)] * 3
    for label in labels:
        p, t = (Fraction(sum(pair[side] == label for pair in pairs), n) for side in (0, 1))
        both = Fraction(sum(a == b == label for a, b in pairs), n)
        parts = [part + more for part, more in zip(parts, (both - p * t, p - p * p, t - t * t), strict=True)]
    want = float(parts[0]) / math.sqrt(parts[1] * parts[2]) if parts[1] and parts[2] else 0.0
    assert metric("matthews", predicted, true) == pytest.approx(want, abs=1e-12)


def test_no_skill_is_zero_and_never_nan() -> None:
    """For a model that always gives one answer, as small ones do on CoLA and STS-B."""
    true = np.array([0, 1, 1, 0, 1])
    for name, one in (("matthews", np.zeros(5, int)), ("pearson", np.full(5, 0.1)), ("spearman", np.full(5, 0.1))):
        assert metric(name, one, true) == metric(name, true, one) == 0.0
    assert metric("f1", np.zeros(5, dtype=int), np.zeros(5, dtype=int)) == 0.0


def test_a_correlation_of_numbers_whose_sum_is_infinite_is_0() -> None:
    huge = np.array([1.7e308, 1.7e308, 1.7e308, 1.6e308])
    assert metric("pearson", huge, np.arange(4.0)) == metric("pearson", np.arange(4.0), huge) == 0


def test_perfect_and_reversed() -> None:
    true = np.array([0, 1, 1, 0])
    for name in ("accuracy", "f1", "macro_f1", "matthews", "pearson", "spearman"):
        assert metric(name, true, true) == pytest.approx(1.0)
    for name in ("matthews", "pearson", "spearman"):
        assert metric(name, 1 - true, true) == pytest.approx(-1.0)
