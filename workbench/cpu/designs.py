"""The encoders that `layers.py` computes: BERT's design, under the names that Hugging Face gives its parts.

ELECTRA, BERT, RoBERTa and ALBERT compute the same layers. They differ in where their modules keep the weights, in the
projection of the embeddings, in how positions are counted, and in one dropout.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn

COUNTED = ("roberta", "xlm-roberta", "camembert")  # types whose positions count only tokens that are not padding
KNOWN = ("electra", "bert", "albert", *COUNTED)  # types of models, as in config.json


class Rates(NamedTuple):
    """Rates of dropout: of embeddings, attention probabilities, attention output and feed-forward output."""

    embeddings: float = 0.0
    probabilities: float = 0.0
    attention: float = 0.0
    feed_forward: float = 0.0


def is_known(config: Any) -> bool:
    """Return whether encoders with this configuration are of BERT's design, with GELU."""
    known = config.model_type in KNOWN and config.hidden_act == "gelu"
    return known and not getattr(config, "add_cross_attention", False)


def is_causal(config: Any) -> bool:
    """Return whether no position sees a later one; ALBERT's configuration has no such setting."""
    return bool(getattr(config, "is_decoder", False))


def rates_of(model: Any) -> Rates:
    """Return the rates of dropout that are in effect: those of the configuration in training, else 0."""
    if not model.training:
        return Rates()
    config = model.config
    hidden, probabilities = config.hidden_dropout_prob, config.attention_probs_dropout_prob
    return Rates(hidden, probabilities, hidden, 0.0 if config.model_type == "albert" else hidden)


def projection_of(model: Any) -> nn.Linear | None:
    """Return the linear layer from the width of the embeddings to that of the layers, or None if there is none."""
    albert = model.config.model_type == "albert"
    found: nn.Linear | None = (
        model.encoder.embedding_hidden_mapping_in if albert else getattr(model, "embeddings_project", None)
    )
    return found


def position_numbers(model: Any, ids: Tensor) -> Tensor | None:
    """Return the position (B, L) of each of ids (B, L) in the position table, or None if they are 0, 1, 2 and so on."""
    if model.config.model_type not in COUNTED:
        return None
    padding: int = model.embeddings.padding_idx  # is also the position of padding; the first token has the next one
    real = ids != padding
    return real.cumsum(1) * real + padding


def layers_of(model: Any) -> list[list[Tensor]]:
    """Return the sixteen parameters of each layer from the first to the last, in the order of `layers.Layers.forward`.

    They are weight and bias of query, key, value, attention output, its norm, both feed-forward products and their
    norm. Layers that share their weights are listed once for each time that they are computed.
    """
    if model.config.model_type != "albert":
        return [_bert_layer(layer) for layer in model.encoder.layer]
    config, groups = model.config, model.encoder.albert_layer_groups
    chosen = [groups[number * len(groups) // config.num_hidden_layers] for number in range(config.num_hidden_layers)]
    return [_albert_layer(layer) for group in chosen for layer in group.albert_layers]


def _bert_layer(layer: Any) -> list[Tensor]:
    own, output = layer.attention.self, layer.attention.output
    return _weights(
        own.query, own.key, own.value, output.dense, output.LayerNorm, layer.intermediate.dense, layer.output.dense,
        layer.output.LayerNorm,
    )  # fmt: skip


def _albert_layer(layer: Any) -> list[Tensor]:
    own = layer.attention
    return _weights(
        own.query, own.key, own.value, own.dense, own.LayerNorm, layer.ffn, layer.ffn_output,
        layer.full_layer_layer_norm,
    )  # fmt: skip


def _weights(*parts: Any) -> list[Tensor]:
    return [tensor for part in parts for tensor in (part.weight, part.bias)]
