"""Near-duplicates of a text: documents that share a band of MinHash values with an earlier document.

    CACHE/signatures/KEY-00007/  the bands of a slice, made by any process (`preprocessing`)
    CACHE/duplicates/KEY/        a byte for each document of the text: 1 if it is left out

A document's set of shingles (SHINGLE words in a row, without case or punctuation) has PERMUTATIONS minimal hashes
(Broder 1997, "On the resemblance and containment of documents"), in bands of a few. Two documents with Jaccard
similarity s have a band of r values in common with probability s^r, and at least one of b bands with 1 - (1 - s^r)^b
(Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", section 3.4). The first of several similar documents
stays, wherever the text is cut. Slices are compared range of hashes by range, so that memory does not grow with them.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workbench.errors import InputError
from workbench.store.atomic import read_object

if TYPE_CHECKING:
    from datasketch import MinHash

SHINGLE = 5  # words
PERMUTATIONS = 128
AT_ONCE = 4096  # shingles hashed at once, with PERMUTATIONS values of 4 or 8 bytes each
WORD = re.compile(r"\w+")
REPEATED = "repeated.bin"  # a byte for each document
FILES = ("hashes.bin", "places.bin")  # of each band in turn: its hashes in order, and the documents that have them
FACTS, FLAGS = "slice.json", "left-out.bin"
DUPLICATES = "duplicates"  # folder of the cache with the flags of texts
SIGNATURES = 1  # version of the signatures; another one finds other duplicates
RANGE = 4 << 20  # hashes compared at once, 24 bytes each, and as much again to sort them
READ = 1 << 16  # flags read at once


def bands_of(threshold: float) -> tuple[int, int]:
    """Return the number of bands, and of values in each, for a similarity (0 to 1). InputError without datasketch."""
    try:
        from datasketch import MinHashLSH
    except ImportError:
        raise InputError(
            f"data.near_duplicates={threshold:g} needs the package datasketch; pip install 'encoder-workbench[dedup]'"
        ) from None
    index = MinHashLSH(threshold=threshold, num_perm=PERMUTATIONS)
    return index.b, index.r


def write(folder: Path, documents: Iterable[str | None], threshold: float) -> tuple[list[int], NDArray[np.bool_]]:
    """Write the bands of all n documents into a folder, and return their sizes and which documents are repeated, (n,).

    A document is repeated if a band has the same hash as an earlier document; one that is None or without words has no
    bands. A band is written as its different hashes, sorted, and the first document with each, which its size counts.
    """
    from datasketch import MinHash

    bands, rows = bands_of(threshold)
    blank = MinHash(num_perm=PERMUTATIONS, seed=1, scheme="affine32")
    raw = folder / "bands.raw"
    count, signed = _hashed(raw, documents, blank, bands, rows)
    repeated = np.zeros(count, dtype=np.bool_)
    counts = []
    with open(folder / FILES[0], "wb") as hashes_file, open(folder / FILES[1], "wb") as places_file:
        for band in range(bands):
            values = np.zeros(0, dtype=np.uint64)
            if len(signed):
                values = np.array(np.memmap(raw, dtype="<u8", mode="r").reshape(-1, bands)[:, band])
            order = np.argsort(values, kind="stable")
            first = np.ones(len(order), dtype=np.bool_)
            first[1:] = values[order[1:]] != values[order[:-1]]
            repeated[signed[order[~first]]] = True
            hashes_file.write(values[order[first]].tobytes())
            places_file.write(signed[order[first]].tobytes())
            counts.append(int(first.sum()))
    raw.unlink()
    return counts, repeated


def _hashed(
    path: Path, documents: Iterable[str | None], blank: MinHash, bands: int, rows: int
) -> tuple[int, NDArray[np.uint32]]:
    """Write 8 bytes for each band of each document; return their number, and the indices (n,) of those with bands."""
    signed = bytearray()
    number = 0
    with open(path, "wb") as file:
        for number, document in enumerate(documents, start=1):
            values = None if document is None else _values(document, blank)
            if values is not None:
                file.write(b"".join(
                    hashlib.blake2b(values[4 * band * rows : 4 * (band + 1) * rows], digest_size=8).digest()
                    for band in range(bands)
                ))  # fmt: skip
                signed += (number - 1).to_bytes(4, "little")
    return number, np.frombuffer(signed, dtype="<u4")


def _values(document: str, blank: MinHash) -> bytes | None:
    """Return the minimal hashes of a document's shingles; None if it has no word."""
    minima, shingles, some = blank.copy(), _shingles(document), False
    while block := list(islice(shingles, AT_ONCE)):
        minima.update_batch(block)
        some = True
    return bytes(np.ascontiguousarray(minima.hashvalues, dtype="<u4").tobytes()) if some else None


def _shingles(document: str) -> Iterator[bytes]:
    """Yield all rows of SHINGLE words of a document, or all of its words if it has fewer."""
    words = WORD.findall(document.lower())
    for each in zip(*(islice(words, start, None) for start in range(min(SHINGLE, len(words)))), strict=False):
        yield " ".join(each).encode("utf-8", "surrogatepass")


def compare(folders: Sequence[Path], bands: int, target: Path) -> None:
    """Write the flags of all documents into the folder `target`, from the signatures of all slices in order."""
    facts = [read_object(folder / FACTS) for folder in folders]
    counts = [each["documents"] for each in facts]
    starts = np.cumsum([0, *counts])
    with open(target / FLAGS, "wb") as file:
        for folder in folders:
            file.write((folder / REPEATED).read_bytes())
    if starts[-1]:
        left = np.memmap(target / FLAGS, dtype=np.uint8, mode="r+")
        for band in range(bands):
            entries = [each["entries"][band] for each in facts]
            before = [sum(each["entries"][:band]) for each in facts]
            for places in _repeated(folders, before, entries, starts):
                left[places] = 1
        left.flush()
    (target / FACTS).write_text(json.dumps({"documents": counts}), encoding="utf-8")


def _repeated(
    folders: Sequence[Path], before: Sequence[int], entries: Sequence[int], starts: np.ndarray
) -> Iterator[np.ndarray]:
    """Yield the places (n,) of documents whose hash an earlier slice has; `before` counts entries of earlier bands."""
    parts = max(1, math.ceil(sum(entries) / RANGE))
    edges = np.array([number * 2**64 // parts for number in range(1, parts)], dtype=np.uint64)
    bands = zip(folders, before, entries, strict=True)
    cuts = [_cuts(folder / FILES[0], first, count, edges) for folder, first, count in bands]
    for part in range(parts):
        hashes, places = [], []
        for number, cut in enumerate(cuts):
            first, count = before[number] + cut[part], cut[part + 1] - cut[part]
            hashes.append(np.fromfile(folders[number] / FILES[0], "<u8", count, offset=8 * first))
            places.append(starts[number] + np.fromfile(folders[number] / FILES[1], "<u4", count, offset=4 * first))
        values, all_places = np.concatenate(hashes), np.concatenate(places)
        order = np.argsort(values, kind="stable")  # equal hashes stay in the order of the text
        yield all_places[order[1:][values[order[1:]] == values[order[:-1]]]]


def _cuts(path: Path, before: int, entries: int, edges: np.ndarray) -> list[int]:
    """Return where each range of hashes begins and ends among the entries of a band, which are in order."""
    if not entries:
        return [0] * (len(edges) + 2)
    values = np.memmap(path, dtype="<u8", mode="r", offset=8 * before, shape=(entries,))
    return [0, *map(int, np.searchsorted(values, edges)), entries]


def flags(folder: Path, number: int | None = None) -> Iterator[bool]:
    """Yield for each document of a slice, or of the whole text without a number, whether it is a near-duplicate."""
    counts = read_object(folder / FACTS)["documents"]
    start, end = (0, sum(counts)) if number is None else (sum(counts[:number]), sum(counts[: number + 1]))
    with open(folder / FLAGS, "rb") as file:
        file.seek(start)
        for place in range(start, end, READ):
            yield from map(bool, file.read(min(READ, end - place)))
