"""Batches of queries and their documents for contrastive training, and what has to be there before it can begin."""

from __future__ import annotations

import importlib.util
from collections import deque
from collections.abc import Iterator, Sequence

from workbench.errors import InputError
from workbench.rng import seed_of
from workbench.spec.parts import TasksSpec

LIBRARY = "sentence_transformers"
AHEAD = 16  # batches of pairs that are looked through for those that may be together in one


def check_installed(spec: TasksSpec) -> None:
    """Raise InputError if sentence-transformers is not installed."""
    if importlib.util.find_spec(LIBRARY) is None:
        raise InputError(
            f"tasks.embeddings={spec.embeddings} needs the package sentence-transformers, which is not installed: "
            f"pip install 'encoder-workbench[embeddings]', or leave the setting out for frozen embeddings"
        )


def apart(pairs: Sequence[tuple[str, str]], size: int, seed: int) -> Iterator[list[int]]:
    """Yield batches of at most `size` pairs of a query and a document, in which no document answers another's query.

    Other documents of a batch are the wrong answers, so pairs that share a query or a document are not together. A pair
    without any other to be with is left out. Raises InputError if all are in an epoch.
    """
    import numpy as np

    answers: dict[str, set[str]] = {}
    for query, document in pairs:
        answers.setdefault(query, set()).add(document)
    epoch = 0
    while True:
        left = deque(np.random.default_rng(seed_of(seed, "epoch", epoch)).permutation(len(pairs)).tolist())
        some = False
        while left:
            batch = _taken(left, pairs, answers, size)
            if len(batch) > 1:
                some = True
                yield batch
        if not some:
            raise InputError(
                f"no two of the {len(pairs):,} training pairs can be in one batch of {size}: contrastive training "
                f"needs queries with different relevant documents, and tasks.batch of 2 or more"
            )
        epoch += 1


def _taken(left: deque[int], pairs: Sequence[tuple[str, str]], answers: dict[str, set[str]], size: int) -> list[int]:
    """Take the pairs of one batch from the first ones that are left; the others stay in their order."""
    batch: list[int] = []
    documents: set[str] = set()
    answered: set[str] = set()  # documents that answer a query of the batch
    later: list[int] = []
    for number in [left.popleft() for _ in range(min(len(left), AHEAD * size))]:
        query, document = pairs[number]
        if len(batch) == size or document in answered or not documents.isdisjoint(answers[query]):
            later.append(number)
            continue
        batch.append(number)
        documents.add(document)
        answered |= answers[query]
    left.extendleft(reversed(later))
    return batch
