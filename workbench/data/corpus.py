"""Training rows as a pure function of their position, read from memory-mapped token shards.

A row is [CLS], length - 2 tokens of the stream, [SEP]; or two segments, as `sentence_pairs` makes them. Each
epoch contains every row once, in the order of a keyed permutation, of which only the elements in use are computed:
memory and time do not grow with the corpus, except that pairs need the end of every document.
"""

from __future__ import annotations

import json
import mmap
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbench.data import tokenizer
from workbench.data.prepare import Prepared
from workbench.data.sentence_pairs import DRAWS, Pairs, document_ends
from workbench.errors import InputError
from workbench.rng import mixed, row_keys, seed_of, uniform
from workbench.spec.parts import PairKind
from workbench.spec.run_spec import RunSpec

if TYPE_CHECKING:
    from workbench.tensors import Batch

Words = NDArray[np.uint64]
ROUNDS = 6
KEPT_IN_MEMORY = 1 << 30  # bytes; a smaller corpus is soon wholly in memory, since the system reads ahead


def corpus_of(prepared: Prepared, spec: RunSpec) -> Corpus:
    """Return the training rows that a spec takes from its prepared text. Raises InputError as `Corpus` does."""
    return Corpus(prepared, spec.data.length, spec.seed, spec.data.pairs, spec.data.copies)


class Corpus:
    """A prepared corpus in batches of `rows` rows an epoch. Raises InputError if it is too small for one row."""

    def __init__(
        self, prepared: Prepared, length: int, seed: int, pairs: PairKind | None = None, copies: int | None = None
    ) -> None:
        self.prepared, self.length, self.seed, self.copies = prepared, length, seed, copies
        self.windows = prepared.tokens // (length - 2)
        if self.windows == 0:
            raise InputError(
                f"the corpus has {prepared.tokens} tokens, too few for one row of length {length}; add text or lower "
                f"data.length"
            )
        manifest = json.loads((prepared.folder / "manifest.json").read_text(encoding="utf-8"))
        dtype = np.dtype(manifest["dtype"])
        scattered = prepared.tokens * dtype.itemsize > KEPT_IN_MEMORY
        files = [prepared.folder / shard["name"] for shard in manifest["shards"]]
        self._shards = [_mapped(file, dtype, scattered) for file in files]
        self._starts = np.cumsum([0, *(len(shard) for shard in self._shards)])
        self._pairs = None if pairs is None else self._paired(pairs, document_ends(files, dtype, prepared.special.sep))
        self.rows = self.windows if self._pairs is None else len(self._pairs)

    def batch(self, position: int, rows: int, device: Any = "cpu") -> Batch:
        """Return `rows` training rows from `position` on: ids (rows, length), keys (rows,).

        Rows of pairs also have segments, labels and padding.
        """
        import torch

        from workbench.tensors import Batch, to_device

        places = positions = np.arange(position, position + rows, dtype=np.int64)
        numbers = self.order(positions)
        if self.copies is not None:  # a row has the same key in every epoch of the same copy
            places = numbers + self.rows * (positions // self.rows % self.copies)
        keys = row_keys(self.seed, torch.from_numpy(places))
        if self._pairs is None:
            ids = np.empty((rows, self.length), dtype=np.int64)
            ids[:, 0], ids[:, -1] = self.prepared.special.cls, self.prepared.special.sep
            ids[:, 1:-1] = self._read(numbers * (self.length - 2), self.length - 2)
            return Batch(ids=to_device(torch.from_numpy(ids), device), keys=to_device(keys, device))
        paired = self._pairs.rows(numbers, uniform(keys, "pairs", DRAWS).double().numpy())
        values = {name: to_device(torch.from_numpy(value), device) for name, value in paired._asdict().items()}
        return Batch(keys=to_device(keys, device), **values)

    def counts(self, rows: int = 1 << 14) -> NDArray[np.int64]:
        """Return the count (V,) of each token in `rows` rows spread over the corpus, independent of the seed."""
        return np.bincount(self._spread(rows).ravel(), minlength=self.prepared.vocab)

    def pairs(self, rows: int = 1 << 14) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the pairs of neighbours (P,), as left * V + right, and their counts (P,), in the rows of `counts`."""
        ids = self._spread(rows)
        return np.unique(ids[:, :-1] * self.prepared.vocab + ids[:, 1:], return_counts=True)

    def _spread(self, rows: int) -> NDArray[np.int64]:
        """Return at most `rows` rows (rows, length - 2) that are spread over the corpus, without [CLS] and [SEP]."""
        places = permuted(np.arange(min(rows, self.windows), dtype=np.int64), self.windows, seed_of(0, "counts"))
        return self._read(places * (self.length - 2), self.length - 2)

    def word_starts(self) -> NDArray[np.bool_]:
        """Return which tokens of the vocabulary begin a word, (V,)."""
        return tokenizer.word_starts(self.prepared.tokenizer, self.prepared.vocab)

    def order(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of the corpus at positions of training, (n,) each; every epoch has its own order."""
        epochs, places = np.divmod(positions, self.rows)
        rows = np.empty_like(positions)
        for epoch in np.unique(epochs):
            of_epoch = epochs == epoch
            rows[of_epoch] = permuted(places[of_epoch], self.rows, seed_of(self.seed, "order", int(epoch)))
        return rows

    def _paired(self, kind: PairKind, ends: NDArray[np.int64]) -> Pairs:
        starts = np.concatenate([[0], ends + 1])[:-1]
        enough = ends - starts >= 2
        marks = tokenizer.sentence_ends(self.prepared.tokenizer, self.prepared.vocab)
        return Pairs(
            kind, self.length, self.prepared.special, starts[enough], (ends - starts)[enough], marks, self._read
        )

    def _read(self, starts: NDArray[np.int64], width: int) -> NDArray[np.int64]:
        """Return the tokens (n, width) of the stream from each of `starts` (n,) on, and 0 after its end."""
        tokens = np.zeros((len(starts), width), dtype=np.int64)
        for line, start in zip(tokens, map(int, starts), strict=True):
            shard = int(np.searchsorted(self._starts, start, "right")) - 1
            place, end = start, min(start + width, self.prepared.tokens)
            while place < end:  # the tokens may be in several shards
                offset = place - int(self._starts[shard])
                part = self._shards[shard][offset : offset + end - place]
                line[place - start : place - start + len(part)] = part
                place, shard = place + len(part), shard + 1
        return tokens


def _mapped(path: Path, dtype: np.dtype[Any], scattered: bool) -> NDArray[Any]:
    """Return the tokens of a shard, memory-mapped, so that only those in use are read from the disk."""
    with open(path, "rb") as file:
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if scattered and hasattr(mmap, "MADV_RANDOM"):  # otherwise the system reads megabytes around each row
        pages.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(pages, dtype=dtype)


def permuted(places: NDArray[np.int64], size: int, key: int) -> NDArray[np.int64]:
    """Return the images (n,) of `places` (n,) under a permutation of range(size) that `key` selects.

    A Feistel network permutes the next power of two. A result outside the range is permuted again until it is inside,
    in fewer than two steps on average (cycle walking: Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
    """
    left = (size - 1).bit_length() // 2
    right = (size - 1).bit_length() - left
    keys = _round_keys(key)
    images = _feistel(places.astype(np.uint64), left, right, keys)
    while len(outside := np.flatnonzero(images >= size)):
        images[outside] = _feistel(images[outside], left, right, keys)
    return images.astype(np.int64)


@lru_cache(maxsize=16)  # a step permutes rows with the key of its epoch
def _round_keys(key: int) -> tuple[np.uint64, ...]:
    return tuple(np.uint64(seed_of(key, "round", number)) for number in range(ROUNDS))


def _feistel(value: Words, left: int, right: int, keys: tuple[np.uint64, ...]) -> Words:
    """Permute numbers of `left + right` bits. After an even number of ROUNDS the two halves have their widths again."""
    high, low = value >> np.uint64(right), value & np.uint64((1 << right) - 1)
    for key in keys:
        high, low = low, high ^ (mixed(low ^ key) & np.uint64((1 << left) - 1))
        left, right = right, left
    return (high << np.uint64(right)) | low
