"""Token ids of the texts of a task, and their batches, each padded to its longest row."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.data import hugging_face, model_files
from workbench.data.tokenizer import load_published_tokenizer
from workbench.errors import InputError
from workbench.progress import counted
from workbench.rng import seed_of
from workbench.tasks.common.examples import Examples, Span, Spans, Task
from workbench.tensors import to_device

TOKENS = 8192  # most tokens of a batch that is only read, padding included
POOL = 16  # number of batches whose rows are sorted by length together
PIECE, CHARACTERS = 1000, 1 << 20  # rows and characters in one call of a tokenizer
_CACHED = 16  # tasks whose ids are cached between calls
_memory: dict[tuple[str, str, int], dict[str, Encoded]] = {}


@dataclass(frozen=True)
class Encoded:
    """N rows of token ids with [CLS] and [SEP], each of its own length."""

    ids: list[Any]  # arrays (length,) int64
    types: list[Any] | None  # segment ids of each row, None if the model has no segments
    targets: Any  # (N,) int64, float64 in a regression, (N, labels) float32 with several labels a row
    pad: int  # id of the padding token
    spans: Any = None  # (N, 2, 2), first positions and ends of two spans of tokens, None if no spans are marked

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> Any:
        """The number of tokens of each row, an array (N,)."""
        return np.array([len(ids) for ids in self.ids])

    def batch(self, rows: Any, device: str) -> tuple[dict[str, Tensor], Tensor]:
        """Return the inputs of the model by name, and the targets of these rows, in a regression as float32.

        Inputs of the encoder are tensors (B, longest); `spans` (B, 2, 2) are for a head.
        """
        lengths = [len(self.ids[i]) for i in rows]
        shape = (len(rows), max(lengths))
        ids, types = np.full(shape, self.pad), np.zeros(shape, dtype=np.int64)
        for place, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            ids[place, :length] = self.ids[row]
            if self.types is not None:
                types[place, :length] = self.types[row]
        inputs = {"input_ids": ids}
        if min(lengths) < shape[1]:  # padding is on the right, also if the tokenizer pads on the left
            inputs["attention_mask"] = (np.arange(shape[1]) < np.array(lengths)[:, None]).astype(np.int64)
        if self.types is not None:
            inputs["token_type_ids"] = types
        if self.spans is not None:
            inputs["spans"] = self.spans[rows]
        tensors = {name: to_device(torch.from_numpy(array), device) for name, array in inputs.items()}
        targets = torch.from_numpy(self.targets[rows])
        return tensors, to_device(targets.float() if targets.is_floating_point() else targets, device)


def encode(folder: Path, task: Task, length: int) -> dict[str, Encoded]:
    """Return the encoded parts of a task, "train" first, from a cache if they were encoded before.

    Rows are truncated to `length` tokens, the longer text of a pair first. Raises InputError for a folder without a
    usable tokenizer, and for rows too short to hold two marked spans.
    """
    parts = {"train": task.train, **task.tests}
    if task.train.spans is not None:
        reader = open_splitter(folder, length, "a task of marked spans")
        return {part: _marked(reader, rows, task.array(rows)) for part, rows in parts.items()}
    files = hugging_face.check_tokenizer_folder(folder)
    content = b"\0".join(files[name].read_bytes() for name in sorted(files))
    key = (hashlib.sha256(content).hexdigest(), task.fingerprint, length)
    if key not in _memory:
        while len(_memory) >= _CACHED:
            _memory.pop(next(iter(_memory)))
        tokenizer = load_published_tokenizer(folder)
        _memory[key] = {
            part: _encode(tokenizer, rows, task.array(rows), length, folder) for part, rows in parts.items()
        }
    return _memory[key]


def encode_rows(folder: Path, rows: Examples, length: int) -> Encoded:
    """Return rows as token ids with targets of 0. Nothing is cached."""
    return _encode(load_published_tokenizer(folder), rows, np.zeros(len(rows), dtype=np.int64), length, folder)


def check_ids(folder: Path, parts: Iterable[Encoded], encoder: Any) -> None:
    """Raise InputError if a token id, padding included, is not in the vocabulary of an encoder of transformers."""
    for data in parts:
        check_tokens(folder, [*data.ids, [data.pad]], encoder.get_input_embeddings().num_embeddings)


def check_tokens(folder: Path, rows: Iterable[Any], vocabulary: int) -> None:
    """Raise InputError if a token id in some rows is not in the encoder's vocabulary of `vocabulary` entries."""
    ends = (id for ids in rows if len(ids) for id in (np.min(ids), np.max(ids)))
    wrong = next((int(id) for id in ends if not 0 <= id < vocabulary), None)
    if wrong is not None:
        raise InputError(
            f"{folder}: the tokenizer gives the id {wrong}, and the encoder has ids 0 to {vocabulary - 1}; tokenizer "
            f"and encoder do not belong together"
        )


def _encode(tokenizer: Any, examples: Examples, targets: Any, length: int, folder: Path) -> Encoded:
    """Return examples as rows of at most `length` token ids.

    If the tokenizer adds no special tokens to a pair, as GPT-2's, a separating token is put before the second text.
    """
    apart: int | None = None
    if examples.second is not None and tokenizer.is_fast and not tokenizer.num_special_tokens_to_add(pair=True):
        apart = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    room = length - (apart is not None)
    rows: list[list[int]] = []
    segments: list[list[int]] = []
    for part, characters in pieces(examples, folder):
        work = partial(tokenizer, part.first, part.second, truncation="longest_first", max_length=room)
        encoding = model_files.in_time(work, characters, folder)
        for number, ids in enumerate(encoding["input_ids"]):
            if apart is not None:
                texts = encoding.sequence_ids(number)
                start = texts.index(1) if 1 in texts else len(ids)
                ids = [*ids[:start], apart, *ids[start:]]
            rows.append(ids)
        segments += encoding.get("token_type_ids") or []
    types = segments if apart is None and segments and "token_type_ids" in tokenizer.model_input_names else None
    empty = [_first_id(tokenizer, "eos", "bos", "unk")]
    arrays = [np.array(ids or empty, dtype=np.int64) for ids in rows]
    segments_of = None if types is None else [np.array(row or [0], dtype=np.int64) for row in types]
    return Encoded(arrays, segments_of, targets, tokenizer.pad_token_id or 0)


def _first_id(tokenizer: Any, *kinds: str) -> int:
    """Return the id of the first special token that a tokenizer has, or 0."""
    ids = (getattr(tokenizer, f"{kind}_token_id") for kind in kinds)
    return next((id for id in ids if id is not None), 0)


def pieces(examples: Examples, folder: Path) -> Iterator[tuple[Examples, int]]:
    """Yield the examples in order in pieces, each with its number of characters, and report progress if it takes long.

    A piece has at most PIECE rows and about CHARACTERS characters; the tokenizer in `folder` is named in the report.
    """
    cuts: list[tuple[range, int]] = []
    start = characters = 0
    for row, first in enumerate(examples.first):
        characters += len(first) + (len(examples.second[row]) if examples.second is not None else 0)
        if row + 1 - start == PIECE or characters > CHARACTERS or row + 1 == len(examples):
            cuts.append((range(start, row + 1), characters))
            start, characters = row + 1, 0
    for rows, size in counted(cuts, f"{folder}: encoding texts, in pieces"):
        yield examples.take(list(rows)), size


def doubled(task: Task) -> Task:
    """Return the task with each training pair in both orders, as the released code trains MRPC and STS-B."""
    rows = task.train
    assert rows.second is not None
    both = Examples(rows.first + rows.second, rows.second + rows.first, [*rows.targets, *rows.targets])
    return replace(task, train=both)


def shuffled(lengths: Any, size: int, seed: int) -> Iterator[Any]:
    """Yield the row numbers of each batch of `size` rows of these lengths (N,), without end, each row once an epoch.

    The rows of a batch have similar lengths: the shuffled rows of 16 batches are sorted by length and cut into batches,
    and the batches of the epoch are shuffled.
    """
    for epoch in count():
        random = np.random.default_rng(seed_of(seed, "epoch", epoch))
        order = random.permutation(len(lengths))
        pools = [order[start : start + POOL * size] for start in range(0, len(order), POOL * size)]
        pools = [pool[np.argsort(lengths[pool], kind="stable")] for pool in pools]
        batches = [pool[start : start + size] for pool in pools for start in range(0, len(pool), size)]
        yield from (batches[i] for i in random.permutation(len(batches)))


def by_length(lengths: Any) -> Iterator[Any]:
    """Yield the row numbers of each batch of rows of these lengths (N,), every row once, the longest rows first.

    A batch has at most TOKENS tokens, padding included, or a single row.
    """
    order = np.argsort(lengths, kind="stable")[::-1]
    while len(order):
        size = max(1, TOKENS // lengths[order[0]])
        yield order[:size]
        order = order[size:]


# ---- pieces (subwords) ----
# Each word is tokenized by itself, in the form that it has after a blank. So fast and slow tokenizers give the same
# alignment, and no piece belongs to two words.

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
    unknown: int = 0  # id that stands for a text or word without pieces


def open_splitter(folder: Path, length: int, use: str) -> Splitter:
    """Return the tokenizer of a folder, for rows of at most `length` tokens.

    `use` names what needs the rows in the message. Raises InputError for rows that are too short.
    """
    tokenizer = load_published_tokenizer(folder)
    with model_files.refusing(folder, REFUSED):
        bare, whole = (list(tokenizer(LEAD, add_special_tokens=special)["input_ids"]) for special in (False, True))
    starts = (start for start in range(len(whole) - len(bare) + 1) if bare and whole[start:][: len(bare)] == bare)
    start = next(starts, None)
    before, after = ((), ()) if start is None else (tuple(whole[:start]), tuple(whole[start + len(bare) :]))
    room = length - len(before) - len(after)
    if room < SHORTEST:
        raise InputError(
            f"{folder}: {room} pieces of a text fit into a row, and {use} needs {SHORTEST}; "
            f"try a larger --set tasks.length="
        )
    return Splitter(folder, tokenizer, before, after, room, _first_id(tokenizer, "unk", "eos", "bos"))


def text_pieces(splitter: Splitter, texts: Sequence[str]) -> Pieces:
    """Return the pieces of each text, cut to one row, as in fine-tuning; at least one piece each."""
    return [np.array(ids[: splitter.room] or [splitter.unknown], dtype=np.int64) for ids in _ids(splitter, list(texts))]


def word_pieces(splitter: Splitter, sentences: Sequence[Sequence[str]]) -> tuple[Pieces, Pieces, int]:
    """Return the pieces of each sentence, the position of each word's first piece, and how many words have no pieces.

    A word has the pieces of its form after a blank. A word without pieces is read as the unknown token.
    """
    words, lead = sorted({word for sentence in sentences for word in sentence}), _ids(splitter, [LEAD])[0]
    after, alone = _ids(splitter, [f"{LEAD} {word}" for word in words]), _ids(splitter, words)
    known = {}
    for word, ids, bare in zip(words, after, alone, strict=True):
        known[word] = (ids[len(lead) :] if ids[: len(lead)] == lead else bare) or bare
    rows, firsts = [], []
    for sentence in sentences:
        parts = [known[word] or [splitter.unknown] for word in sentence]
        rows.append(np.array([piece for part in parts for piece in part], dtype=np.int64))
        firsts.append(np.cumsum([0, *map(len, parts)])[:-1])
    return rows, firsts, sum(not known[word] for sentence in sentences for word in sentence)


def _ids(splitter: Splitter, texts: list[str]) -> list[list[int]]:
    work = partial(splitter.tokenizer, texts, add_special_tokens=False, verbose=False)
    ids: list[list[int]] = model_files.in_time(work, sum(map(len, texts)), splitter.folder)["input_ids"]
    return ids


# ---- windows ----


def numbered(rows: Pieces, picks: Pieces) -> tuple[Pieces, int]:
    """Return the number of each piece of each row, and how many there are.

    The pieces at the positions `picks` of each row are numbered, row after row; all others have -1.
    """
    done, numbers = 0, []
    for row, places in zip(rows, picks, strict=True):
        numbers.append(np.full(len(row), -1))
        numbers[-1][places] = np.arange(done, done + len(places))
        done += len(places)
    return numbers, done


def windows(splitter: Splitter, rows: Pieces, indices: Pieces) -> tuple[Encoded, list[tuple[Any, Any]]]:
    """Cut rows of word pieces into windows with special tokens, and return the hidden states to read from each window.

    `indices` holds, for each piece of a row, the index of its state in the result, or -1 if it is not read. For each
    window there is a pair of arrays: positions in the window, and their indices. Each index is in exactly one window.
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


# ---- texts with two marked spans ----
# The text is cut at blanks and at the ends of the spans, and each part is tokenized by itself, as words are. Of a text
# that is longer than a row, the pieces that are nearest to a span are kept, so that both spans are always read.


def _marked(reader: Splitter, examples: Examples, targets: Any) -> Encoded:
    assert examples.spans is not None
    parts = list(map(parts_of, examples.first, examples.spans))
    words = [[text[start:end] for start, end in row] for text, row in zip(examples.first, parts, strict=True)]
    pieces, firsts, _ = word_pieces(reader, words)
    rows, places = [], []
    for ids, first, row, spans in zip(pieces, firsts, parts, examples.spans, strict=True):
        ends = np.append(first, len(ids))
        inside = []  # the first piece and the end of the pieces of each span
        for span in spans:
            within = [number for number, (start, end) in enumerate(row) if span[0] <= start and end <= span[1]]
            inside.append((int(ends[within[0]]), int(ends[within[-1] + 1])))
        kept = nearest(len(ids), inside, reader.room)
        rows.append(np.concatenate([reader.before, ids[kept], reader.after]).astype(np.int64))
        places.append(len(reader.before) + np.searchsorted(kept, np.array(inside)))
    spans_of_rows = np.array(places, dtype=np.int64).reshape(-1, 2, 2)
    return Encoded(rows, None, targets, reader.tokenizer.pad_token_id or 0, spans_of_rows)


def parts_of(text: str, spans: Spans) -> list[Span]:
    """Return the words of a text, cut where a span begins or ends, each by its first character and its end."""
    borders = sorted({border for span in spans for border in span})
    parts: list[Span] = []
    for word in re.finditer(r"\S+", text):
        inner = [border for border in borders if word.start() < border < word.end()]
        parts += pairwise([word.start(), *inner, word.end()])
    return parts


def nearest(count: int, spans: list[Span], room: int) -> Any:
    """Return the indices of at most `room` of `count` pieces, in order: of the spans, then the nearest."""

    def distance(piece: int) -> tuple[int, int]:
        inside = [piece - start for start, end in spans if start <= piece < end]
        if inside:
            return 0, min(inside)
        return 1, min(start - piece if piece < start else piece - end + 1 for start, end in spans)

    return np.array(sorted(sorted(range(count), key=distance)[:room]), dtype=np.int64)
