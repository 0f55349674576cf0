"""Rows for training as a pure function of their position, over memory-mapped token shards.

A row is [CLS], length - 2 tokens of the stream, [SEP]. Each epoch takes every row once, in the order of a keyed
permutation that is computed where it is needed: memory and time do not grow with the corpus.
"""

from __future__ import annotations

import json
import mmap
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbench.data.prepare import Prepared
from workbench.errors import InputError
from workbench.rng import mixed, row_keys, seed_of

if TYPE_CHECKING:
    from workbench.tensors import Batch

Words = NDArray[np.uint64]
ROUNDS = 6
KEPT_IN_MEMORY = 1 << 30  # bytes; below it, the system's reading ahead soon has the whole corpus in memory


class Corpus:
    """Batches of a prepared corpus. `rows` is their number in an epoch; the last, incomplete row is left out."""

    def __init__(self, prepared: Prepared, length: int, seed: int) -> None:
        self.prepared, self.length, self.seed = prepared, length, seed
        self.rows = prepared.tokens // (length - 2)
        if self.rows == 0:
            raise InputError(f"the corpus has {prepared.tokens} tokens, too few for one row of length {length}")
        manifest = json.loads((prepared.folder / "manifest.json").read_text(encoding="utf-8"))
        dtype = np.dtype(manifest["dtype"])
        scattered = prepared.tokens * dtype.itemsize > KEPT_IN_MEMORY
        files = [prepared.folder / shard["name"] for shard in manifest["shards"]]
        self._shards = [_mapped(file, dtype, scattered) for file in files]
        self._starts = np.cumsum([0, *(len(shard) for shard in self._shards)])

    def batch(self, position: int, rows: int, device: Any = "cpu") -> Batch:
        """Rows `position` to `position + rows` of training: ids (rows, length), keys (rows,), all positions real."""
        import torch

        from workbench.tensors import Batch

        positions = np.arange(position, position + rows, dtype=np.int64)
        ids = np.empty((rows, self.length), dtype=np.int64)
        ids[:, 0], ids[:, -1] = self.prepared.special.cls, self.prepared.special.sep
        for line, row in zip(ids, self.order(positions), strict=True):
            self._fill(line[1:-1], int(row) * (self.length - 2))
        keys = row_keys(self.seed, torch.from_numpy(positions))
        return Batch(ids=torch.from_numpy(ids).to(device, non_blocking=True), keys=keys.to(device, non_blocking=True))

    def counts(self, rows: int = 1 << 14) -> NDArray[np.int64]:
        """How often each word occurs (V,), in `rows` rows from all over the corpus, or in all where it has no more.

        A function of the corpus alone, whatever the seed.
        """
        places = np.arange(min(rows, self.rows), dtype=np.int64)
        ids = np.empty((len(places), self.length - 2), dtype=np.int64)
        for line, row in zip(ids, permuted(places, self.rows, seed_of(0, "counts")), strict=True):
            self._fill(line, int(row) * (self.length - 2))
        return np.bincount(ids.ravel(), minlength=self.prepared.vocab)

    def order(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of the corpus at these positions of training; each epoch is an order of its own."""
        epochs, places = np.divmod(positions, self.rows)
        found = np.empty_like(positions)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            found[here] = permuted(places[here], self.rows, seed_of(self.seed, "order", int(epoch)))
        return found

    def _fill(self, line: NDArray[np.int64], start: int) -> None:
        """Copy tokens of the stream from `start` on; they may lie across the end of a shard."""
        shard = int(np.searchsorted(self._starts, start, side="right")) - 1
        done = 0
        while done < len(line):
            offset = start + done - int(self._starts[shard])
            part = self._shards[shard][offset : offset + len(line) - done]
            line[done : done + len(part)] = part
            done, shard = done + len(part), shard + 1


def _mapped(path: Path, dtype: np.dtype[Any], scattered: bool) -> NDArray[Any]:
    """The tokens of a shard, read from the disk where they are looked at."""
    with open(path, "rb") as file:
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if scattered and hasattr(mmap, "MADV_RANDOM"):  # else each row brings in megabytes of neighbours
        pages.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(pages, dtype=dtype)


def permuted(places: NDArray[np.int64], size: int, key: int) -> NDArray[np.int64]:
    """Where a permutation of range(size), chosen by `key`, takes `places`.

    A Feistel network permutes the next power of two; what falls outside walks on along its cycle until it is inside
    (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"), in fewer than two steps on average.
    """
    left = (size - 1).bit_length() // 2
    right = (size - 1).bit_length() - left
    keys = _round_keys(key)
    found = _feistel(places.astype(np.uint64), left, right, keys)
    while len(outside := np.flatnonzero(found >= size)):
        found[outside] = _feistel(found[outside], left, right, keys)
    return found.astype(np.int64)


@lru_cache(maxsize=16)
def _round_keys(key: int) -> tuple[np.uint64, ...]:
    return tuple(np.uint64(seed_of(key, "round", number)) for number in range(ROUNDS))


def _feistel(value: Words, left: int, right: int, keys: tuple[np.uint64, ...]) -> Words:
    """A permutation of `left + right` bits: the halves change places ROUNDS times, so both have their width again."""
    high, low = value >> np.uint64(right), value & _ones(right)
    for key in keys:
        high, low = low, high ^ (mixed(low ^ key) & _ones(left))
        left, right = right, left
    return (high << np.uint64(right)) | low


def _ones(bits: int) -> np.uint64:
    return np.uint64((1 << bits) - 1)
