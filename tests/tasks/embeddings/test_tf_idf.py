"""Baselines of embeddings against scikit-learn and scipy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from embedding_files import texts
from scipy import stats
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import ndcg_score
from sklearn.metrics.pairwise import cosine_similarity

from workbench.tasks import _embedding_vectors as embedding_vectors
from workbench.tasks.embeddings import RETRIEVAL, SIMILARITY, Embedding, Relevant, Similar, fingerprinted


def test_similarity_is_the_rank_correlation_of_tf_idf_cosines(tmp_path: Path) -> None:
    first, second = texts(40, 1), texts(40, 2)
    targets = np.random.default_rng(0).normal(size=40).tolist()
    task = fingerprinted(Embedding("x", SIMILARITY, {"test": Similar(tuple(first), tuple(second), tuple(targets))}))
    vectors = TfidfVectorizer(token_pattern=r"\w+").fit_transform(first + second)
    cosines = [cosine_similarity(vectors[n], vectors[n + 40])[0, 0] for n in range(40)]
    wanted = 100 * stats.spearmanr(cosines, targets).statistic
    assert task.baselines(tmp_path) == {"chance": 0.0, "tf-idf": pytest.approx(wanted)}


def test_retrieval_is_ndcg_by_cosines_with_the_words_of_the_documents(tmp_path: Path) -> None:
    documents, asked, random = texts(40, 1), texts(12, 2), np.random.default_rng(3)
    relevant = [random.choice(40, 3, replace=False).tolist() for _ in asked]
    grades = {f"q{n}": {f"d{place}": 1.0 + rank for rank, place in enumerate(row)} for n, row in enumerate(relevant)}
    queries = {f"q{n}": text for n, text in enumerate(asked)}
    data = Relevant(queries, {f"d{n}": text for n, text in enumerate(documents)}, grades)
    model = TfidfVectorizer(token_pattern=r"\w+").fit(documents)
    cosines = cosine_similarity(model.transform(asked), model.transform(documents))
    gains = [[grades[query].get(f"d{n}", 0.0) for n in range(40)] for query in queries]
    found = fingerprinted(Embedding("x", RETRIEVAL, {"test": data})).baselines(tmp_path)
    assert found["tf-idf"] == pytest.approx(100 * ndcg_score(gains, cosines, k=10))
    best = [sum(gain / np.log2(place + 2) for place, gain in enumerate((3.0, 2.0, 1.0)))] * len(asked)
    of_chance = sum(6 / 40 / np.log2(place + 2) for place in range(10))  # a place holds the mean of the three gains
    assert found["chance"] == pytest.approx(100 * np.mean(of_chance / np.array(best)))


def test_texts_without_words_are_like_nothing_and_baselines_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = Similar(("", "red cat", "dog"), ("", "red cat", "cat"), (0.0, 1.0, 0.5))
    task = fingerprinted(Embedding("x", SIMILARITY, {"test": pairs}))
    found = task.baselines(tmp_path)
    assert np.isfinite(found["tf-idf"])
    empty = fingerprinted(Embedding("y", SIMILARITY, {"test": Similar(("", " ", "_"), ("", "_", ""), (0.0, 1.0, 0.5))}))
    assert empty.baselines(tmp_path)["tf-idf"] == 0.0
    monkeypatch.setattr(embedding_vectors, "_similar", lambda part: pytest.fail("computed again"))
    assert task.baselines(tmp_path) == found
