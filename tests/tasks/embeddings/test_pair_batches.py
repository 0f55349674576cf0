"""Batches for contrastive training: no document of a batch answers the query of another pair."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import InputError
from workbench.tasks import _embedding_vectors as embedding_vectors


@settings(deadline=None, max_examples=60)
@given(
    places=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 12)), min_size=2, max_size=80, unique=True),
    size=st.integers(2, 9),
    seed=st.integers(0, 5),
)
def test_no_document_of_a_batch_answers_the_query_of_another_pair(
    places: list[tuple[int, int]], size: int, seed: int
) -> None:
    pairs = [(f"q{query}", f"d{document}") for query, document in places]
    together = any(
        (a[0], b[1]) not in pairs and (b[0], a[1]) not in pairs for n, a in enumerate(pairs) for b in pairs[:n]
    )
    if not together:
        with pytest.raises(InputError, match=r"^no two of the \d+ training pairs can be in one batch"):
            next(embedding_vectors.apart(pairs, size, seed))
        return
    taken = list(islice(embedding_vectors.apart(pairs, size, seed), 200))
    assert len(taken) == 200
    for batch in taken:
        assert 1 < len(batch) <= size and len(set(batch)) == len(batch)
        for one in batch:
            assert all((pairs[one][0], pairs[other][1]) not in pairs for other in batch if other != one)


def test_pairs_without_anything_in_common_are_all_taken_once_an_epoch() -> None:
    pairs = [(f"q{n}", f"d{n}") for n in range(64)]
    taken = list(islice(embedding_vectors.apart(pairs, 16, 3), 8))
    for epoch in (taken[:4], taken[4:]):
        assert sorted(number for batch in epoch for number in batch) == list(range(64))
    assert taken[:4] != taken[4:]
