"""Hugging Face's modules as encoders: how built-in families make, compute and read them.

B rows, L positions, D width.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from torch import Tensor

from workbench.cpu import layers
from workbench.models.initial_weights import initialise
from workbench.spec.parts import EncoderSpec, Special


def bert_settings(config: EncoderSpec, special: Special) -> dict[str, Any]:
    """Return the settings of an encoder under the names of `BertConfig`, which many families share."""
    return {
        "vocab_size": config.vocab,
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.head_count,
        "intermediate_size": config.ffn_width,
        "max_position_embeddings": config.positions,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "layer_norm_eps": 1e-12,
        "initializer_range": config.init,
        "pad_token_id": special.pad,
        "cls_token_id": special.cls,
        "sep_token_id": special.sep,
        "is_decoder": bool(config.causal),
        "hidden_act": "gelu",
    }


def like_bert(model_type: str, config: EncoderSpec, special: Special, attention: str = "", **own: Any) -> Any:
    """Return a Hugging Face module of `bert_settings` and `own` settings, with initial weights but for positions."""
    settings = bert_settings(config, special) | own
    model = hugging_face_module(model_type, settings, attention or config.attention)
    initialise(model, config.init)
    return model


def hugging_face_module(model_type: str, settings: dict[str, Any], attention: str) -> Any:
    """Return a Hugging Face module with these settings, without its pooler."""
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.for_model(model_type, **settings)
    config.use_cache = False  # it would keep keys and values of all layers for generating text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModel.from_config(config, attn_implementation=attention)
    if getattr(model, "pooler", None) is not None:
        model.pooler = None  # it would stay untrained: fine-tuning uses the [CLS] state itself (docs/electra.md 2)
    # It looks for padding in every batch without a mask, for which a GPU must be waited for; such rows are full here.
    model.warn_if_padding_and_no_attention_mask = _no_warning
    return model


def _no_warning(*_: Any) -> None:
    pass


def plain_states(model: Any, ids: Tensor, attention: Tensor | None, segments: Tensor | None) -> Tensor:
    """Return the states (B, L, D) of a Hugging Face module for ids (B, L), attention (B, L), segments (B, L)."""
    kinds = {} if segments is None else {"token_type_ids": segments}
    hidden: Tensor = model(input_ids=ids, attention_mask=attention, **kinds).last_hidden_state
    return hidden


def states(model: Any, ids: Tensor, attention: Tensor | None, segments: Tensor | None) -> Tensor:
    """Return the same as `plain_states`, by our own kernels where these compute the design (`cpu/layers.py`)."""
    if layers.can(model, ids):
        return layers.hidden_states(model, ids, attention, segments)
    return plain_states(model, ids, attention, segments)


def states_at(model: Any, ids: Tensor, places: Tensor) -> Tensor | None:
    """Return the states (B, D) at places (B,) of rows without padding, or None if no kernel of ours computes them."""
    return layers.states_at(model, ids, places) if layers.can(model, ids) else None


def save(model: Any, weights: dict[str, Tensor], folder: Path) -> None:
    """Write a Hugging Face module with these weights as `AutoModel.from_pretrained(folder)` loads it."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    model.save_pretrained(folder, state_dict=weights)
