"""Training rows as a pure function of their position, read from memory-mapped token shards.

A row is [CLS], length - 2 tokens of the stream, [SEP]; or two segments, as `Pairs` makes them. Each
epoch contains every row once, in the order of a keyed permutation, of which only the elements in use are computed:
memory and time do not grow with the corpus, except that pairs need the end of every document.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from workbench.data import tokenizer
from workbench.data.prepare import Prepared
from workbench.errors import InputError
from workbench.rng import mixed, row_keys, seed_of, uniform
from workbench.spec.parts import PairKind, Special
from workbench.spec.run_spec import RunSpec

if TYPE_CHECKING:
    from torch import Tensor

    from workbench.tensors import Batch

Words = NDArray[np.uint64]
ROUNDS = 6
KEPT_IN_MEMORY = 1 << 30  # bytes; a smaller corpus is soon wholly in memory, since the system reads ahead
OF_FREE_MEMORY = 0.1  # the largest share of a GPU's free memory that the tokens of a text may take
AHEAD = 1 << 12  # rows that are gathered there at once


def corpus_of(prepared: Prepared, spec: RunSpec) -> Corpus:
    """Return the training rows that a spec takes from its prepared text. Raises InputError as `Corpus` does."""
    return Corpus(prepared, spec.data.length, spec.seed, spec.data.pairs, spec.data.copies)


class Corpus:
    """A prepared corpus in batches of `rows` rows an epoch. Raises InputError as `Pairs` does."""

    def __init__(
        self, prepared: Prepared, length: int, seed: int, pairs: PairKind | None = None, copies: int | None = None
    ) -> None:
        self.prepared, self.length, self.seed, self.copies = prepared, length, seed, copies
        self.windows = prepared.tokens // (length - 2)
        manifest = json.loads((prepared.folder / "manifest.json").read_text(encoding="utf-8"))
        dtype = np.dtype(manifest["dtype"])
        scattered = prepared.tokens * dtype.itemsize > KEPT_IN_MEMORY
        files, self._shards = list[Path](), list[NDArray[Any]]()
        for shard in manifest["shards"]:
            files.append(prepared.folder / shard["name"])
            with open(files[-1], "rb") as file:  # memory-mapped, so that only tokens in use are read from the disk
                pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if scattered and hasattr(mmap, "MADV_RANDOM"):  # otherwise the system reads megabytes around each row
                pages.madvise(mmap.MADV_RANDOM)
            self._shards.append(np.frombuffer(pages, dtype=dtype))
        self._starts = np.cumsum([0, *map(len, self._shards)])
        self._pairs = None if pairs is None else self._paired(pairs, document_ends(files, dtype, prepared.special.sep))
        self.rows = self.windows if self._pairs is None else len(self._pairs)
        self._tokens: Tensor | None = None  # (tokens,) on a GPU
        self._ahead: tuple[int, Tensor, Tensor] | None = None  # a position, and ids and keys of the rows from there on

    def hold(self, device: Any, free: int | None = None) -> bool:
        """Keep the tokens on a device, and take batches for it there from now on. Return whether this is done.

        It is if they take at most OF_FREE_MEMORY of the device's `free` bytes, which are looked up for a GPU. Runs of a
        process on the same text share them. Rows of pairs are made in main memory. The numbers are the same either way.
        """
        if self._pairs is None and self._tokens is None:
            import torch

            key = str(self.prepared.folder), str(device)
            self._tokens = _held.get(key)
            size = sum(shard.nbytes for shard in self._shards)
            if self._tokens is None and size <= OF_FREE_MEMORY * (free or torch.cuda.mem_get_info(device)[0]):
                _held[key] = self._tokens = _copied(self._shards, device)
        return self._tokens is not None

    def batch(self, position: int, rows: int, device: Any = "cpu") -> Batch:
        """Return `rows` training rows from `position` on: ids (rows, length), keys (rows,).

        Rows of pairs also have segments, labels and padding.
        """
        import torch

        from workbench.tensors import Batch, to_device

        if self._tokens is not None and self._ahead is not None:
            first, rows_ahead, keys_ahead = self._ahead
            part = slice(position - first, position - first + rows)
            if part.start >= 0 and part.stop <= len(keys_ahead):
                return Batch(ids=rows_ahead[part].clone(), keys=keys_ahead[part].clone())
        count = rows if self._tokens is None else max(rows, AHEAD)
        places = positions = np.arange(position, position + count, dtype=np.int64)
        numbers = self.order(positions)
        if self.copies is not None:  # a row has the same key in every epoch of the same copy
            places = numbers + self.rows * (positions // self.rows % self.copies)
        keys = row_keys(self.seed, torch.from_numpy(places))
        if self._tokens is not None:
            starts = to_device(torch.from_numpy(numbers * (self.length - 2)), device)
            self._ahead = position, self._gathered(self._tokens, starts), to_device(keys, device)
            return self.batch(position, rows, device)
        if self._pairs is None:
            ids = np.empty((rows, self.length), dtype=np.int64)
            ids[:, 0], ids[:, -1] = self.prepared.special.cls, self.prepared.special.sep
            ids[:, 1:-1] = self._read(numbers * (self.length - 2), self.length - 2)
            return Batch(ids=to_device(torch.from_numpy(ids), device), keys=to_device(keys, device))
        paired = self._pairs.rows(numbers, uniform(keys, "pairs", DRAWS).double().numpy())
        values = {name: to_device(torch.from_numpy(value), device) for name, value in paired._asdict().items()}
        return Batch(keys=to_device(keys, device), **values)

    def _gathered(self, tokens: Tensor, starts: Tensor) -> Tensor:
        """Return rows (n, length) of the stream `tokens` (tokens,), whose text is from `starts` (n,) on."""
        import torch

        text = tokens[starts[:, None] + torch.arange(self.length - 2, device=starts.device)]
        ids = torch.empty((len(starts), self.length), dtype=torch.int64, device=starts.device)
        ids[:, 0], ids[:, -1] = self.prepared.special.cls, self.prepared.special.sep
        ids[:, 1:-1] = text.to(torch.int64) & ((1 << 8 * tokens.itemsize) - 1)  # without the sign
        return ids

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


_held: WeakValueDictionary[tuple[str, str], Tensor] = WeakValueDictionary()  # by folder and device, while runs use them


def _copied(shards: Sequence[NDArray[Any]], device: Any) -> Tensor:
    """Return the tokens of all shards as one tensor (tokens,) on a device, in torch's signed type of the same size."""
    import torch

    signed = {2: torch.int16, 4: torch.int32}[shards[0].itemsize]  # torch computes little with unsigned numbers
    tokens, place = torch.empty(sum(map(len, shards)), dtype=signed, device=device), 0
    for shard in shards:
        for start in range(0, len(shard), BLOCK):
            part = np.array(shard[start : start + BLOCK]).view(f"i{shard.itemsize}")
            tokens[place : place + len(part)].copy_(torch.from_numpy(part))
            place += len(part)
    if tokens.is_cuda:
        torch.cuda.current_stream(device).synchronize()  # other streams may read them from now on
    return tokens


_round_key = lru_cache(maxsize=256)(seed_of)  # each step permutes its rows with the keys of its epoch


def permuted(places: NDArray[np.int64], size: int, key: int) -> NDArray[np.int64]:
    """Return the images (n,) of `places` (n,) under a permutation of range(size) that `key` selects.

    A Feistel network permutes the next power of two. A result outside the range is permuted again until it is inside,
    in fewer than two steps on average (cycle walking: Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
    """
    left = (size - 1).bit_length() // 2
    right = (size - 1).bit_length() - left
    keys = list[np.uint64]()
    for number in range(ROUNDS):
        keys.append(np.uint64(_round_key(key, "round", number)))
    images = _feistel(places.astype(np.uint64), left, right, keys)
    while len(outside := np.flatnonzero(images >= size)):
        images[outside] = _feistel(images[outside], left, right, keys)
    return images.astype(np.int64)


def _feistel(value: Words, left: int, right: int, keys: Sequence[np.uint64]) -> Words:
    """Permute numbers of `left + right` bits. After an even number of ROUNDS the two halves have their widths again."""
    high, low = value >> np.uint64(right), value & np.uint64((1 << right) - 1)
    for key in keys:
        high, low = low, high ^ (mixed(low ^ key) & np.uint64((1 << left) - 1))
        left, right = right, left
    return (high << np.uint64(right)) | low


# ----------------------------------------
# Rows of two segments, [CLS] A [SEP] B [SEP], made from the stream of tokens while they are read.
#
# `next`: B is what follows A, or in half of the rows text of another document (Devlin et al. 2019, section 3.1;
# google-research/bert, `create_pretraining_data.py`). `order`: B follows A, or A follows B in half of the rows (Lan et
# al. 2020, section 3.1; google-research/albert, `create_pretraining_data.py`).
#
# Rows differ from those of the scripts, which read sentences. Here a sentence ends with a token ".", "!" or "?", since
# the stream has no other marks. The scripts gather sentences until they fill a row and drop what is too much from the
# longer segment, so that lengths and ends of segments tell something about the label (docs/log.md). Here a document is
# divided into rows in equal steps; the cut is where a sentence begins, near a random place of the row; and the lengths
# of segments, and whether they begin and end with a sentence, do not depend on the label. If no sentence begins near
# the cut, or near the random B, both are at any token. So no row is a random pair because it holds a single sentence,
# and half of the pairs are taken apart. A row is full unless its document is shorter, or it is one of the tenth that
# have a random length, as in the scripts.
#
# n rows, L tokens of a row, W of a window, D documents, V size of the vocabulary. Offsets are places in a document.

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Segments = Ints  # (2, n): the first column and the number of tokens of a segment
Read = Callable[[Ints, int], Ints]  # tokens (n, W) of the stream from positions (n,) on, 0 after its end
OTHERS = 3  # tokens of a row that are not text: [CLS] and two [SEP]
SHORT = 0.1  # the share of rows that are cut to a random length (short_seq_prob of the scripts)
DRAWS = 7  # random numbers of a row
BLOCK = 1 << 24  # tokens that are searched for ends of documents at once


class Rows(NamedTuple):
    """Rows of pairs: ids (n, L), segments (n, L) 0 or 1, attention (n, L), and whether B does not follow A (n,)."""

    ids: Ints
    segments: Ints
    attention: Bools
    broken: Bools


class Window(NamedTuple):
    """Parts of documents: tokens (n, W), their offsets (n, W), and where sentences begin (n, W).

    `place` (n,) is the sentence start nearest to the middle, or the middle if there is none `near` (n,) it.
    """

    tokens: Ints
    offsets: Ints
    begins: Bools
    place: Ints
    near: Bools


@dataclass
class Pairs:
    """The rows of one epoch. `starts` and `sizes` (D,) of documents in the stream do not count their [SEP].

    `ends_sentence` (V,) is true for tokens that end a sentence. Raises InputError for fewer than two documents.
    """

    kind: PairKind
    length: int
    special: Special
    starts: Ints
    sizes: Ints
    ends_sentence: Bools
    read: Read

    def __post_init__(self) -> None:
        if len(self.sizes) < 2:
            raise InputError(
                f"data.pairs={self.kind} needs two or more documents of at least two tokens, and the corpus has "
                f"{len(self.sizes)}; separate documents by empty lines, or add text"
            )

        self.room = self.length - OTHERS  # tokens of text in a row at most
        self._texts = -(-self.sizes // self.room)  # rows (D,) into which each document is divided
        self._last = np.cumsum(self._texts)  # rows (D,) up to the end of each document

    def __len__(self) -> int:
        return int(self._last[-1])

    def rows(self, numbers: Ints, draws: NDArray[np.float64]) -> Rows:
        """Return the rows with these numbers (n,), for random numbers draws (n, DRAWS) on [0, 1)."""
        short, length, split, label, other, place, coin = draws.T
        document = np.searchsorted(self._last, numbers, side="right")
        nth, size = numbers - self._last[document] + self._texts[document], self.sizes[document]
        target = np.minimum(np.where(short < SHORT, 2 + _below(length, self.room - 1), self.room), size)
        first = 1 + _below(split, target - 1)  # tokens of A
        middle = first + nth * (size - target) // np.maximum(self._texts[document] - 1, 1)
        text, broken = self._window(document, middle, np.ones_like(size), size - 1), label < 0.5
        if self.kind == "order":
            a, b = _ended_alike(text, middle, first, target, size, coin < 0.5)
            return self._framed(text.tokens, np.where(broken, b, a), np.where(broken, a, b), broken)
        others = _below(other, len(self.sizes) - 1)
        others += others >= document
        high = np.maximum(self.sizes[others] - self.room, 0)
        random = self._window(others, _below(place, high + 1), np.zeros_like(size), high)
        near = text.near & random.near
        cut, begin = np.where(near, text.place, middle), np.where(near, random.place, _below(place, high + 1))
        first = first.clip(target - size + cut, cut)
        second = np.minimum(target - first, self.sizes[others] - begin)
        start, width = text.offsets[:, 0], text.tokens.shape[1]
        second_start = np.where(broken, begin - random.offsets[:, 0] + width, cut - start)
        tokens = np.concatenate([text.tokens, random.tokens], axis=1)
        return self._framed(tokens, np.stack([cut - first - start, first]), np.stack([second_start, second]), broken)

    def _window(self, document: Ints, middle: Ints, low: Ints, high: Ints) -> Window:
        """Return parts of documents (n,) around the offsets `middle` (n,), with places from low (n,) to high (n,)."""
        starts, size = self.starts[document], self.sizes[document]
        first = np.maximum(starts + middle - 2 * self.room, 0)
        tokens = self.read(first, 4 * self.room)
        offsets = (first - starts)[:, None] + np.arange(4 * self.room)
        begins = offsets == 0
        begins[:, 1:] |= self.ends_sentence[tokens[:, :-1]]
        begins &= (offsets >= 0) & (offsets < size[:, None])
        allowed = begins & (offsets >= low[:, None]) & (offsets <= high[:, None])
        far = np.where(allowed, np.abs(offsets - middle[:, None]), 4 * self.room)
        near = far.min(1) <= self.room // 2
        place = np.take_along_axis(offsets, far.argmin(1)[:, None], axis=1)[:, 0]
        return Window(tokens, offsets, begins, np.where(near, place, middle), near)

    def _framed(self, tokens: Ints, a: Segments, b: Segments, broken: Bools) -> Rows:
        """Return the rows [CLS] a [SEP] b [SEP] and padding, where a and b are columns of tokens (n, any width)."""
        special, columns = self.special, np.arange(self.length)
        (start_a, size_a), (start_b, size_b) = ((start[:, None], size[:, None]) for start, size in (a, b))
        place = np.where(columns <= size_a, start_a + columns - 1, start_b + columns - size_a - 2)
        ids = np.take_along_axis(tokens, place.clip(0, tokens.shape[1] - 1), axis=1)
        end = size_a + size_b + 2
        ids[:, 0] = special.cls
        ids[(columns == size_a + 1) | (columns == end)] = special.sep
        ids[columns > end] = special.pad
        segments = ((columns > size_a + 1) & (columns <= end)).astype(np.int64)
        return Rows(ids, segments, columns <= end, broken)


def _ended_alike(
    text: Window, middle: Ints, first: Ints, target: Ints, size: Ints, backward: Bools
) -> tuple[Segments, Segments]:
    """Return segments with `target` (n,) tokens, about `first` (n,) in the first, in the order of the text.

    Where `backward` (n,), both end with a sentence, else both begin with one, so that their ends do not tell which is
    which; tokens between the two are dropped. Without a sentence near, both begin and end anywhere.
    """
    offsets, start, cut = text.offsets, text.offsets[:, 0], text.place
    a = first.clip(target - size + cut, cut)
    begin, end, reach = (cut - a)[:, None], (cut + target - a)[:, None], offsets.shape[1] // 8
    edges = text.begins | (offsets == size[:, None])
    earlier = edges & (offsets <= begin) & (offsets >= begin - reach)
    later = edges & (offsets >= end) & (offsets <= end + reach)
    alike = text.near & np.where(backward, later.any(1), earlier.any(1))
    begins = offsets.shape[1] - 1 - earlier[:, ::-1].argmax(1)  # the column of the last that is early enough
    a = np.where(alike, a, first)
    start_a = np.where(alike & ~backward, begins, np.where(alike, cut, middle) - a - start)
    ends = np.where(alike & backward, later.argmax(1), np.where(alike, cut, middle) + target - a - start)
    return np.stack([start_a, a]), np.stack([ends - target + a, target - a])


def document_ends(files: Iterable[Path], dtype: np.dtype[Any], sep: int) -> Ints:
    """Return the positions in the stream of the [SEP] after each document, from its files in order."""
    ends, before = [np.empty(0, dtype=np.int64)], 0
    for path in files:
        with open(path, "rb") as file:
            while len(block := np.fromfile(file, dtype, BLOCK)):
                ends.append(np.flatnonzero(block == sep) + before)
                before += len(block)
    return np.concatenate(ends)


def _below(draws: NDArray[np.float64], limit: Ints | int) -> Ints:
    """Return whole numbers (n,) from 0 to below `limit`, from draws (n,) on [0, 1)."""
    numbers: Ints = (draws * limit).astype(np.int64)
    return numbers
