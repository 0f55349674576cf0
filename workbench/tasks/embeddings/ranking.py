"""Metrics of retrieval as trec_eval and BEIR compute them: nDCG at 10 with linear gains, recall at 10 and at 100.

Documents with equal scores are ordered by hashes of their ids, so that their order does not depend on their relevance.
A document with the id of the query is not returned, as in BEIR, where a question may itself be in the collection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.rng import seed_of
from workbench.tasks.embeddings.embedding_task import Relevant

CUT, DEEP = 10, 100
BLOCK = 256  # queries whose scores are held in memory at once


def metrics(data: Relevant, queries: Any, documents: Any) -> dict[str, float]:
    """Return each metric, averaged over the queries, as a fraction.

    Documents are ranked by the products of the vectors of `queries` (Q, D) and `documents` (N, D), both in the order of
    the data, which may be sparse. Each query with a relevant document is one row of `queries`.
    """
    import numpy as np

    ids = list(data.documents)
    order = np.array(sorted(range(len(ids)), key=lambda place: (seed_of(0, "retrieval", ids[place]), place)), dtype=int)
    shuffled, names = documents[order], [ids[place] for place in order]
    each: list[dict[str, float]] = []
    asked = list(data.grades)
    for start in range(0, len(asked), BLOCK):
        products = queries[start : start + BLOCK] @ shuffled.T
        block = np.asarray(products.todense() if hasattr(products, "todense") else products)
        for query, scores in zip(asked[start : start + BLOCK], block, strict=True):
            ranked = np.argsort(-scores, kind="stable")[: DEEP + 1]
            ranking = [names[place] for place in ranked.tolist() if names[place] != query]
            each.append(of_query(ranking[:DEEP], data.grades[query]))
    return {name: float(np.mean([one[name] for one in each])) for name in each[0]}


def of_query(documents: Sequence[str], grades: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of one query, as fractions, from the documents found for it, the best first."""
    best = sorted(grades.values(), reverse=True)
    gained = _discounted([grades.get(document, 0.0) for document in documents[:CUT]])
    hits = [sum(document in grades for document in documents[:cut]) for cut in (CUT, DEEP)]
    return {
        "ndcg_10": gained / _discounted(best[:CUT]),
        "recall_10": hits[0] / len(grades),
        "recall_100": hits[1] / len(grades),
    }


def _discounted(gains: Sequence[float]) -> float:
    """Return the discounted cumulative gain of documents in this order."""
    import math

    return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains))


def chance(data: Relevant) -> float:
    """Return the mean nDCG at 10 of a random order, as a fraction: each place holds the mean gain of all documents."""
    values = []
    for query, grades in data.grades.items():
        count = len(data.documents) - (query in data.documents)
        grades_present = sum(
            grade for document, grade in grades.items() if document in data.documents and document != query
        )
        mean = grades_present / count if count else 0.0
        values.append(_discounted([mean] * min(CUT, count)) / _discounted(sorted(grades.values(), reverse=True)[:CUT]))
    return sum(values) / len(values)
