"""Baselines of embeddings against scikit-learn and scipy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from embedding_files import texts
from scipy import stats
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from workbench.tasks.embeddings import tf_idf
from workbench.tasks.embeddings.embedding_task import RETRIEVAL, SIMILARITY, Embedding, Relevant, Similar, sealed


def test_similarity_is_the_rank_correlation_of_tf_idf_cosines(tmp_path: Path) -> None:
    first, second = texts(40, 1), texts(40, 2)
    targets = np.random.default_rng(0).normal(size=40).tolist()
    task = sealed(Embedding("x", SIMILARITY, {"test": Similar(tuple(first), tuple(second), tuple(targets))}))
    vectors = TfidfVectorizer(token_pattern=r"\w+").fit_transform(first + second)
    cosines = [cosine_similarity(vectors[n], vectors[n + 40])[0, 0] for n in range(40)]
    wanted = 100 * stats.spearmanr(cosines, targets).statistic
    assert tf_idf.baselines(task, tmp_path) == {"chance": 0.0, "tf-idf": pytest.approx(wanted)}


def test_retrieval_has_the_words_of_the_documents_and_a_random_order(tmp_path: Path) -> None:
    documents = {"d0": "red cat", "d1": "red dog", "d2": "green cat"}
    grades = {"q0": {"d0": 1.0}, "q1": {"d1": 1.0}}
    task = sealed(Embedding("x", RETRIEVAL, {"test": Relevant({"q0": "red cat", "q1": "cat"}, documents, grades)}))
    # The own text comes first; `cat` is in the other two documents, so the relevant one is last of three.
    wanted = (1 + 1 / np.log2(4)) / 2
    chance = sum(1 / 3 / np.log2(place + 2) for place in range(3))  # each place holds a third of the one gain
    assert tf_idf.baselines(task, tmp_path) == {
        "chance": pytest.approx(100 * chance), "tf-idf": pytest.approx(100 * wanted)
    }  # fmt: skip


def test_texts_without_words_are_like_nothing_and_baselines_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = Similar(("", "red cat", "dog"), ("", "red cat", "cat"), (0.0, 1.0, 0.5))
    task = sealed(Embedding("x", SIMILARITY, {"test": pairs}))
    found = tf_idf.baselines(task, tmp_path)
    assert np.isfinite(found["tf-idf"])
    monkeypatch.setattr(tf_idf, "_similar", lambda part: pytest.fail("computed again"))
    assert tf_idf.baselines(task, tmp_path) == found
