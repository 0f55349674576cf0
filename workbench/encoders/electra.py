"""ELECTRA (Clark et al. 2020): BERT's layers, embeddings of their own width; computed by a module of ours.

Its weights have Hugging Face's names, so that both can load each other's. Hugging Face's own module is not used,
because importing it and the text generation that it depends on takes longer than everything else that a command does
before its first step. `hugging_face` returns that module over the same weights, for tests and for `--plain`.

B rows, L positions, D width of the layers, E width of the embeddings, H heads.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from workbench.cpu.functions import can
from workbench.cpu.layers import rates_of
from workbench.models import encoder, flops
from workbench.models.encoder import initialise, initialise_positions
from workbench.models.heads import BinaryHead, MlmHead
from workbench.models.losses import gather
from workbench.models.own_layout import WEIGHTS, Output, write_settings
from workbench.models.two_streams import Layer as TwoStreamLayer
from workbench.models.two_streams import Queries, content_stream, last_states, query_stream, without_autocast
from workbench.spec.parts import EncoderSpec, Special
from workbench.store.checkpoint import library_errors, save_copies
from workbench.tensors import visible_keys

TABLE, EMBEDDINGS, LAYERS = "embeddings.word_embeddings", "embeddings", "encoder.layer"
OWN_WIDTH, CAUSAL, SEGMENTS = True, "optional", True
cost, query_cost = flops.transformer, flops.two_stream_transformer
states, states_at = encoder.states, encoder.states_at


def build(config: EncoderSpec, special: Special) -> Electra:
    """Return an encoder with initial weights."""
    sizes = encoder.bert_settings(config, special)
    model = Electra(Config(**sizes, embedding_size=config.embedding_width, attention=config.attention))
    initialise(model, config.init)
    first, project = model.encoder.layer[0].attention.self, getattr(model, "embeddings_project", None)
    initialise_positions(
        config, model.embeddings.position_embeddings, first.query.weight, first.key.weight,
        None if project is None else project.weight,
    )  # fmt: skip
    return model


def plain_states(model: Electra, ids: Tensor, attention: Tensor | None, segments: Tensor | None) -> Tensor:
    """Return the states (B, L, D) as Hugging Face's module over the same weights computes them."""
    model.twin = model.twin or (hugging_face(model),)
    return encoder.plain_states(model.twin[0].train(model.training), ids, attention, segments)


@dataclass
class Config:
    """The sizes and dropout rates of an encoder, under Hugging Face's names."""

    vocab_size: int
    hidden_size: int
    embedding_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0
    cls_token_id: int | None = None
    sep_token_id: int | None = None
    hidden_act: str = "gelu"
    model_type: str = "electra"
    is_decoder: bool = False
    attention: str = "sdpa"

    def weights(self) -> int:
        """Return the number of weights in embedding tables and matrices, without biases and norms."""
        rows = self.vocab_size + self.max_position_embeddings + self.type_vocab_size
        layer = 4 * self.hidden_size**2 + 2 * self.hidden_size * self.intermediate_size
        return rows * self.embedding_size + self.num_hidden_layers * layer

    def facts(self) -> dict[str, Any]:
        """Return the entries of config.json."""
        entries = asdict(self)
        del entries["attention"]  # it selects an implementation, not another function
        return entries


class Electra(nn.Module):
    """An ELECTRA encoder: embeddings, their projection if E differs from D, layers, no pooler (docs/electra.md 2)."""

    twin: tuple[Any, ...] = ()  # Hugging Face's module over the same weights; a tuple hides it from torch

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        width, inner, eps = config.embedding_size, config.hidden_size, config.layer_norm_eps
        self.embeddings = _group(
            word_embeddings=nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id),
            position_embeddings=nn.Embedding(config.max_position_embeddings, width),
            token_type_embeddings=nn.Embedding(config.type_vocab_size, width),
            LayerNorm=nn.LayerNorm(width, eps=eps),
        )
        if width != inner:
            self.embeddings_project = nn.Linear(width, inner)
        self.encoder = _group(layer=nn.ModuleList(map(Layer, [config] * config.num_hidden_layers)))

    def as_hugging_face(self) -> Any:
        """Return Hugging Face's module over the same weights, whose implementation of attention can be chosen."""
        return hugging_face(self)

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the token embeddings (V, E)."""
        table: nn.Embedding = self.embeddings.word_embeddings
        return table

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Output:
        """Return the hidden states for input_ids (B, L).

        attention_mask (B, L) is None if no row is padded, token_type_ids (B, L) is None if all are 0.
        """
        hidden = _narrow(self.embed(input_ids, token_type_ids))
        # Fused attention needs no mask for causal rows without padding, and is slower with one on a GPU.
        masked = self.config.is_decoder and not (attention_mask is None and self.config.attention == "sdpa")
        visible = visible_keys(input_ids, attention_mask, masked)
        mask = None if visible is None else visible[:, None]  # the same for all heads
        for layer in self.encoder.layer:
            hidden = layer(hidden, mask)
        return Output(hidden)

    def embed(self, input_ids: Tensor, token_type_ids: Tensor | None = None, places: Tensor | None = None) -> Tensor:
        """Return the input (B, L, D) of the first layer for input_ids (B, L).

        places (B, L) are the positions of the tokens in their rows, or None if these begin at 0.
        """
        tables, rate = self.embeddings, self.config.hidden_dropout_prob
        kinds, positions = tables.token_type_embeddings, tables.position_embeddings
        added = tables.word_embeddings(input_ids)
        added = added + (kinds.weight[0] if token_type_ids is None else kinds(token_type_ids))
        added = added + (positions.weight[: input_ids.shape[1]] if places is None else positions(places))
        hidden: Tensor = F.dropout(tables.LayerNorm(added), rate, self.training)
        return self.embeddings_project(hidden) if hasattr(self, "embeddings_project") else hidden


class Layer(nn.Module):
    """A transformer layer as in BERT: attention and feed-forward, each followed by residual sum and layer norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, inner, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
        self.heads, self.eager, self.causal = config.num_attention_heads, config.attention == "eager", config.is_decoder
        self.rates = (config.hidden_dropout_prob, config.attention_probs_dropout_prob)
        query, key, value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.attention = _group(
            self=_group(query=query, key=key, value=value),
            output=_group(dense=nn.Linear(width, width), LayerNorm=nn.LayerNorm(width, eps=eps)),
        )
        self.intermediate = _group(dense=nn.Linear(width, inner))
        self.output = _group(dense=nn.Linear(inner, width), LayerNorm=nn.LayerNorm(width, eps=eps))

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output (B, L, D) for hidden (B, L, D); mask (B or 1, 1, L or 1, L) is true at visible keys."""
        dropout = self.rates[0]
        context = self._attend(hidden, mask)
        after = self.attention.output
        middle = _narrow(after.LayerNorm(F.dropout(after.dense(context), dropout, self.training) + hidden))
        projected = self.output.dense(F.gelu(self.intermediate.dense(middle)))
        return _narrow(self.output.LayerNorm(F.dropout(projected, dropout, self.training) + middle))

    def _attend(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        own, dropout = self.attention.self, self.rates[1] if self.training else 0.0
        projected = _projected(hidden, own.query, own.key, own.value)
        query, key, value = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in projected)
        if self.eager:
            scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
            if mask is not None:
                scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
            context = F.dropout(scores.softmax(-1, dtype=torch.float32).to(query.dtype), dropout) @ value
        else:
            causal = self.causal and mask is None
            context = F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal=causal)
        merged: Tensor = context.transpose(1, 2).flatten(2)
        return merged


def _projected(hidden: Tensor, *parts: nn.Linear) -> tuple[Tensor, ...]:
    """Return what each layer computes of hidden (B, L, D); on a GPU by one product with all weights, side by side."""
    if not _on_gpu(hidden):
        return tuple(part(hidden) for part in parts)
    weights, biases = torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])
    return F.linear(hidden, weights, biases).chunk(len(parts), -1)


def _narrow(x: Tensor) -> Tensor:
    """Return x, on a GPU under autocast in its dtype, as `cpu/layers.py` does; norms, computed in fp32, return fp32."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if _on_gpu(x) and torch.is_autocast_enabled(kind) else x


def _on_gpu(x: Tensor) -> bool:
    return x.is_cuda


def hugging_face(model: Electra) -> Any:
    """Return Hugging Face's `ElectraModel` that shares all of its weights with `model`."""
    from transformers import ElectraConfig, ElectraModel

    config = ElectraConfig(**model.config.facts())
    twin: Any = ElectraModel._from_config(config, attn_implementation=model.config.attention)
    for name, part in list(model.named_modules()):
        if isinstance(part, (nn.Linear, nn.Embedding, nn.LayerNorm)):
            parent, _, last = name.rpartition(".")
            setattr(twin.get_submodule(parent), last, part)
    return twin.to(model.get_input_embeddings().weight.device)


def from_hub(folder: Path, dropout: float) -> Electra | None:
    """Return the encoder in a folder, with the same rate for every dropout; None if this module cannot compute it.

    The weights may be those of a whole pre-training model. Nothing is raised for a folder that cannot be read, because
    Hugging Face's own loader is used next and reports what is wrong.
    """
    from safetensors.torch import load_file

    try:
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        usual = {"position_embedding_type": "absolute", "hidden_act": "gelu", "add_cross_attention": False}
        if raw["model_type"] != "electra" or any(raw.get(key, value) != value for key, value in usual.items()):
            return None
        known = {key: raw[key] for key in Config.__dataclass_fields__ if key in raw}
        rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        config, tensors = Config(**known | rates), load_file(folder / WEIGHTS)
        if config.weights() > 2 * sum(weight.numel() for weight in tensors.values()):
            return None
        with torch.random.fork_rng(devices=[]):  # the drawn weights are replaced, and leave no trace
            model = Electra(config)
        weights = {name.removeprefix("electra."): weight.float() for name, weight in tensors.items()}
        if not model.state_dict().keys() <= weights.keys():
            return None
        model.load_state_dict({name: weights[name] for name in model.state_dict()})
    except Exception:
        return None
    return model


def to_hub(model: Electra, weights: dict[str, Tensor], folder: Path) -> None:
    """Write config.json and model.safetensors into a folder, as `AutoModel.from_pretrained` reads them."""
    _write(model, "ElectraModel", weights, folder)


def _write(model: Electra, kind: str, weights: dict[str, Tensor], folder: Path) -> None:
    facts = {"architectures": [kind], "dtype": "float32", **model.config.facts()}
    write_settings(folder, facts)
    with library_errors(folder / WEIGHTS):
        save_copies(weights, folder / WEIGHTS)


def masked_lm_to_hub(model: Electra, weights: dict[str, Tensor], head: MlmHead, folder: Path) -> None:
    """Write config.json and model.safetensors of an `ElectraForMaskedLM`, with our head under its names."""
    own = {
        "generator_predictions.dense.weight": head.dense.weight, "generator_predictions.dense.bias": head.dense.bias,
        "generator_predictions.LayerNorm.weight": head.norm.weight,
        "generator_predictions.LayerNorm.bias": head.norm.bias, "generator_lm_head.bias": head.bias,
    }  # fmt: skip
    body = {f"electra.{name}": weight for name, weight in weights.items()}
    _write(model, "ElectraForMaskedLM", body | own, folder)


def discriminator_to_hub(model: Electra, weights: dict[str, Tensor], head: BinaryHead, folder: Path) -> None:
    """Write config.json and model.safetensors of an `ElectraForPreTraining`, with our head under its names.

    Its head has a dense layer. A linear head, z = w h + b, is written as one that computes the same: the dense layer
    gives z and -z, and gelu(z) - gelu(-z) = z.
    """
    start, width = "discriminator_predictions.", model.config.hidden_size
    if head.dense is not None:
        dense, out = head.dense, head.out
        parts = {"dense.weight": dense.weight, "dense.bias": dense.bias,
                 "dense_prediction.weight": out.weight, "dense_prediction.bias": out.bias}  # fmt: skip
    else:
        signs = torch.zeros(width)
        signs[0], signs[1] = 1.0, -1.0
        parts = {"dense.weight": signs[:, None] * head.out.weight.cpu(), "dense.bias": signs * head.out.bias.cpu(),
                 "dense_prediction.weight": signs[None], "dense_prediction.bias": torch.zeros(1)}  # fmt: skip
    body = {f"electra.{name}": weight for name, weight in weights.items()}
    own = {start + name: weight for name, weight in parts.items()}
    _write(model, "ElectraForPreTraining", body | own, folder)


def _group(**parts: nn.Module) -> Any:
    """Return a module with the given modules as attributes."""
    group = nn.Module()
    for name, part in parts.items():
        setattr(group, name, part)
    return group


def query_states(
    model: Electra, ids: Tensor, queries: Queries, segments: Tensor | None, mask: int, plain: bool
) -> Tensor:
    """Return the last states (B, M, D) of the query stream for ids (B, L), segments (B, L).

    The query stream begins as [MASK], whose id is `mask`, would at these positions, so that its vector is learned and
    exported. If `plain`, torch computes everything.
    """
    rates, fast = rates_of(model), can(ids) and not plain
    with without_autocast(fast) as half:
        kinds = None if segments is None else gather(segments, queries.places)
        content = model.embed(ids, segments)
        start = model.embed(torch.full_like(queries.places, mask), kinds, queries.places)
        dtype = half or content.dtype
        streams = [content_stream(content.to(dtype), queries.visible), query_stream(start.to(dtype), queries)]
        layers = [_two_stream_layer(layer, dtype) for layer in model.encoder.layer]
        return last_states(streams, layers, model.config.num_attention_heads, rates[:2], fast)


def _two_stream_layer(layer: Any, dtype: torch.dtype) -> TwoStreamLayer:
    """Return the weights of a layer of an `Electra`; the weights that multiply keys are in `dtype`."""
    own, out, inner, outer = layer.attention.self, layer.attention.output, layer.intermediate.dense, layer.output
    query, key, value = ((each.weight.to(dtype), each.bias.to(dtype)) for each in (own.query, own.key, own.value))
    return TwoStreamLayer(
        query, key, value, (out.dense.weight.to(dtype), out.dense.bias), out.LayerNorm,
        (inner.weight.to(dtype), inner.bias), (outer.dense.weight.to(dtype), outer.dense.bias), outer.LayerNorm,
    )  # fmt: skip
