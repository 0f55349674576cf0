"""An encoder with one linear layer on its [CLS] state."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from workbench.data import foreign
from workbench.errors import InputError
from workbench.models import blocks, electra


class Classifier(nn.Module):
    """Dropout on the first position's state, then one linear layer, as in the released code (docs/electra.md 5).

    Not `ElectraForSequenceClassification`, which puts another dense layer between.
    """

    def __init__(self, encoder: nn.Module, outputs: int, dropout: float) -> None:
        super().__init__()
        self.encoder: Any = encoder
        self.segments = _has_segments(encoder)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(encoder.config.hidden_size, outputs)  # type: ignore[union-attr, arg-type]
        nn.init.xavier_uniform_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Outputs (B, labels) of tensors (B, L)."""
        if not self.segments:
            inputs = {name: value for name, value in inputs.items() if name != "token_type_ids"}
        hidden = self._hidden(**inputs)  # (B, L, D)
        outputs: Tensor = self.head(self.dropout(hidden[:, 0]))
        return outputs

    def _hidden(self, input_ids: Tensor, **others: Tensor) -> Tensor:
        """Last hidden states (B, L, D), by our own blocks where they compute the same in less time."""
        if blocks.can(self.encoder, input_ids):
            mask, segments = others.get("attention_mask"), others.get("token_type_ids")
            return blocks.hidden_states(self.encoder, input_ids, mask, segments)
        hidden: Tensor = self.encoder(input_ids=input_ids, **others).last_hidden_state
        return hidden


def _has_segments(encoder: Any) -> bool:
    """Whether it knows a first and a second text; RoBERTa, MPNet and ModernBERT do not."""
    taken = "token_type_ids" in inspect.signature(encoder.forward).parameters
    return taken and getattr(encoder.config, "type_vocab_size", 2) > 1


def load_encoder(folder: Path, dropout: float) -> nn.Module:
    """The backbone in float32, every dropout of it at the given rate. Raises InputError if the folder holds none."""
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} holds no encoder: it has no config.json")
    ours = electra.load(folder, dropout)
    if ours is not None:
        return ours
    from transformers import AutoConfig, AutoModel

    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        for name, value in config.to_dict().items():
            if ("dropout" in name or name.endswith("pdrop")) and isinstance(value, (int, float)):
                setattr(config, name, dropout)
        with _silent():
            model, found = AutoModel.from_pretrained(
                folder, config=config, dtype=torch.float32, output_loading_info=True,
                trust_remote_code=False, use_safetensors=True,
            )  # fmt: skip
    except Exception as error:  # transformers raises many kinds for what stands in a file
        raise InputError(f"{folder} cannot be loaded as an encoder: {foreign.why(folder, error)}") from None
    lacking = sorted(name for name in found["missing_keys"] if not name.startswith("pooler."))
    if lacking:
        raise InputError(f"{folder} lacks {len(lacking)} of the encoder's weights, {lacking[0]} for one")
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    encoder: nn.Module = model
    return encoder


@contextmanager
def _silent() -> Iterator[None]:
    """No bar for a few tensors, and no report of an absent pooler."""
    from transformers.utils import logging

    shown, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(shown)
        if bar:
            logging.enable_progress_bar()


def longest(config: Any, length: int) -> int:
    """Tokens a row may have: the length asked for, within the encoder's positions."""
    positions = getattr(config, "max_position_embeddings", None) or 0
    if "roberta" in config.model_type:
        positions -= 2  # it keeps the first two for itself
    return min(length, positions) if positions > 0 else length
