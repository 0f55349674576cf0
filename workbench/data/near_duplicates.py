"""Near-duplicates of a text: documents that share a band of their signatures with an earlier document.

    CACHE/signatures/KEY-00007/  the bands of a slice, made by any process (`preprocessing`, `minhash`)
    CACHE/duplicates/KEY/        a byte for each document of the text: 1 if it is left out

The first of several similar documents stays, and whether a document is left out depends on the text before it alone,
wherever the text is cut. Bands are sorted for each slice; then all slices are compared range of hashes by range, so
that memory does not grow with the text, apart from pages of a file of one byte a document.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from workbench.data.minhash import FILES, REPEATED, bands_of
from workbench.data.preprocessing import DUPLICATES, FACTS, FLAGS, Plan, Slice, discard_damaged, facts_of, remove_locks
from workbench.data.streams import Advance
from workbench.spec.parts import DataSpec
from workbench.spec.run_spec import digest
from workbench.store.cache import alone, is_whole, staged

SIGNATURES = 1  # version of the signatures; another one finds other duplicates
RANGE = 4 << 20  # hashes compared at once, 24 bytes each, and as much again to sort them


def left_out(
    data: DataSpec, slices: Sequence[Slice], origin: str, root: Path, share: Callable[..., None],
    advance: Advance, waiting: Callable[[], None],
) -> Path:  # fmt: skip
    """Return the folder with the flags of a text's documents (`preprocessing.flags`), which is made if there is none.

    `share` makes the signatures of all slices, by any processes; `waiting` is called while another process compares
    them. Raises InputError as `minhash.bands_of`.
    """
    assert data.near_duplicates is not None
    bands, _ = bands_of(data.near_duplicates)
    key = digest([SIGNATURES, origin, [each.size for each in slices]], 16)
    folder = root / DUPLICATES / key
    if is_whole(folder):
        return folder
    plan = Plan(root, key, data, None, tuple(slices))
    with alone(root / "locks" / key, waiting):
        plan.write()
        discard_damaged(plan)
    share(plan, advance=advance)
    with alone(root / "locks" / key, waiting):
        if not is_whole(folder):
            with staged(folder) as temporary:
                _compare(plan, bands, temporary)
        remove_locks(plan)
    return folder


def _compare(plan: Plan, bands: int, folder: Path) -> None:
    """Write the flags of all documents, from the signatures of all slices."""
    facts = facts_of(plan)
    counts = [each["documents"] for each in facts]
    starts = np.cumsum([0, *counts])
    with open(folder / FLAGS, "wb") as file:
        for number in range(len(counts)):
            file.write((plan.folder(number) / REPEATED).read_bytes())
    if starts[-1]:
        left = np.memmap(folder / FLAGS, dtype=np.uint8, mode="r+")
        for band in range(bands):
            entries = [each["entries"][band] for each in facts]
            before = [sum(each["entries"][:band]) for each in facts]
            for places in _repeated(plan, before, entries, starts):
                left[places] = 1
        left.flush()
    (folder / FACTS).write_text(json.dumps({"documents": counts}), encoding="utf-8")


def _repeated(plan: Plan, before: Sequence[int], entries: Sequence[int], starts: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the places (n,) of documents whose hash an earlier slice has; `before` counts entries of earlier bands."""
    parts = max(1, math.ceil(sum(entries) / RANGE))
    edges = np.array([number * 2**64 // parts for number in range(1, parts)], dtype=np.uint64)
    cuts = [_cuts(plan.folder(number) / FILES[0], before[number], count, edges) for number, count in enumerate(entries)]
    for part in range(parts):
        hashes, places = [], []
        for number, cut in enumerate(cuts):
            first, count = before[number] + cut[part], cut[part + 1] - cut[part]
            folder = plan.folder(number)
            hashes.append(np.fromfile(folder / FILES[0], "<u8", count, offset=8 * first))
            places.append(starts[number] + np.fromfile(folder / FILES[1], "<u4", count, offset=4 * first))
        values, all_places = np.concatenate(hashes), np.concatenate(places)
        order = np.argsort(values, kind="stable")  # equal hashes stay in the order of the text
        yield all_places[order[1:][values[order[1:]] == values[order[:-1]]]]


def _cuts(path: Path, before: int, entries: int, edges: np.ndarray) -> list[int]:
    """Return where each range of hashes begins and ends among the entries of a band, which are in order."""
    if not entries:
        return [0] * (len(edges) + 2)
    values = np.memmap(path, dtype="<u8", mode="r", offset=8 * before, shape=(entries,))
    return [0, *map(int, np.searchsorted(values, edges)), entries]
