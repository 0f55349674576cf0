"""Sentences of words as rows of token ids: in windows where they are long, each word being read in exactly one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.tasks.finetuning.token_batches import Encoded
from workbench.tasks.pieces import Splitter, aligned, pieces_of_words, unknown, windows
from workbench.tensors import to_device


@dataclass(frozen=True)
class WordWindows:
    """R rows of token ids in which W words are read, each at one position of one row.

    `places` holds for each row the positions at which words are read, and the numbers of these words, 0 to W - 1 in
    the order of the text. `empty` is the number of words without pieces, which are read as the unknown token.
    """

    rows: Encoded
    places: list[tuple[Any, Any]]
    count: int
    empty: int

    def batch(self, rows: Any, device: str) -> tuple[dict[str, Tensor], Tensor, Any]:
        """Return the inputs (B, L) of the encoder by name, where the words of these rows are, and their numbers.

        The places are indices (words of the batch,) into the positions of all rows (B * L,), row after row.
        """
        inputs, _ = self.rows.batch(rows, device)
        width = inputs["input_ids"].shape[1]
        flat = np.concatenate([line * width + self.places[row][0] for line, row in enumerate(rows)])
        return inputs, to_device(torch.from_numpy(flat), device), np.concatenate([self.places[row][1] for row in rows])


def word_windows(splitter: Splitter, sentences: Sequence[Sequence[str]], last: bool) -> WordWindows:
    """Return sentences as rows. A word is read at its first piece, or with `last` at its last one."""
    vocabulary = sorted({word for words in sentences for word in words})
    known = pieces_of_words(splitter, vocabulary)
    rows, firsts = aligned(known, sentences, unknown(splitter))
    indices, count = [], 0
    for row, first in zip(rows, firsts, strict=True):
        index = np.full(len(row), -1)
        index[np.append(first[1:], len(row)) - 1 if last else first] = np.arange(count, count + len(first))
        indices.append(index)
        count += len(first)
    data, places = windows(splitter, rows, indices)
    used = [row for row, (positions, _) in enumerate(places) if len(positions)]
    empty = sum(not known[word] for words in sentences for word in words)
    kept = Encoded([data.ids[row] for row in used], None, data.targets[used], data.pad)
    return WordWindows(kept, [places[row] for row in used], count, empty)
