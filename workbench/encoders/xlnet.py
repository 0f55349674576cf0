"""XLNet (Yang et al. 2019): attention by distances, and a query stream that predicts tokens in any order.

Yang et al. 2019, "XLNet: Generalized autoregressive pretraining for language understanding"; zihangdai/xlnet,
`modeling.py`. Hugging Face's `XLNetModel` holds the weights, and reads and writes them. Its own forward pass computes
attention in the query stream for all positions and projects distances for each row of a batch, and its masks and sums
of scores take many passes over memory (docs/log.md has the times). In rows of one segment, attention to segments adds
the same to all scores of a query, and is left out. Memory of former rows is not used.

B rows, L positions, M queries, D width, H heads, d = D / H.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from workbench.cpu.functions import can
from workbench.errors import InputError
from workbench.models import encoder, flops
from workbench.models.flops import Flops
from workbench.models.two_streams import (
    Layer,
    Queries,
    Relative,
    content_stream,
    last_states,
    query_stream,
    without_autocast,
)
from workbench.spec.parts import EncoderSpec, Special

OF_SEGMENTS = ("r_s_bias", "seg_embed")  # get no gradient from rows of one segment
IDLE = (*OF_SEGMENTS, "mask_emb")  # get none from rows of one segment without a query stream


TABLE, LAYERS = "word_embedding", "layer"
SEGMENTS, READS_LAYERS, TIED_QUERY_HEAD = True, True, True
to_hub = encoder.save


def build(config: EncoderSpec, special: Special) -> Any:
    """Return an `XLNetModel` with initial weights. Raises InputError for two rates of dropout."""
    if config.attention_dropout != config.dropout:
        raise InputError(
            f"encoder.attention_dropout={config.attention_dropout:g} must equal encoder.dropout={config.dropout:g} for "
            f"encoder.family={config.family}, which has one rate of dropout"
        )
    sizes = {
        "vocab_size": config.vocab, "d_model": config.hidden, "n_layer": config.layers, "n_head": config.head_count,
        "d_inner": config.ffn_width, "dropout": config.dropout, "layer_norm_eps": 1e-12,
        "initializer_range": config.init, "pad_token_id": special.pad, "bos_token_id": special.cls,
        "eos_token_id": special.sep, "ff_activation": "gelu", "use_mems_eval": False, "mem_len": None,
        "reuse_len": None,
    }  # fmt: skip
    model = encoder.hugging_face_module("xlnet", sizes, "eager")
    initialise(model, config.init)
    return model


def cost(config: EncoderSpec, length: int) -> Flops:
    """Return the FLOPs of a row, with the products of queries and distances.

    The projection of the distances is left out, since it is computed once for a batch, whatever its number of rows.
    """
    return flops.transformer(config, length, relative=length)


def query_cost(config: EncoderSpec, length: int, queries: int) -> Flops:
    """Return the FLOPs of a row with both streams."""
    return flops.two_stream_transformer(config, length, queries, relative=length)


def initialise(model: Any, std: float) -> None:
    """Initialise the weights of an `XLNetModel` in place: normal, with biases 0 and norms that do nothing.

    The biases r_w, r_r and r_s of queries are normal as well (the released code, `modeling.py`). Weights that rows of
    one segment do not train are frozen; an objective with a query stream releases `mask_emb`, and rows of two segments
    release the others (`release`).
    """
    for name, weight in model.named_parameters():
        if "layer_norm" in name or (weight.ndim == 1 and name.endswith("bias")):
            nn.init.constant_(weight, float(name.endswith("layer_norm.weight")))
        else:
            nn.init.normal_(weight, std=std)
        weight.requires_grad_(name.rpartition(".")[2] not in IDLE)


def release(model: Any, part: str) -> None:
    """Let an `XLNetModel` train the weights that only rows of two "segments", or only "queries", train."""
    for name, weight in model.named_parameters():
        if name.rpartition(".")[2] in (OF_SEGMENTS if part == "segments" else ("mask_emb",)):
            weight.requires_grad_(True)


def states(model: Any, ids: Tensor, attention: Tensor | None, segments: Tensor | None = None) -> Tensor:
    """Return the last hidden states (B, L, D) for ids (B, L).

    attention (B, L) is None if no row is padded, segments (B, L) if all are the same.
    """
    seen = torch.ones_like(ids[:1], dtype=torch.bool) if attention is None else attention.bool()
    return _states(model, ids, seen[:, None], None, segments)


def plain_states(model: Any, ids: Tensor, attention: Tensor | None, segments: Tensor | None) -> Tensor:
    """Return the same as `states`, as Hugging Face's module computes it."""
    mask = attention.long() if attention is not None else None  # the module subtracts it from 1
    return encoder.plain_states(model, ids, mask, segments)


def query_states(model: Any, ids: Tensor, queries: Queries, segments: Tensor | None, mask: int, plain: bool) -> Tensor:
    """Return the last states (B, M, D) of the query stream for ids (B, L), segments (B, L)."""
    if not plain:
        return _states(model, ids, queries.visible, queries, segments)
    hidden, mapping = (~queries.visible).float(), F.one_hot(queries.places, ids.shape[1]).float()
    states: Tensor = model(
        input_ids=ids, perm_mask=hidden, target_mapping=mapping, token_type_ids=segments
    ).last_hidden_state
    return states


def _states(model: Any, ids: Tensor, visible: Tensor, queries: Queries | None, segments: Tensor | None) -> Tensor:
    fast, rate = can(ids), model.config.dropout if model.training else 0.0
    with without_autocast(fast) as half:
        dtype = half or model.word_embedding.weight.dtype
        content = F.dropout(model.word_embedding(ids).to(dtype), rate)
        streams = [content_stream(content, visible, segments)]
        if queries is not None:
            start = F.dropout(model.mask_emb.to(dtype).expand(*queries.places.shape, -1), rate)
            streams.append(query_stream(start, queries, segments))
        distances = F.dropout(sines(ids.shape[1], content), rate)
        layers = [_layer(each, distances, rate) for each in model.layer]
        return F.dropout(last_states(streams, layers, model.config.n_head, (rate, rate), fast), rate)


def sines(length: int, like: Tensor) -> Tensor:
    """Return the encodings (2L, D) of the distances L, L - 1, ..., 1 - L: sines, then cosines, in the dtype of `like`.

    Dropout of them has one mask for a batch, where Hugging Face's has one for each of its rows.
    """
    width = like.shape[-1]
    frequencies = 10_000 ** (-torch.arange(0, width, 2, device=like.device) / width)
    angles = torch.arange(length, -length, -1, device=like.device)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1).to(like.dtype)


def _layer(layer: Any, distances: Tensor, rate: float) -> Layer:
    """Return the weights of an `XLNetLayer`, matrices in the dtype of distances (2L, D)."""
    own, ff, dtype = layer.rel_attn, layer.ff, distances.dtype
    query, key, value, out, position = (
        each.flatten(1).to(dtype) for each in (own.q, own.k, own.v, own.o, own.r)
    )  # (in, H * d), but `o` is (out, H * d)
    keys = (distances @ position).unflatten(1, own.r_r_bias.shape).transpose(0, 1)  # (H, 2L, d)
    content, place, segment = (bias.to(dtype) for bias in (own.r_w_bias, own.r_r_bias, own.r_s_bias))
    same, other = own.seg_embed.to(dtype)
    relative = Relative(keys, content, place, segment, other - same)
    return Layer(
        (query.t(), None), (key.t(), None), (value.t(), None), (out, own.r_w_bias.new_zeros(len(out))), own.layer_norm,
        (ff.layer_1.weight.to(dtype), ff.layer_1.bias), (ff.layer_2.weight.to(dtype), ff.layer_2.bias), ff.layer_norm,
        relative, rate,
    )  # fmt: skip
