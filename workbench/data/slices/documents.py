"""Reading the documents of sources without their held-out parts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from workbench.data import held_out, sources
from workbench.data.streams import Advance, ignore
from workbench.spec.parts import DataSpec


def documents(
    data: DataSpec,
    found: Sequence[sources.Source],
    advance: Advance = ignore,
    limit: float = math.inf,
    hub_limit: float = math.inf,
    aside: Callable[[str], None] | None = None,
    words: Counter[str] | None = None,
) -> Iterator[str]:
    """Yield all documents, but at most `limit` characters in all, and `hub_limit` of a data set of the hub.

    `aside` is called with each held-out part. The numbers of words of all sources are added to `words`.
    """
    for source in found:
        left = min(limit, hub_limit) if isinstance(source, sources.Hub) else limit
        share = 0.0 if isinstance(source, sources.Docs) else data.held_out
        for document in sources.read(source, data.column, advance):
            if text := held_out.without(document, share, aside):
                if words is not None:
                    words[sources.name_of(source)] += len(text.split())
                yield text
            limit, left = limit - len(document), left - len(document)
            if left <= 0:
                break
        if limit <= 0:
            return
