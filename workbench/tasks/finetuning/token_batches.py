"""Token ids of the texts of a task, and their batches, each padded to its longest row."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.data import hugging_face
from workbench.data.tokenizer import load_published_tokenizer
from workbench.errors import InputError
from workbench.progress import counted
from workbench.rng import seed_of
from workbench.tasks.task import Examples, Task, fingerprinted
from workbench.tensors import to_device

POOL = 16  # number of batches whose rows are sorted by length together
PIECE, CHARACTERS = 1000, 1 << 20  # rows and characters in one call of a tokenizer
_CACHED = 16  # tasks whose ids are cached between calls
_memory: dict[tuple[str, str, int], dict[str, Encoded]] = {}


@dataclass(frozen=True)
class Encoded:
    """N rows of token ids with [CLS] and [SEP], each of its own length.

    `types` are the segment ids of each row, None if the model has no segments. `pad` is the id of the padding token.
    `spans` (N, 2, 2) are the first positions and the ends of two spans of tokens, None if no spans are marked.
    """

    ids: list[Any]  # arrays (length,) int64
    types: list[Any] | None
    targets: Any  # (N,) int64, float64 in a regression, (N, labels) float32 with several labels a row
    pad: int
    spans: Any = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> Any:
        """The number of tokens of each row, an array (N,)."""
        return np.array([len(ids) for ids in self.ids])

    def batch(self, rows: Any, device: str) -> tuple[dict[str, Tensor], Tensor]:
        """Return the inputs of the model by name, and the targets of these rows, those of a regression as float32.

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
    usable tokenizer.
    """
    files = hugging_face.check_tokenizer_folder(folder)
    key = (_content(files), task.fingerprint, length)
    if not task.fingerprint or key not in _memory:
        parts = {"train": task.train, **task.tests}
        while len(_memory) >= _CACHED:
            _memory.pop(next(iter(_memory)))
        tokenizer = load_published_tokenizer(folder)
        _memory[key] = {
            part: _encode(tokenizer, rows, task.array(rows), length, folder) for part, rows in parts.items()
        }
    return _memory[key]


def encode_rows(folder: Path, rows: Examples, length: int) -> Encoded:
    """Return rows without labels as token ids; their targets are all 0. Nothing is cached."""
    return _encode(load_published_tokenizer(folder), rows, np.zeros(len(rows), dtype=np.int64), length, folder)


def check_ids(folder: Path, parts: Mapping[str, Encoded], vocabulary: int) -> None:
    """Raise InputError if a token id, padding included, is not in the encoder's vocabulary of `vocabulary` entries."""
    for data in parts.values():
        check_tokens(folder, [*data.ids, [data.pad]], vocabulary)


def check_tokens(folder: Path, rows: Iterable[Any], vocabulary: int) -> None:
    """Raise InputError if a token id in some rows is not in the encoder's vocabulary of `vocabulary` entries."""
    ends = (id for ids in rows if len(ids) for id in (np.min(ids), np.max(ids)))
    wrong = next((int(id) for id in ends if not 0 <= id < vocabulary), None)
    if wrong is not None:
        raise InputError(
            f"{folder}: the tokenizer gives the id {wrong}, and the encoder has ids 0 to {vocabulary - 1}; tokenizer "
            f"and encoder do not belong together"
        )


def _content(files: Mapping[str, Path]) -> str:
    """Return the SHA-256 of the files of a tokenizer, which identifies it in the cache."""
    return hashlib.sha256(b"\0".join(files[name].read_bytes() for name in sorted(files))).hexdigest()


def _encode(tokenizer: Any, examples: Examples, targets: Any, length: int, folder: Path) -> Encoded:
    """Return examples as rows of at most `length` token ids."""
    apart = _separator(tokenizer) if examples.second is not None else None
    room = length - (apart is not None)
    rows: list[list[int]] = []
    segments: list[list[int]] = []
    for part, characters in pieces(examples, folder):
        work = partial(tokenizer, part.first, part.second, truncation="longest_first", max_length=room)
        encoding = hugging_face.in_time(work, characters, folder)
        ids = encoding["input_ids"]
        if apart is not None:
            ids = [_separated(row, encoding.sequence_ids(number), apart) for number, row in enumerate(ids)]
        rows += ids
        segments += encoding.get("token_type_ids") or []
    types = segments if apart is None and segments and "token_type_ids" in tokenizer.model_input_names else None
    empty = [
        next((i for i in (tokenizer.eos_token_id, tokenizer.bos_token_id, tokenizer.unk_token_id) if i is not None), 0)
    ]
    return Encoded(
        [np.array(ids or empty, dtype=np.int64) for ids in rows],
        None if types is None else [np.array(row or [0], dtype=np.int64) for row in types],
        targets,
        tokenizer.pad_token_id or 0,
    )


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


def _separator(tokenizer: Any) -> int | None:
    """Return the id of a token to put between the texts of a pair; None if the tokenizer adds special tokens itself.

    The tokenizer of GPT-2, for example, adds none.
    """
    if not tokenizer.is_fast or tokenizer.num_special_tokens_to_add(pair=True):
        return None
    end: int | None = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    return end


def _separated(ids: list[int], texts: list[int | None], apart: int) -> list[int]:
    """Return the ids of a pair with the token `apart` before the first token of the second text."""
    start = texts.index(1) if 1 in texts else len(ids)
    return [*ids[:start], apart, *ids[start:]]


def doubled(task: Task) -> Task:
    """Return the task with each training pair in both orders, as the released code trains MRPC and STS-B."""
    rows = task.train
    assert rows.second is not None
    targets = [*rows.targets, *rows.targets]
    both = Examples(rows.first + rows.second, rows.second + rows.first, targets)
    return fingerprinted(replace(task, train=both))


def shuffled(lengths: Any, size: int, seed: int) -> Iterator[Any]:
    """Yield the row numbers of each batch of `size` rows of these lengths (N,), without end, each row once an epoch.

    The rows of a batch have similar lengths: the shuffled rows of 16 batches are sorted by length and cut into batches,
    and the batches of the epoch are shuffled.
    """
    epoch = 0
    while True:
        random = np.random.default_rng(seed_of(seed, "epoch", epoch))
        order = random.permutation(len(lengths))
        pools = [order[start : start + POOL * size] for start in range(0, len(order), POOL * size)]
        pools = [pool[np.argsort(lengths[pool], kind="stable")] for pool in pools]
        batches = [pool[start : start + size] for pool in pools for start in range(0, len(pool), size)]
        yield from (batches[i] for i in random.permutation(len(batches)))
        epoch += 1


def by_length(lengths: Any, tokens: int) -> Iterator[Any]:
    """Yield the row numbers of each batch of rows of these lengths (N,), every row once, the longest rows first.

    A batch has at most `tokens` tokens, padding included, or a single row.
    """
    order = np.argsort(lengths, kind="stable")[::-1]
    start = 0
    while start < len(order):
        size = max(1, tokens // lengths[order[start]])
        yield order[start : start + size]
        start += size
