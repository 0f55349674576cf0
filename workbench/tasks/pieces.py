"""Texts and words as pieces (subwords), and long texts as windows that overlap by half, so that nothing is cut off.

Each word is tokenized by itself, in the form that it has after a blank. So fast and slow tokenizers give the same
alignment, and no piece belongs to two words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from workbench.data import hugging_face
from workbench.data.tokenizer import load_published_tokenizer
from workbench.errors import InputError
from workbench.tasks.finetuning.classifier import row_length
from workbench.tasks.finetuning.token_batches import Encoded

SHORTEST = 4  # pieces of text that a row must hold; an encoder with fewer positions cannot be used
LEAD = "a"  # text before a word when it is tokenized, so that it follows a blank
REFUSED = "holds a tokenizer that cannot read this task's texts"

Pieces = list[Any]  # arrays (pieces,) int64 of a text, without special tokens


@dataclass(frozen=True)
class Splitter:
    """The tokenizer of a folder. `before` and `after` are the special tokens around a text."""

    folder: Path
    tokenizer: Any
    before: tuple[int, ...]
    after: tuple[int, ...]
    room: int  # pieces of text in a row


def open_splitter(folder: Path, config: Any, length: int, use: str) -> Splitter:
    """Return the tokenizer of an encoder's folder, for rows of at most `length` tokens.

    `config` holds the encoder's settings; `use` names what needs the rows in the message. Raises InputError.
    """
    return splitter(folder, load_published_tokenizer(folder), row_length(folder, config, length), use)


def splitter(folder: Path, tokenizer: Any, length: int, use: str) -> Splitter:
    """Return the tokenizer of a folder, for rows of exactly this many tokens at most. Raises InputError."""
    with hugging_face.refusing(folder, REFUSED):
        before, after = _frame(tokenizer)
    room = length - len(before) - len(after)
    if room < SHORTEST:
        raise InputError(
            f"{folder}: {room} pieces of a text fit into a row, and {use} needs {SHORTEST}; "
            f"try a larger --set tasks.length="
        )
    return Splitter(folder, tokenizer, before, after, room)


def _frame(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the special tokens that a tokenizer puts before and after a text."""
    bare, whole = (list(tokenizer(LEAD, add_special_tokens=special)["input_ids"]) for special in (False, True))
    for start in range(len(whole) - len(bare) + 1):
        if bare and whole[start : start + len(bare)] == bare:
            return tuple(whole[:start]), tuple(whole[start + len(bare) :])
    return (), ()


def text_pieces(splitter: Splitter, texts: Sequence[str]) -> Pieces:
    """Return the pieces of each text, cut to one row, as in fine-tuning; at least one piece each."""
    ids_of_texts = _ids(splitter, list(texts))
    return [np.array(ids[: splitter.room] or [unknown(splitter)], dtype=np.int64) for ids in ids_of_texts]


def word_pieces(splitter: Splitter, sentences: Sequence[Sequence[str]]) -> tuple[Pieces, Pieces]:
    """Return the pieces of each sentence, and the position of each word's first piece.

    A word without pieces is read as the unknown token.
    """
    known = pieces_of_words(splitter, sorted({word for words in sentences for word in words}))
    return aligned(known, sentences, unknown(splitter))


def pieces_of_words(splitter: Splitter, words: list[str]) -> dict[str, list[int]]:
    """Return the pieces of each word in the form that it has after a blank; a word may have none."""
    lead = _ids(splitter, [LEAD])[0]
    after, alone = _ids(splitter, [f"{LEAD} {word}" for word in words]), _ids(splitter, words)
    pieces_of = {}
    for word, ids, bare in zip(words, after, alone, strict=True):
        pieces = ids[len(lead) :] if ids[: len(lead)] == lead else bare
        pieces_of[word] = pieces or bare
    return pieces_of


def aligned(
    known: Mapping[str, list[int]], sentences: Sequence[Sequence[str]], instead: int
) -> tuple[Pieces, Pieces]:  # fmt: skip
    """Return the pieces of each sentence from those of its words, and the position of each word's first piece.

    `instead` is the piece of a word that has none.
    """
    rows, firsts = [], []
    for words in sentences:
        parts = [known[word] or [instead] for word in words]
        rows.append(np.array([piece for part in parts for piece in part], dtype=np.int64))
        firsts.append(np.cumsum([0, *map(len, parts)])[:-1])
    return rows, firsts


def _ids(splitter: Splitter, texts: list[str]) -> list[list[int]]:
    """Return the token ids of each text, without special tokens.

    Raises InputError for a tokenizer that takes too long.
    """
    work = partial(splitter.tokenizer, texts, add_special_tokens=False, verbose=False)
    ids: list[list[int]] = hugging_face.in_time(work, sum(map(len, texts)), splitter.folder)["input_ids"]
    return ids


def unknown(splitter: Splitter) -> int:
    """Return the id that stands for a text or word without pieces."""
    tokenizer = splitter.tokenizer
    ids = (tokenizer.unk_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id)
    return next((i for i in ids if i is not None), 0)


# ---- windows ----


def windows(splitter: Splitter, rows: Pieces, indices: Pieces) -> tuple[Encoded, list[tuple[Any, Any]]]:
    """Return the rows as windows with special tokens, and which states of each are used.

    `indices` holds the index of each piece of a row, -1 for a piece whose state is not used. For each window there are
    the positions of the states, and the index of each. Every index is in one window.
    """
    ids, places = [], []
    for row, target in zip(rows, indices, strict=True):
        for start, first, last in cuts(len(row), splitter.room):
            window = row[start : start + splitter.room]
            ids.append(np.concatenate([splitter.before, window, splitter.after]).astype(np.int64))
            used = np.arange(first, last)[target[first:last] >= 0]
            places.append((used - start + len(splitter.before), target[used]))
    pad = splitter.tokenizer.pad_token_id or 0
    return Encoded(ids, None, np.zeros(len(ids), dtype=np.int64), pad), places


def cuts(pieces: int, room: int) -> list[tuple[int, int, int]]:
    """Return the start of each window, and the first piece and the end of the pieces whose states are taken from it.

    Windows begin half a row apart. States are taken from the middle half of a window, and at the ends of a text
    also from beyond it.
    """
    half, quarter = room // 2, room // 4
    starts = [0]
    while starts[-1] + room < pieces:
        starts.append(starts[-1] + half)
    firsts = [0, *(start + quarter for start in starts[1:])]
    return list(zip(starts, firsts, [*firsts[1:], pieces], strict=True))
