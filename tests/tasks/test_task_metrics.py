"""Metrics equal those of scikit-learn and scipy, which share no code with ours."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.tasks.metrics import METRICS, measure

LABELS = st.integers(2, 5).flatmap(
    lambda k: st.lists(st.tuples(st.integers(0, k - 1), st.integers(0, k - 1)), min_size=1, max_size=60)
)
NUMBERS = st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=2, max_size=60)


@settings(max_examples=150, deadline=None)
@given(LABELS)
def test_of_labels(pairs: list[tuple[int, int]]) -> None:
    predicted, true = np.array(pairs).T
    found = measure(["accuracy", "matthews", "macro_f1"], predicted, true)
    assert found["accuracy"] == pytest.approx(sklearn.metrics.accuracy_score(true, predicted))
    f1 = sklearn.metrics.f1_score(true, predicted, average="macro", zero_division=0)
    assert found["macro_f1"] == pytest.approx(f1)
    several = len(set(true)) > 1 and len(set(predicted)) > 1
    oracle = sklearn.metrics.matthews_corrcoef(true, predicted) if several else 0.0
    assert found["matthews"] == pytest.approx(oracle, abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=60))
def test_f1_is_of_the_positive_label(pairs: list[tuple[int, int]]) -> None:
    predicted, true = np.array(pairs).T
    oracle = sklearn.metrics.f1_score(true, predicted, pos_label=1, zero_division=0)
    assert METRICS["f1"](predicted, true) == pytest.approx(oracle)


@settings(max_examples=150, deadline=None)
@given(NUMBERS)
def test_of_numbers(pairs: list[tuple[int, int]]) -> None:
    predicted, true = np.array(pairs, dtype=np.float64).T
    found = measure(["pearson", "spearman"], predicted, true)
    if np.ptp(predicted) == 0 or np.ptp(true) == 0:
        assert found == {"pearson": 0.0, "spearman": 0.0}
    else:
        assert found["pearson"] == pytest.approx(scipy.stats.pearsonr(predicted, true).statistic, abs=1e-9)
        assert found["spearman"] == pytest.approx(scipy.stats.spearmanr(predicted, true).statistic, abs=1e-9)


@pytest.mark.parametrize("scale", [1e-200, 1e-12, 1.0, 1e12, 1e200])
def test_correlation_does_not_mind_the_scale(scale: float) -> None:
    rng = np.random.default_rng(0)
    true = rng.normal(size=50)
    predicted = true + rng.normal(size=50)
    oracle = scipy.stats.pearsonr(predicted, true).statistic
    assert METRICS["pearson"](predicted * scale, true) == pytest.approx(oracle)


def test_no_skill_is_zero_and_never_nan() -> None:
    """For a model that always gives one answer, as small ones do on CoLA and STS-B."""
    true = np.array([0, 1, 1, 0, 1])
    for constant in (0, 1):
        assert METRICS["matthews"](np.full(5, constant), true) == 0.0
    assert METRICS["f1"](np.zeros(5, dtype=int), np.zeros(5, dtype=int)) == 0.0
    for name in ("pearson", "spearman"):
        assert METRICS[name](np.full(5, 0.1), true * 1.1) == 0.0
        assert METRICS[name](true * 1.1, np.full(5, 0.1)) == 0.0


def test_perfect_and_reversed() -> None:
    true = np.array([0, 1, 1, 0])
    for name in ("accuracy", "f1", "macro_f1", "matthews", "pearson", "spearman"):
        assert METRICS[name](true, true) == pytest.approx(1.0)
    for name in ("matthews", "pearson", "spearman"):
        assert METRICS[name](1 - true, true) == pytest.approx(-1.0)
