"""Baselines of embeddings that need no encoder: tf-idf vectors of words, and what chance gives.

The vectors are scikit-learn's, with idf of the documents of a collection, or of all sentences that are compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.tasks.baselines import WORD, cached
from workbench.tasks.embeddings import ranking
from workbench.tasks.embeddings.embedding_task import VERSION, Embedding, Relevant, Similar
from workbench.tasks.metrics import spearman


def baselines(task: Embedding, cache: Path | None = None) -> dict[str, float]:
    """Return the headline metric of the baselines, times 100, from the cache if they were computed before."""
    part = next(iter(task.tests.values()))

    def compute() -> dict[str, float]:
        if isinstance(part, Similar):
            return {"chance": 0.0, "tf-idf": 100 * _similar(part)}  # constants and guesses correlate with nothing
        return {"chance": 100 * ranking.chance(part), "tf-idf": 100 * _ranked(part)}

    return cached(f"{task.fingerprint}-tf-idf-{VERSION}", compute, cache)


def _similar(part: Similar) -> float:
    """Return Spearman's correlation of the cosines of tf-idf vectors."""
    import numpy as np

    first, second = _vectors(list(part.texts()), list(part.first), list(part.second))
    cosines = np.asarray(first.multiply(second).sum(1))[:, 0]
    return spearman(cosines, np.array(part.targets))


def _ranked(part: Relevant) -> float:
    """Return nDCG at 10 of the cosines of tf-idf vectors."""
    documents = list(part.documents.values())
    queries, known = _vectors(documents, [part.queries[query] for query in part.grades], documents)
    return ranking.metrics(part, queries, known)["ndcg_10"]


def _vectors(fitted: list[str], *texts: list[str]) -> list[Any]:
    """Return sparse tf-idf vectors (N, words) of norm 1 of each list of texts, with the idf of `fitted`."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    model = TfidfVectorizer(
        tokenizer=lambda text: WORD.findall(text.lower()) or [""], token_pattern=None, lowercase=False
    )
    model.fit(fitted)
    return [model.transform(each).tocsr() for each in texts]
