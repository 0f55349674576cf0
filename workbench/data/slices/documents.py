"""Reading the documents of sources that no filter leaves out, without their held-out parts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from workbench.data import held_out, sources
from workbench.data.slices.languages import is_in
from workbench.data.streams import Advance, ignore
from workbench.spec.parts import DataSpec

NEAR = "near_duplicates"
Removed = dict[str, Counter[str]]  # filter, named by its key of the spec -> the documents and words it left out


def unsuitable(data: DataSpec, document: str) -> str:
    """Return the name of the filter by which a document is left out for its length or language, "" if it is kept."""
    if data.min_words or data.max_words is not None:
        words = len(document.split())
        if words < data.min_words:
            return "min_words"
        if data.max_words is not None and words > data.max_words:
            return "max_words"
    return "language" if data.language is not None and not is_in(data.language, document) else ""


def documents(
    data: DataSpec,
    found: Sequence[sources.Source],
    advance: Advance = ignore,
    limit: float = math.inf,
    hub_limit: float = math.inf,
    aside: Callable[[str], None] | None = None,
    words: Counter[str] | None = None,
    removed: Removed | None = None,
    near: Iterator[bool] | None = None,
) -> Iterator[str]:
    """Yield all documents, but at most `limit` characters in all, and `hub_limit` of a data set of the hub.

    `aside` is called with each held-out part. The numbers of words of all sources are added to `words`, and what each
    filter leaves out is added to `removed`. `near` says of each document whether it is left out as a near-duplicate.
    """
    for source in found:
        left = min(limit, hub_limit) if isinstance(source, sources.Hub) else limit
        share = 0.0 if isinstance(source, sources.Docs) else data.held_out
        for document in sources.read(source, data.column, advance):
            limit, left = limit - len(document), left - len(document)
            repeated = near is not None and next(near)
            if filter_ := unsuitable(data, document) or (NEAR if repeated else ""):
                if removed is not None:
                    removed.setdefault(filter_, Counter()).update(documents=1, words=len(document.split()))
            elif text := held_out.without(document, share, aside):
                if words is not None:
                    words[sources.name_of(source)] += len(text.split())
                yield text
            if left <= 0:
                break
        if limit <= 0:
            return
