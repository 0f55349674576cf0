"""Signatures of the documents of a slice, by which near-duplicates are found: bands of MinHash values.

A document's set of shingles (SHINGLE words in a row, without case or punctuation) has PERMUTATIONS minimal hashes
(Broder 1997, "On the resemblance and containment of documents"), in bands of a few. Two documents with Jaccard
similarity s have a band of r values in common with probability s^r, and at least one of b bands with 1 - (1 - s^r)^b
(Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", section 3.4).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workbench.errors import InputError

if TYPE_CHECKING:
    from datasketch import MinHash

SHINGLE = 5  # words
PERMUTATIONS = 128
AT_ONCE = 4096  # shingles hashed at once, with PERMUTATIONS values of 4 or 8 bytes each
WORD = re.compile(r"\w+")
REPEATED = "repeated.bin"  # a byte for each document
FILES = ("hashes.bin", "places.bin")  # of each band in turn: its hashes in order, and the documents that have them


def bands_of(threshold: float) -> tuple[int, int]:
    """Return the number of bands, and of values in each, that separate best at this similarity (0 to 1).

    Raises InputError if datasketch is not installed.
    """
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

    A document is repeated if one of its bands has the same hash as that of an earlier document. One that is None, or
    has no word, has no bands and is not repeated. A band is written as its different hashes, sorted, and the first
    document with each; its size is the number of these. Memory grows by one byte for each document, besides that of
    sorting one band.
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
    """Write 8 bytes for each band of each document; return the number of documents, and those that have bands, (n,)."""
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
