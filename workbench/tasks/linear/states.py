"""States of a frozen encoder at every layer: of each word's first subword, or the mean over a text.

Rows of like length share a batch, everything is float32, and on a CPU an ELECTRA is computed by the kernels of
training. Texts that are longer than a row are read in windows that overlap by half; a piece is read in the window in
which it has context on both sides.

R rows, L positions, D width, N states that are kept.
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

TOKENS = 8192  # padded tokens computed at once
SHORTEST = 4  # pieces of text in a row; an encoder of fewer positions cannot be probed
LEAD = "a"  # what stands before a word when its pieces are looked up
REFUSED = "holds a tokenizer that cannot read this task's texts"

Pieces = list[Any]  # arrays (pieces,) int64 of a text, without special tokens


@dataclass(frozen=True)
class Reader:
    """A frozen encoder with its tokenizer. `before` and `after` are the special tokens around a text."""

    folder: Path
    model: Any
    tokenizer: Any
    before: tuple[int, ...]
    after: tuple[int, ...]
    room: int  # pieces of text in a row
    device: str

    @property
    def layers(self) -> int:
        """The layers whose states are read, of which the embeddings are the first."""
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
        raise InputError(f"{folder}: {room} pieces of a text fit into a row, and a linear probe needs {SHORTEST}")
    return Reader(folder, model, tokenizer, before, after, room, device)


def _frame(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The special tokens that a tokenizer puts before and after a text."""
    bare, whole = (list(tokenizer(LEAD, add_special_tokens=special)["input_ids"]) for special in (False, True))
    for start in range(len(whole) - len(bare) + 1):
        if bare and whole[start : start + len(bare)] == bare:
            return tuple(whole[:start]), tuple(whole[start + len(bare) :])
    return (), ()


# ---- text to pieces ----


def text_pieces(reader: Reader, texts: Sequence[str]) -> Pieces:
    """The pieces of each text, cut to a row, as fine-tuning cuts them; never empty."""
    found = _ids(reader, list(texts))
    return [np.array(ids[: reader.room] or [_unknown(reader.tokenizer)], dtype=np.int64) for ids in found]


def word_pieces(reader: Reader, sentences: Sequence[Sequence[str]]) -> tuple[Pieces, Pieces]:
    """The pieces of each sentence, and where each word's first one stands.

    Words are looked up one by one as they stand after a blank, so fast and slow tokenizers are aligned alike and no
    piece belongs to two words.
    """
    known = _of_words(reader, sorted({word for words in sentences for word in words}))
    rows, firsts = [], []
    for words in sentences:
        parts = [known[word] for word in words]
        rows.append(np.array([piece for part in parts for piece in part], dtype=np.int64))
        firsts.append(np.cumsum([0, *map(len, parts)])[:-1])
    return rows, firsts


def _of_words(reader: Reader, words: list[str]) -> dict[str, list[int]]:
    lead = _ids(reader, [LEAD])[0]
    after, alone = _ids(reader, [f"{LEAD} {word}" for word in words]), _ids(reader, words)
    found = {}
    for word, ids, bare in zip(words, after, alone, strict=True):
        pieces = ids[len(lead) :] if ids[: len(lead)] == lead else bare
        found[word] = pieces or bare or [_unknown(reader.tokenizer)]
    return found


def _ids(reader: Reader, texts: list[str]) -> list[list[int]]:
    work = partial(reader.tokenizer, texts, add_special_tokens=False, verbose=False)
    found: list[list[int]] = foreign.in_time(work, sum(map(len, texts)), reader.folder)["input_ids"]
    return found


def _unknown(tokenizer: Any) -> int:
    ids = (tokenizer.unk_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id)
    return next((i for i in ids if i is not None), 0)


# ---- pieces to states ----


def mean_states(reader: Reader, rows: Pieces) -> Any:
    """Mean state of each row's pieces: float32 (layers, R, D)."""
    return _states(reader, rows, [np.full(len(ids), number) for number, ids in enumerate(rows)], len(rows))


def picked_states(reader: Reader, rows: Pieces, picks: Pieces) -> Any:
    """States of the pieces at `picks` of each row, row after row: float32 (layers, N, D)."""
    count, kept = 0, []
    for ids, places in zip(rows, picks, strict=True):
        target = np.full(len(ids), -1)
        target[places] = np.arange(count, count + len(places))
        kept.append(target)
        count += len(places)
    return _states(reader, rows, kept, count)


def _states(reader: Reader, rows: Pieces, kept: Pieces, count: int) -> Any:
    """The mean over pieces of the states that go to the same place; `kept` says to which, -1 to none."""
    from scipy.sparse import csr_matrix

    data, places = _windows(reader, rows, kept)
    check_ids(reader.folder, {"": data}, reader.model.get_input_embeddings().num_embeddings)
    found: Any = None
    shares = 1 / np.bincount(np.concatenate([p[p >= 0] for p in kept]), minlength=count)
    for batch in by_length(data, TOKENS):
        heed()
        inputs, _ = data.batch(batch, reader.device)
        states = _forward(reader.model, inputs)
        if found is None:
            found = np.zeros((len(states), count, states[0].shape[-1]), dtype=np.float32)
        width = inputs["input_ids"].shape[1]
        columns = np.concatenate([place * width + places[window][0] for place, window in enumerate(batch)])
        targets, at = np.unique(np.concatenate([places[window][1] for window in batch]), return_inverse=True)
        shape = (len(targets), len(batch) * width)
        mean = csr_matrix((shares[targets][at].astype(np.float32), (at, columns)), shape=shape)
        for layer, state in enumerate(states):
            found[layer, targets] += mean @ state.float().flatten(0, 1).cpu().numpy()
    if not np.isfinite(found).all():
        raise Diverged(f"{reader.folder}: the encoder's states are not all finite numbers", 0)
    return found


def _windows(reader: Reader, rows: Pieces, kept: Pieces) -> tuple[Encoded, list[tuple[Any, Any]]]:
    """Rows as windows with their special tokens, and for each the positions that are read and where to."""
    ids, places = [], []
    for row, target in zip(rows, kept, strict=True):
        for start, first, last in _cuts(len(row), reader.room):
            ids.append(np.concatenate([reader.before, row[start : start + reader.room], reader.after]).astype(np.int64))
            mine = np.arange(first, last)[target[first:last] >= 0]
            places.append((mine - start + len(reader.before), target[mine]))
    return Encoded(ids, None, np.zeros(len(ids), dtype=np.int64), reader.tokenizer.pad_token_id or 0), places


def _cuts(pieces: int, room: int) -> list[tuple[int, int, int]]:
    """Where each window begins, and the first and last-but-one piece that is read in it.

    Windows begin half a row apart; but for the ends of the text, a window's middle half is read.
    """
    half, quarter = room // 2, room // 4
    starts = [0]
    while starts[-1] + room < pieces:
        starts.append(starts[-1] + half)
    firsts = [0, *(start + quarter for start in starts[1:])]
    return list(zip(starts, firsts, [*firsts[1:], pieces], strict=True))


def _forward(model: Any, inputs: dict[str, Tensor]) -> list[Tensor]:
    """States (B, L, D) that enter the first layer, and those that leave each layer."""
    ids, attention = inputs["input_ids"], inputs.get("attention_mask")
    with torch.inference_mode():
        if layers.can(model, ids):
            return layers.every_state(model, ids, attention)
        return list(model(input_ids=ids, attention_mask=attention, output_hidden_states=True).hidden_states)
