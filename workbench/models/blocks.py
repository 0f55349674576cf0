"""The blocks of an ELECTRA encoder on a CPU, computed over Hugging Face's own module as holder of the weights.

The same function as `ElectraModel.forward`, with its gradients written out: one product for query, key and value, no
mask where rows are full, softmax attention in the open, dropout from 16 random bits a number, and in bf16 everything
but sums, normalisation statistics and the weights themselves. Decision 7; each step's gain is in docs/log.md.

B rows, L positions, D width, H heads, N = B * L.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

Random = np.random.Generator
_aten: Any = torch.ops.aten
_INTEGERS = {torch.bfloat16: torch.int16, torch.float32: torch.int32, torch.float64: torch.int64}  # of the same width


def hidden_states(model: Any, ids: Tensor, attention: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
    """Last hidden states (B, L, D) of a Hugging Face `ElectraModel` at ids (B, L), in the dtype of autocast or fp32.

    attention (B, L) bool or 0/1, None when rows are full; segments (B, L) int64, None when all are the first.
    """
    half = torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", enabled=False):
        config, training = model.config, model.training
        rates = (config.hidden_dropout_prob, config.attention_probs_dropout_prob) if training else (0.0, 0.0)
        random = np.random.Generator(np.random.SFC64(int(torch.randint(2**63 - 1, ())))) if any(rates) else None
        dtype = torch.bfloat16 if half else model.embeddings.word_embeddings.weight.dtype
        hidden = _embed(model, ids, segments, rates[0], random, dtype)
        bias = None
        if attention is not None:
            bias = torch.zeros(attention.shape, dtype=hidden.dtype).masked_fill_(~attention.bool(), -torch.inf)
        apply: Any = Layer.apply
        for layer in model.encoder.layer:
            hidden = apply(hidden, bias, config, rates, random, *weights(layer))
        return hidden


def can(model: Any, ids: Tensor) -> bool:
    """Whether `hidden_states` computes what `model` does at ids: an ELECTRA encoder with GELU, on a CPU, eagerly."""
    config = model.config
    known = config.model_type == "electra" and config.hidden_act == "gelu" and not config.is_decoder
    return known and ids.device.type == "cpu" and not torch.compiler.is_compiling()


def weights(layer: Any) -> list[Tensor]:
    """The sixteen parameters of a layer in the order of `Layer.forward`."""
    own = layer.attention.self
    parts = (own.query, own.key, own.value, layer.attention.output.dense, layer.attention.output.LayerNorm,
             layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm)  # fmt: skip
    return [tensor for part in parts for tensor in (part.weight, part.bias)]


def _embed(
    model: Any, ids: Tensor, segments: Tensor | None, rate: float, random: Random | None, dtype: torch.dtype
) -> Tensor:
    """Sum of the three tables, normalised, projected to the layers' width: (B, L, D)."""
    tables = model.embeddings
    words = F.embedding(ids, tables.word_embeddings.weight, tables.word_embeddings.padding_idx)
    places = tables.position_embeddings.weight[: ids.shape[1]]
    kinds = tables.token_type_embeddings.weight
    added = words + (places + kinds[0]) if segments is None else words + places + F.embedding(segments, kinds)
    norm = tables.LayerNorm
    hidden = F.layer_norm(added, norm.normalized_shape, norm.weight, norm.bias, norm.eps).to(dtype)
    if random is not None and rate:
        hidden = hidden * keep(hidden.shape, rate, random, dtype, 1 / (1 - rate))
    project = getattr(model, "embeddings_project", None)
    return hidden if project is None else F.linear(hidden, project.weight.to(dtype), project.bias.to(dtype))


class Layer(torch.autograd.Function):
    """One encoder layer: hidden (B, L, D) to hidden (B, L, D), post-norm as in BERT.

    Dropout zeroes numbers by their bits; the factor 1 / (1 - rate) that makes up for it sits in the weights that come
    next to each, where it costs nothing.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, bias: Tensor | None, config: Any, rates: tuple[float, float], random: Random | None,
        *parameters: Tensor,
    ) -> Tensor:  # fmt: skip
        rows, length, width = hidden.shape
        heads, eps = config.num_attention_heads, config.layer_norm_eps
        wq, bq, wk, bk, wv, bv, wo, bo, g1, c1, w1, b1, w2, b2, g2, c2 = parameters
        scale = (width // heads) ** -0.5
        up = 1 / (1 - rates[0])
        dtype = hidden.dtype
        wqkv, bqkv = torch.cat([wq * scale, wk, wv]).to(dtype), torch.cat([bq * scale, bk, bv]).to(dtype)
        wo, bo = (wo * (up / (1 - rates[1]))).to(dtype), (bo * up).to(dtype)
        w1, b1, w2, b2 = w1.to(dtype), b1.to(dtype), (w2 * up).to(dtype), (b2 * up).to(dtype)

        flat = hidden.view(-1, width)
        qkv = _split(torch.addmm(bqkv, flat, wqkv.t()), rows, heads)
        query, key, value = qkv
        scores = query @ key.transpose(1, 2)  # (B * H, L, L)
        if bias is not None:
            scores.view(rows, heads, length, length).add_(bias[:, None, None, :])
        chances = torch.softmax(scores, -1, out=scores)
        bits = [_bits(size, rate, random, dtype) for size, rate in (
            (chances.shape, rates[1]), (flat.shape, rates[0]), (flat.shape, rates[0]))]  # fmt: skip
        kept = _zeroed(chances, bits[0])
        context = _merge(kept @ value, rows)  # (N, D)

        attended = _zero(torch.addmm(bo, context, wo.t()), bits[1]).add_(flat)
        middle, *moments1 = torch.native_layer_norm(attended, [width], g1, c1, eps)
        inner = torch.addmm(b1, middle, w1.t())
        fed = _zero(torch.addmm(b2, F.gelu(inner), w2.t()), bits[2]).add_(middle)
        out, *moments2 = torch.native_layer_norm(fed, [width], g2, c2, eps)

        ctx.heads, ctx.rates, ctx.factors = heads, rates, (scale, up)
        ctx.save_for_backward(flat, qkv, chances, kept, context, attended, middle, inner, fed, *moments1, *moments2,
                              wqkv, wo, w1, w2, g1, c1, g2, c2, *bits)  # fmt: skip
        return out.view_as(hidden)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (flat, qkv, chances, kept, context, attended, middle, inner, fed, mean1, rstd1, mean2, rstd2,
         wqkv, wo, w1, w2, g1, c1, g2, c2, bits0, bits1, bits2) = ctx.saved_tensors  # fmt: skip
        (rows, _, width), heads, (scale, up) = grad.shape, ctx.heads, ctx.factors
        query, key, value = qkv

        d_fed, d_g2, d_c2 = _norm_backward(grad.reshape(-1, width), fed, mean2, rstd2, g2, c2)
        d_out = _zeroed(d_fed, bits2)
        d_w2, d_b2 = d_out.t() @ F.gelu(inner), d_out.sum(0)
        d_inner = _aten.gelu_backward(d_out @ w2, inner)
        d_w1, d_b1 = d_inner.t() @ middle, d_inner.sum(0)
        d_middle = torch.addmm(d_fed, d_inner, w1, out=d_fed)

        d_attended, d_g1, d_c1 = _norm_backward(d_middle, attended, mean1, rstd1, g1, c1)
        d_out = _zeroed(d_attended, bits1)
        d_wo, d_bo = d_out.t() @ context, d_out.sum(0)
        d_context = (d_out @ wo).view(rows, -1, heads, width // heads).transpose(1, 2).reshape(value.shape)
        d_chances = _zero(d_context @ value.transpose(1, 2), bits0)
        d_scores = _aten._softmax_backward_data(d_chances, chances, -1, chances.dtype)
        d_qkv = torch.empty_like(qkv)
        torch.bmm(d_scores, key, out=d_qkv[0])
        torch.bmm(d_scores.transpose(1, 2), query, out=d_qkv[1])
        torch.bmm(kept.transpose(1, 2), d_context, out=d_qkv[2])
        d_flat = _merge(d_qkv, rows)  # (N, 3 D)
        d_hidden = torch.addmm(d_attended, d_flat, wqkv, out=d_attended).view_as(grad)

        d_wqkv, d_bqkv = (d_flat.t() @ flat).to(g1.dtype), d_flat.sum(0).to(g1.dtype)
        d_wqkv[:width] *= scale
        d_bqkv[:width] *= scale
        (d_wq, d_wk, d_wv), (d_bq, d_bk, d_bv) = d_wqkv.chunk(3), d_bqkv.chunk(3)
        d_wo, d_bo, d_w1, d_b1, d_w2, d_b2 = (d.to(g1.dtype) for d in (d_wo, d_bo, d_w1, d_b1, d_w2, d_b2))
        if up > 1 or ctx.rates[1]:
            d_wo *= up / (1 - ctx.rates[1])
            for gradient in (d_bo, d_w2, d_b2):
                gradient *= up
        return (d_hidden, *[None] * 4, d_wq, d_bq, d_wk, d_bk, d_wv, d_bv, d_wo, d_bo, d_g1, d_c1, d_w1, d_b1,
                d_w2, d_b2, d_g2, d_c2)  # fmt: skip


def _split(qkv: Tensor, rows: int, heads: int) -> Tensor:
    """(N, 3 D) to (3, B * H, L, D / H)."""
    width = qkv.shape[1] // (3 * heads)
    split = qkv.view(rows, -1, 3, heads, width).permute(2, 0, 3, 1, 4)
    return split.reshape(3, rows * heads, -1, width)


def _merge(parts: Tensor, rows: int) -> Tensor:
    """(B * H, L, D / H) to (N, D), or (3, B * H, L, D / H) to (N, 3 D)."""
    *three, many, length, width = parts.shape
    split = parts.view(*three or [1], rows, many // rows, length, width).permute(1, 3, 0, 2, 4)
    return split.reshape(rows * length, -1)


def _norm_backward(grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, gain: Tensor, shift: Tensor) -> Any:
    return _aten.native_layer_norm_backward(grad, x, [x.shape[-1]], mean, rstd, gain, shift, [True, True, True])


def keep(size: Any, rate: float, random: Random, dtype: torch.dtype, value: float = 1.0) -> Tensor:
    """`value` with probability 1 - rate (to 2^-15), else 0, of this size."""
    return _zero(torch.full(size, value, dtype=dtype), _bits(size, rate, random, dtype))


def _bits(size: Any, rate: float, random: Random | None, dtype: torch.dtype) -> Tensor | None:
    """An integer as wide as dtype for each number: all ones with probability 1 - rate (to 2^-15), else all zeros."""
    if random is None or not rate:
        return None
    count = int(np.prod(size))
    words = random.integers(0, 2**64, -(-count // 4), dtype=np.uint64).view(np.int16)[:count]
    kept = min(round((1 - rate) * 2**15), 2**15 - 1)
    mask = torch.from_numpy(words).bitwise_and_(0x7FFF).sub_(kept).bitwise_right_shift_(15)  # below 0 is all ones
    return mask.to(_INTEGERS[dtype]).view(size)


def _zeroed(x: Tensor, bits: Tensor | None) -> Tensor:
    """A copy of x with +0 where the bits are zeros; x itself where there are none."""
    return x if bits is None else torch.bitwise_and(x.view(bits.dtype), bits).view(x.dtype)


def _zero(x: Tensor, bits: Tensor | None) -> Tensor:
    """x with +0 where the bits are zeros, in place."""
    if bits is not None:
        x.view(bits.dtype).bitwise_and_(bits)
    return x
