"""Metrics of retrieval against scikit-learn and plain counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.tasks import _embedding_vectors as embedding_vectors
from workbench.tasks.embeddings import Relevant


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_ndcg_is_scikit_learns_and_recall_a_plain_count(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 130))
    seed = data.draw(st.integers(0, 1000))
    random = np.random.default_rng(seed)
    grades = random.integers(0, 4, count) * (random.random(count) < 0.3)
    grades[0] = 1
    scores = random.permutation(count).astype(float)
    part = Relevant(
        {"q": "x"}, {f"d{n}": "y" for n in range(count)}, {"q": {f"d{n}": float(g) for n, g in enumerate(grades) if g}}
    )
    found = embedding_vectors.ranking_metrics(part, np.ones((1, 1)), scores[:, None])
    assert found["ndcg_10"] == pytest.approx(sklearn.metrics.ndcg_score([grades], [scores], k=10))
    best = np.argsort(-scores)
    for cut in (10, 100):
        assert found[f"recall_{cut}"] == pytest.approx((grades[best[:cut]] > 0).sum() / (grades > 0).sum())


def test_equal_scores_are_no_help_and_chance_is_their_mean() -> None:
    """An encoder that gives every text one vector gets what chance gives, over many collections."""
    values, chances = [], []
    for number in range(300):
        documents = {f"{number}-{n}": "x" for n in range(40)}
        part = Relevant({"q": "x"}, documents, {"q": {f"{number}-0": 1.0, f"{number}-1": 2.0}})
        values.append(embedding_vectors.ranking_metrics(part, np.ones((1, 1)), np.ones((40, 1)))["ndcg_10"])
        chances.append(embedding_vectors.ndcg_by_chance(part))
    assert len(set(chances)) == 1
    assert np.mean(values) == pytest.approx(chances[0], abs=4 * np.std(values) / math.sqrt(300))


def test_a_query_is_not_its_own_answer() -> None:
    part = Relevant({"a": "x"}, {"a": "x", "b": "y"}, {"a": {"b": 1.0}})
    assert embedding_vectors.ranking_metrics(part, np.ones((1, 1)), np.array([[2.0], [1.0]]))["ndcg_10"] == 1.0
    assert embedding_vectors.ndcg_by_chance(part) == 1.0
