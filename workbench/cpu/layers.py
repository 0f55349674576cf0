"""The layers of an encoder of BERT's design on a CPU, computed over the module that holds the weights.

They compute the same function as the module's own `forward`, with its gradients written out. Query, key and value are
one product; there is no mask if no row is padded; the operations between products take one pass over memory each
(`workbench/cpu/compiled.py`); and under bf16 autocast everything is in bf16 except sums, normalisation and the stored
weights. Decision 7; docs/log.md has the time that each of these saves.

B rows, L positions, D width, H heads, d = D / H, N = B * L.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812

from workbench import cpu
from workbench.cpu import compiled
from workbench.tensors import Drop, visible_keys

# ----------------------------------------
# The encoders that are computed here: BERT's design, under the names that Hugging Face gives its parts.
#
# ELECTRA, BERT, RoBERTa and ALBERT compute the same layers. They differ in where their modules keep the weights, in
# the projection of the embeddings, in how positions are counted, and in one dropout.


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


def rates_of(model: Any) -> Rates:
    """Return the rates of dropout that are in effect: those of the configuration in training, else 0."""
    if not model.training:
        return Rates()
    config = model.config
    hidden, probabilities = config.hidden_dropout_prob, config.attention_probs_dropout_prob
    return Rates(hidden, probabilities, hidden, 0.0 if config.model_type == "albert" else hidden)


def layers_of(model: Any) -> list[list[Tensor]]:
    """Return the sixteen parameters of each layer from the first to the last, in the order of `layers.Layers.forward`.

    They are weight and bias of query, key, value, attention output, its norm, both feed-forward products and their
    norm. Layers that share their weights are listed once for each time that they are computed.
    """
    modules: list[tuple[Any, ...]] = []
    if model.config.model_type == "albert":
        groups, count = model.encoder.albert_layer_groups, model.config.num_hidden_layers
        for layer in (each for i in range(count) for each in groups[i * len(groups) // count].albert_layers):
            own = layer.attention
            modules.append((own.query, own.key, own.value, own.dense, own.LayerNorm))
            modules[-1] += (layer.ffn, layer.ffn_output, layer.full_layer_layer_norm)
    else:
        for layer in model.encoder.layer:
            own, output = layer.attention.self, layer.attention.output
            modules.append((own.query, own.key, own.value, output.dense, output.LayerNorm))
            modules[-1] += (layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm)
    return [[tensor for part in parts for tensor in (part.weight, part.bias)] for parts in modules]


# One kernel computes all layers unless some thread would have more than this many times the mean number of sequences.
MOST_UNEVEN = 1.125


def hidden_states(model: Any, ids: Tensor, attention: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
    """Return the last hidden states (B, L, D) of an encoder for ids (B, L), in the dtype of autocast or its weights.

    attention (B, L) is bool or 0/1, or None if no row is padded; segments (B, L) int64, or None if all are 0.
    """
    half = torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", enabled=False):
        config, rates = model.config, rates_of(model)
        key = int(torch.randint(2**63 - 1, ())) if any(rates) else 0
        dtype = torch.bfloat16 if half else model.embeddings.word_embeddings.weight.dtype
        hidden = _embed(model, ids, segments, Drop(key, rates.embeddings), dtype)
        bias = _bias(ids, attention, config, dtype)
        parameters = [tensor for layer in layers_of(model) for tensor in layer]
        return _computed(hidden, bias, config, rates, key, torch.is_grad_enabled(), parameters)


def _computed(
    hidden: Tensor, bias: Tensor | None, config: Any, rates: Rates, key: int, with_grad: bool, parameters: list[Tensor]
) -> Tensor:
    """Return the output (B, L, D) of layers with these parameters, from their input hidden (B, L, D)."""
    way = LayersTogether if _can_join(hidden, config, parameters) else Layers
    out: Tensor = way.apply(hidden.contiguous(), bias, config, rates, key, with_grad, *parameters)  # type: ignore[no-untyped-call]
    return out


def _can_join(hidden: Tensor, config: Any, parameters: list[Tensor]) -> bool:
    """Return whether one kernel computes all layers: in bf16, if the threads have nearly equal numbers of sequences."""
    rows, length, width = hidden.shape
    threads = torch.get_num_threads()
    most = -(-rows // threads)  # sequences of one thread
    return (
        bool(parameters)
        and most * threads <= MOST_UNEVEN * rows
        and cpu.tiled(hidden, length, width // config.num_attention_heads, width, config.intermediate_size)
        and all(each.dtype == torch.float32 and each.is_contiguous() for each in parameters)
    )


def every_state(model: Any, ids: Tensor, attention: Tensor | None = None) -> list[Tensor]:
    """Return the input of the first layer and the output of each layer, (B, L, D) each, in the dtype of the weights.

    There is no dropout and no gradient. ids are (B, L), attention is (B, L) or None.
    """
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        dtype = model.embeddings.word_embeddings.weight.dtype
        states = [_embed(model, ids, None, Drop(0, 0.0), dtype)]
        bias = _bias(ids, attention, model.config, dtype)
        for layer in layers_of(model):
            states.append(_computed(states[-1], bias, model.config, Rates(), 0, False, layer))
        return states


def _bias(ids: Tensor, attention: Tensor | None, config: Any, dtype: torch.dtype) -> Tensor | None:
    """Return the bias of the attention logits: 0 at visible keys, minus infinity elsewhere; None if all are visible."""
    visible = visible_keys(ids, attention, getattr(config, "is_decoder", False))  # ALBERT has no such setting
    if visible is None:
        return None
    wide = torch.promote_types(dtype, torch.float32)
    return torch.zeros(visible.shape, dtype=wide).masked_fill_(~visible, -torch.inf)


@torch.no_grad()
def states_at(model: Any, ids: Tensor, places: Tensor) -> Tensor:
    """Return the last hidden states (B, D) at one position of each row, places (B,), of ids (B, L) without padding.

    The last layer computes keys and values at all positions, and everything else at this position only. No gradient.
    """
    half = torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", enabled=False):
        config, layers = model.config, layers_of(model)
        dtype = torch.bfloat16 if half else model.embeddings.word_embeddings.weight.dtype
        hidden = _embed(model, ids, None, Drop(0, 0.0), dtype)
        below = [tensor for layer in layers[:-1] for tensor in layer]
        bias = _bias(ids, None, config, dtype)
        hidden = _computed(hidden, bias, config, Rates(), 0, False, below)
        return _last_layer(hidden, places, config, *(each.to(dtype) for each in layers[-1]))


def _last_layer(
    hidden: Tensor, places: Tensor, config: Any, wq: Tensor, bq: Tensor, wk: Tensor, bk: Tensor, wv: Tensor,
    bv: Tensor, wo: Tensor, bo: Tensor, g1: Tensor, c1: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor,
    g2: Tensor, c2: Tensor,
) -> Tensor:  # fmt: skip
    """Return the output (B, D) of one layer at places (B,), from its input hidden (B, L, D)."""
    heads, eps, width = config.num_attention_heads, config.layer_norm_eps, hidden.shape[-1]
    here = hidden[torch.arange(len(hidden)), places]
    query = F.linear(here, wq, bq).unflatten(1, (heads, -1))[:, :, None]  # (B, H, 1, d)
    key, value = F.linear(hidden, torch.cat([wk, wv]), torch.cat([bk, bv])).unflatten(2, (2, heads, -1)).unbind(2)
    scores = (query @ key.permute(0, 2, 3, 1)).float() * (width // heads) ** -0.5  # (B, H, 1, L)
    if getattr(config, "is_decoder", False):
        later = torch.arange(hidden.shape[1]) > places[:, None]
        scores.masked_fill_(later[:, None, None], -torch.inf)
    context = (scores.softmax(-1).to(hidden.dtype) @ value.transpose(1, 2)).flatten(1)
    middle = F.layer_norm(F.linear(context, wo, bo) + here, [width], g1, c1, eps)
    projected = F.linear(F.gelu(F.linear(middle, w1, b1)), w2, b2)
    return F.layer_norm(projected + middle, [width], g2, c2, eps)


def can(model: Any, ids: Tensor) -> bool:
    """Return whether `hidden_states` can replace `model` for ids: its design is known, on a CPU, not compiled."""
    return is_known(model.config) and ids.device.type == "cpu" and not torch.compiler.is_compiling()


def _embed(model: Any, ids: Tensor, segments: Tensor | None, drop: Drop, dtype: torch.dtype) -> Tensor:
    """Return the input (B, L, D) of the first layer: the sum of three embeddings after norm, dropout and projection."""
    tables = model.embeddings
    words = F.embedding(ids, tables.word_embeddings.weight, tables.word_embeddings.padding_idx)
    positions, albert = tables.position_embeddings, model.config.model_type == "albert"
    places = positions.weight[: ids.shape[1]]
    if model.config.model_type in COUNTED:
        padding: int = tables.padding_idx  # is also the position of padding; the first token has the next one
        real = ids != padding
        places = F.embedding(real.cumsum(1) * real + padding, positions.weight, positions.padding_idx)
    kinds = tables.token_type_embeddings.weight
    added = words + (places + kinds[0]) if segments is None else words + places + F.embedding(segments, kinds)
    norm = tables.LayerNorm
    hidden = F.layer_norm(added, norm.normalized_shape, norm.weight, norm.bias, norm.eps).to(dtype)
    if drop.rate:
        apply: Any = Dropped.apply
        hidden = apply(hidden.flatten(0, 1), drop).view_as(hidden)
    project = model.encoder.embedding_hidden_mapping_in if albert else getattr(model, "embeddings_project", None)
    return hidden if project is None else F.linear(hidden, project.weight.to(dtype), project.bias.to(dtype))


class Dropped(torch.autograd.Function):
    """Dropout of x (N, D), with its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, drop: Drop) -> Tensor:
        ctx.drop = drop
        out: Tensor = cpu.kernels_for(x).dropped(x, drop)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return cpu.kernels_for(grad).dropped(grad.contiguous(), ctx.drop), None


class Layers(torch.autograd.Function):
    """All layers of the encoder, from hidden (B, L, D) to hidden (B, L, D), with post-norm as in BERT.

    The gradient with respect to the input of a layer stays in two parts, that of the residual and that of attention,
    until the backward pass of the norm before it adds them while it reads them.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, bias: Tensor | None, config: Any, rates: Rates, key: int,
        with_grad: bool, *parameters: Tensor,
    ) -> Tensor:  # fmt: skip
        rows, _, width = hidden.shape
        heads, eps, dtype = config.num_attention_heads, config.layer_norm_eps, hidden.dtype
        scale = (width // heads) ** -0.5
        saved: list[Tensor] = []
        x = hidden.reshape(-1, width)
        for number, start in enumerate(range(0, len(parameters), 16)):
            wq, bq, wk, bk, wv, bv, wo, bo, g1, c1, w1, b1, w2, b2, g2, c2 = parameters[start : start + 16]
            wqkv, wo, w1, w2 = torch.cat([wq, wk, wv]).to(dtype), wo.to(dtype), w1.to(dtype), w2.to(dtype)
            drops = drops_of(key, number, rates)

            qkv = cpu.linear_split(x, wqkv, torch.cat([bq, bk, bv]), rows, heads)  # (3, B * H, L, d)
            probs, context = cpu.attention(qkv, bias, rows, scale, drops[0])  # (B * H, L, L), (N, D)
            middle, *normed1 = cpu.linear_norm(context, wo, bo, x, g1, c1, eps, drops[1])
            inner, activated = cpu.linear_gelu(middle, w1, b1)
            out, *normed2 = cpu.linear_norm(activated, w2, b2, middle, g2, c2, eps, drops[2])
            if with_grad:
                saved += [x, qkv, probs, context, *normed1, middle, inner, activated, *normed2]
                saved += [wqkv, wo, w1, b1, w2, g1, g2]
            x = out
        ctx.rates, ctx.key, ctx.rows, ctx.scale = rates, key, rows, scale
        ctx.save_for_backward(*saved)
        return x.view_as(hidden)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        rows, saved = ctx.rows, ctx.saved_tensors
        grads: list[Tensor] = []
        d_last = grad.reshape(-1, grad.shape[-1]).contiguous()
        above: tuple[Tensor, Tensor, Tensor] | None = None  # the gradient of this layer's output, except for the last
        for number in reversed(range(len(saved) // 20)):
            (x, qkv, probs, context, added1, mean1, rstd1, middle, inner, activated, added2, mean2, rstd2,
             wqkv, wo, w1, b1, w2, g1, g2) = saved[20 * number : 20 * number + 20]  # fmt: skip
            drops = drops_of(ctx.key, number, ctx.rates)
            if above is None:
                d_middle, d_out, d_norm2 = cpu.kernels_for(d_last).residual_norm_backward(
                    d_last, None, added2, mean2, rstd2, g2, drops[2]
                )
            else:
                d_middle, d_out, d_norm2 = cpu.linear_norm_backward(*above, added2, mean2, rstd2, g2, drops[2])
            d_inner, d_b1 = cpu.linear_gelu_backward(d_out, w2, inner, b1)
            d_w2, d_w1 = cpu.outer(d_out, activated), cpu.outer(d_inner, middle)
            d_x, d_out, d_norm1 = cpu.linear_norm_backward(d_inner, w1, d_middle, added1, mean1, rstd1, g1, drops[1])
            d_wo = cpu.outer(d_out, context)
            d_qkv, d_bqkv = cpu.attention_backward(d_out @ wo, qkv, probs, rows, ctx.scale, drops[0])
            d_wqkv = cpu.outer(d_qkv, x)
            above = d_qkv, wqkv, d_x
            (d_wq, d_wk, d_wv), (d_bq, d_bk, d_bv) = d_wqkv.chunk(3), d_bqkv.chunk(3)
            (d_g1, d_c1, d_bo), (d_g2, d_c2, d_b2) = d_norm1, d_norm2
            grads = [d_wq, d_bq, d_wk, d_bk, d_wv, d_bv, d_wo, d_bo, d_g1, d_c1, d_w1, d_b1, d_w2, d_b2, d_g2, d_c2,
                     *grads]  # fmt: skip
        assert above is not None
        d_qkv, wqkv, d_x = above
        return (torch.addmm(d_x, d_qkv, wqkv).view_as(grad), None, None, None, None, None, *grads)


class LayersTogether(torch.autograd.Function):
    """The same as `Layers` in one kernel, in bf16, for widths and lengths that are multiples of 32 (`layers.c`).

    Each thread computes its own sequences from the first layer to the last. In a step, threads wait for each other
    about twice a layer instead of some thirty times, which matters most beside other processes (docs/log.md).
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, bias: Tensor | None, config: Any, rates: Rates, key: int,
        with_grad: bool, *parameters: Tensor,
    ) -> Tensor:  # fmt: skip
        heads = config.num_attention_heads
        ctx.heads, ctx.scale, ctx.drops = heads, (hidden.shape[-1] // heads) ** -0.5, drops_of(key, 0, rates)
        out, saved = compiled.layers(
            hidden, bias, parameters, heads, config.layer_norm_eps, ctx.scale, ctx.drops, with_grad
        )
        if with_grad:
            ctx.save_for_backward(hidden, *saved, *parameters)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        hidden, *rest = ctx.saved_tensors
        saved, parameters = rest[:10], rest[10:]  # ten tensors of `compiled.layers`
        d_hidden, grads = compiled.layers_backward(
            grad.contiguous(), hidden, saved, parameters, ctx.heads, ctx.scale, ctx.drops
        )
        return (d_hidden, None, None, None, None, None, *grads)


def drops_of(key: int, layer: int, rates: Rates) -> list[Drop]:
    """Return the dropouts of a layer: of attention probabilities, of attention output and of feed-forward output."""
    parts = (rates.probabilities, rates.attention, rates.feed_forward)
    return [Drop(key + 3 * layer + part + 1, rate) for part, rate in enumerate(parts)]
