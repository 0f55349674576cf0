"""Rows of two segments, [CLS] A [SEP] B [SEP], made from the stream of tokens while they are read.

`next`: B is what follows A, or in half of the rows text of another document (Devlin et al. 2019, section 3.1;
google-research/bert, `create_pretraining_data.py`). `order`: B follows A, or A follows B in half of the rows (Lan et
al. 2020, section 3.1; google-research/albert, `create_pretraining_data.py`).

Rows differ from those of the scripts, which read sentences. Here a sentence ends with a token ".", "!" or "?", since
the stream has no other marks. The scripts gather sentences until they fill a row and drop what is too much from the
longer segment, so that lengths and ends of segments tell something about the label (docs/log.md). Here a document is
divided into rows in equal steps; the cut is where a sentence begins, near a random place of the row; and the lengths of
segments, and whether they begin and end with a sentence, do not depend on the label. If no sentence begins near the
cut, or near the random B, both are at any token. So no row is a random pair because it holds a single sentence, and
half of the pairs are taken apart. A row is full unless its document is shorter, or it is one of the tenth that have a
random length, as in the scripts.

n rows, L tokens of a row, W of a window, D documents, V size of the vocabulary. Offsets are places in a document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.errors import InputError
from workbench.spec.parts import PairKind, Special

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

    `place` (n,) is the beginning of a sentence that is nearest to the middle, or the middle if none is `near` (n,) it.
    """

    tokens: Ints
    offsets: Ints
    begins: Bools
    place: Ints
    near: Bools


@dataclass
class Pairs:
    """The rows of one epoch. `starts` and `sizes` (D,) are those of documents in the stream, without their [SEP].

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
