"""Hidden states of a frozen encoder at every layer: of each word's first subword, or the mean over a text.

Rows of similar length share a batch, everything is float32, and on a CPU an ELECTRA is computed by the kernels of
training. Texts that are longer than a row are read in windows that overlap by half; the state of a piece (a
subword) is taken from the window in which it has context on both sides.

Shapes: R rows, L positions, D width, N states that are returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.cpu import layers
from workbench.data import foreign
from workbench.data.tokenizer import load_foreign
from workbench.errors import Diverged, InputError
from workbench.models import electra
from workbench.signals import heed
from workbench.tasks.finetuning.classifier import load_encoder, row_length
from workbench.tasks.finetuning.token_batches import Encoded, by_length, check_ids

TOKENS = 8192  # tokens of a batch, padding included
SHORTEST = 4  # pieces of text that a row must hold; an encoder with fewer positions cannot be probed
LEAD = "a"  # text before a word when it is tokenized, so that it follows a blank
REFUSED = "holds a tokenizer that cannot read this task's texts"

Pieces = list[Any]  # arrays (pieces,) int64 of a text, without special tokens


@dataclass(frozen=True)
class Reader:
    """Frozen encoder with its tokenizer. `before` and `after` are the special tokens around a text."""

    folder: Path
    model: Any
    tokenizer: Any
    before: tuple[int, ...]
    after: tuple[int, ...]
    room: int  # pieces of text in a row
    device: str

    @property
    def layers(self) -> int:
        """Return the number of layers whose states are read; the embeddings count as the first."""
        return int(self.model.config.num_hidden_layers) + 1


def open_reader(folder: Path, length: int, device: str) -> Reader:
    """Load an encoder folder to read rows of at most `length` tokens. Raises InputError."""
    model: Any = load_encoder(folder, 0.0, device).eval()
    if isinstance(model, electra.Electra) and device != "cpu":
        model = electra.hugging_face(model).eval()
    model = model.to(device)
    tokenizer = load_foreign(folder)
    with foreign.refusing(folder, REFUSED):
        before, after = _frame(tokenizer)
    room = row_length(folder, model.config, length) - len(before) - len(after)
    if room < SHORTEST:
        raise InputError(
            f"{folder}: {room} pieces of a text fit into a row, and a linear probe needs {SHORTEST}; "
            f"try a larger --set tasks.length="
        )
    return Reader(folder, model, tokenizer, before, after, room, device)


def _frame(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the special tokens that a tokenizer puts before and after a text."""
    bare, whole = (list(tokenizer(LEAD, add_special_tokens=special)["input_ids"]) for special in (False, True))
    for start in range(len(whole) - len(bare) + 1):
        if bare and whole[start : start + len(bare)] == bare:
            return tuple(whole[:start]), tuple(whole[start + len(bare) :])
    return (), ()


# ---- text to pieces ----


def text_pieces(reader: Reader, texts: Sequence[str]) -> Pieces:
    """Return the pieces of each text, cut to one row, as in fine-tuning; at least one piece each."""
    ids_of_texts = _ids(reader, list(texts))
    return [np.array(ids[: reader.room] or [_unknown(reader.tokenizer)], dtype=np.int64) for ids in ids_of_texts]


def word_pieces(reader: Reader, sentences: Sequence[Sequence[str]]) -> tuple[Pieces, Pieces]:
    """Return the pieces of each sentence, and the position of each word's first piece.

    Each word is tokenized by itself, in the form that it has after a blank. So fast and slow tokenizers give the
    same alignment, and no piece belongs to two words.
    """
    known = _of_words(reader, sorted({word for words in sentences for word in words}))
    rows, firsts = [], []
    for words in sentences:
        parts = [known[word] for word in words]
        rows.append(np.array([piece for part in parts for piece in part], dtype=np.int64))
        firsts.append(np.cumsum([0, *map(len, parts)])[:-1])
    return rows, firsts


def _of_words(reader: Reader, words: list[str]) -> dict[str, list[int]]:
    """Return the pieces of each word in the form that it has after a blank; at least one each."""
    lead = _ids(reader, [LEAD])[0]
    after, alone = _ids(reader, [f"{LEAD} {word}" for word in words]), _ids(reader, words)
    pieces_of = {}
    for word, ids, bare in zip(words, after, alone, strict=True):
        pieces = ids[len(lead) :] if ids[: len(lead)] == lead else bare
        pieces_of[word] = pieces or bare or [_unknown(reader.tokenizer)]
    return pieces_of


def _ids(reader: Reader, texts: list[str]) -> list[list[int]]:
    """Return the token ids of each text, without special tokens.

    Raises InputError for a tokenizer that takes too long.
    """
    work = partial(reader.tokenizer, texts, add_special_tokens=False, verbose=False)
    ids: list[list[int]] = foreign.in_time(work, sum(map(len, texts)), reader.folder)["input_ids"]
    return ids


def _unknown(tokenizer: Any) -> int:
    """Return the id that stands for a text or word without pieces."""
    ids = (tokenizer.unk_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id)
    return next((i for i in ids if i is not None), 0)


# ---- pieces to states ----


def mean_states(reader: Reader, rows: Pieces) -> Any:
    """Return the mean state of each row's pieces: float32 (layers, R, D)."""
    return _states(reader, rows, [np.full(len(ids), number) for number, ids in enumerate(rows)], len(rows))


def picked_states(reader: Reader, rows: Pieces, picks: Pieces) -> Any:
    """Return the states of the pieces at the positions `picks` of each row, row after row: float32 (layers, N, D)."""
    count, indices = 0, []
    for ids, places in zip(rows, picks, strict=True):
        target = np.full(len(ids), -1)
        target[places] = np.arange(count, count + len(places))
        indices.append(target)
        count += len(places)
    return _states(reader, rows, indices, count)


def _states(reader: Reader, rows: Pieces, indices: Pieces, count: int) -> Any:
    """Return the mean over pieces of the states with the same index: float32 (layers, `count`, D).

    `indices` holds the index of each piece, -1 for a piece whose state is not used.
    """
    from scipy.sparse import csr_matrix

    data, places = _windows(reader, rows, indices)
    check_ids(reader.folder, {"": data}, reader.model.get_input_embeddings().num_embeddings)
    states_of: Any = None
    weights = 1 / np.bincount(np.concatenate([p[p >= 0] for p in indices]), minlength=count)
    for batch in by_length(data, TOKENS):
        heed()
        inputs, _ = data.batch(batch, reader.device)
        states = _forward(reader.model, inputs)
        if states_of is None:
            states_of = np.zeros((len(states), count, states[0].shape[-1]), dtype=np.float32)
        width = inputs["input_ids"].shape[1]
        columns = np.concatenate([place * width + places[window][0] for place, window in enumerate(batch)])
        targets, at = np.unique(np.concatenate([places[window][1] for window in batch]), return_inverse=True)
        shape = (len(targets), len(batch) * width)
        mean = csr_matrix((weights[targets][at].astype(np.float32), (at, columns)), shape=shape)
        for layer, state in enumerate(states):
            states_of[layer, targets] += mean @ state.float().flatten(0, 1).cpu().numpy()
    if not np.isfinite(states_of).all():
        raise Diverged(f"{reader.folder}: the encoder's states are not all finite numbers", 0)
    return states_of


def _windows(reader: Reader, rows: Pieces, indices: Pieces) -> tuple[Encoded, list[tuple[Any, Any]]]:
    """Return the rows as windows with special tokens, and which states of each are used.

    These are for each window the positions of the states, and the index to which each of them is added.
    """
    ids, places = [], []
    for row, target in zip(rows, indices, strict=True):
        for start, first, last in _cuts(len(row), reader.room):
            ids.append(np.concatenate([reader.before, row[start : start + reader.room], reader.after]).astype(np.int64))
            used = np.arange(first, last)[target[first:last] >= 0]
            places.append((used - start + len(reader.before), target[used]))
    return Encoded(ids, None, np.zeros(len(ids), dtype=np.int64), reader.tokenizer.pad_token_id or 0), places


def _cuts(pieces: int, room: int) -> list[tuple[int, int, int]]:
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


def _forward(model: Any, inputs: dict[str, Tensor]) -> list[Tensor]:
    """Return the states (B, L, D) that enter the first layer, and those that leave each layer."""
    ids, attention = inputs["input_ids"], inputs.get("attention_mask")
    with torch.inference_mode():
        if layers.can(model, ids):
            return layers.every_state(model, ids, attention)
        return list(model(input_ids=ids, attention_mask=attention, output_hidden_states=True).hidden_states)
