"""Hidden states of a frozen encoder at every layer: of each word's first subword, or the mean over a text.

Rows of similar length share a batch, everything is float32, and on a CPU an ELECTRA is computed by the kernels of
training. Texts that are longer than a row are read in windows that overlap by half; the state of a piece (a
subword) is taken from the window in which it has context on both sides.

Shapes: R rows, L positions, D width, N states that are returned.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.cpu import layers
from workbench.errors import Diverged
from workbench.signals import heed
from workbench.tasks.finetuning.classifier import load_frozen
from workbench.tasks.finetuning.token_batches import by_length, check_ids
from workbench.tasks.pieces import Pieces, Splitter, open_splitter, windows

TOKENS = 8192  # tokens of a batch, padding included


@dataclass(frozen=True)
class Reader:
    """Frozen encoder with its tokenizer."""

    model: Any
    splitter: Splitter
    device: str

    @property
    def folder(self) -> Path:
        """Return the folder of the encoder."""
        return self.splitter.folder

    @property
    def layers(self) -> int:
        """Return the number of layers whose states are read; the embeddings count as the first."""
        return int(self.model.config.num_hidden_layers) + 1


def open_reader(folder: Path, length: int, device: str) -> Reader:
    """Load an encoder folder to read rows of at most `length` tokens. Raises InputError."""
    model = load_frozen(folder, device)
    splitter = open_splitter(folder, model.config, length, "a linear probe")
    return Reader(model, splitter, device)


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

    data, places = windows(reader.splitter, rows, indices)
    check_ids(reader.folder, {"": data}, reader.model.get_input_embeddings().num_embeddings)
    states_of: Any = None
    weights = 1 / np.bincount(np.concatenate([p[p >= 0] for p in indices]), minlength=count)
    for batch in by_length(data.lengths, TOKENS):
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


def _forward(model: Any, inputs: dict[str, Tensor]) -> list[Tensor]:
    """Return the states (B, L, D) that enter the first layer, and those that leave each layer."""
    ids, attention = inputs["input_ids"], inputs.get("attention_mask")
    with torch.inference_mode():
        if layers.can(model, ids):
            return layers.every_state(model, ids, attention)
        return list(model(input_ids=ids, attention_mask=attention, output_hidden_states=True).hidden_states)
