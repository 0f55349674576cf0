"""Loss and samples over the whole vocabulary, in one pass that never holds all logits.

A chunk of rows at a time: logits, softmax, loss, one sample a row, and at once the gradients, since the slope of the
loss by each row's likelihood is known where the likelihood is. Backward has nothing left to do but to scale them.
Memory is CHUNK bytes, whatever B, K and L. Decision 7.

N rows (positions of a batch, flat), E embedding width, V vocabulary. Sums run in fp32 whatever the features are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from workbench import cpu
from workbench.tensors import Guess

CHUNK = {"cpu": 3 * 2**23, "cuda": 2**29}  # bytes of logits held at once


def guess(
    features: Tensor, table: Tensor, bias: Tensor, targets: Tensor, weights: Tensor,
    gate: Tensor | None = None, copied: Tensor | None = None,
    draws: Tensor | None = None, temperature: float = 1.0,
) -> Guess:  # fmt: skip
    """Mean loss over the rows that count, and of each row whether its target is the likeliest word, and a sample.

    features (N, E), table (V, E), bias (V,), targets (N,), weights (N,). The loss of a row is -log softmax(x)[target];
    with `gate` (N,) and `copied` (N,) bool that of the copy mixture (`losses.copy_mixture_loss`).
    Samples are from softmax(x / temperature), at draws (N,) in [0, 1); without draws they are all 0.
    """
    if gate is None:
        write, copy = torch.zeros_like(weights, dtype=torch.float32), None
    else:
        assert copied is not None
        write, copy = F.logsigmoid(-gate.float()), F.logsigmoid(gate.float()).masked_fill(~copied, -torch.inf)
    apply: Any = _Vocabulary.apply
    loss, right, samples, surprise = apply(
        features, table, bias, write, copy, targets, weights.float(), draws, temperature
    )
    return Guess(samples, loss, right, surprise)


def log_likelihood(features: Tensor, table: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Return log softmax(features @ table.T + bias)[target] (N,) of features (N, E), in fp32 or wider; no gradient."""
    half = torch.is_autocast_enabled(features.device.type)
    with torch.autocast(features.device.type, enabled=False):
        dtype = torch.bfloat16 if half else features.dtype
        x, words, ops = features.to(dtype), table.to(dtype), cpu.of(features.to(dtype))
        found = []
        for part in torch.arange(len(x), device=x.device).split(_rows_at_once(words)):
            none = torch.zeros(len(part), device=x.device)
            logits = cpu.linear_words(x[part], words)
            found.append(ops.vocabulary(logits, bias, targets[part], none, None, none, None, 1.0, False)[1])
        return torch.cat(found) if found else torch.zeros(0, device=x.device)


def _rows_at_once(words: Tensor) -> int:
    """Return how many rows of logits over a table (V, E) are held at once: whole tiles, for tile registers."""
    fit = max(1, CHUNK.get(words.device.type, CHUNK["cpu"]) // words.element_size() // len(words))
    return fit // 32 * 32 or fit


class _Vocabulary(torch.autograd.Function):
    """The loss of a row with likelihood q of its target is -log(exp(copy) + exp(write) q); `copy` None is none."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, table: Tensor, bias: Tensor, write: Tensor, copy: Tensor | None, targets: Tensor,
        weights: Tensor, draws: Tensor | None, temperature: float,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        half = torch.is_autocast_enabled(features.device.type)
        with torch.autocast(features.device.type, enabled=False):
            dtype = torch.bfloat16 if half else features.dtype
            x, words = features.to(dtype), table.to(dtype)
            learns = any(ctx.needs_input_grad)
            d_features, d_table, d_bias = torch.empty_like(x), torch.empty_like(table), torch.zeros_like(bias)
            share = weights / weights.sum().clamp(min=1e-6)
            many = _rows_at_once(words)
            ops = cpu.of(x)
            found = []
            for start in range(0, len(x), many):
                part = slice(start, start + many)
                logits = cpu.linear_words(x[part], words)
                copied, drawn = (None if one is None else one[part] for one in (copy, draws))
                *each, d_shift = ops.vocabulary(
                    logits, bias, targets[part], write[part], copied, share[part], drawn, temperature, learns
                )
                found.append(each)
                if learns:
                    d_features[part] = cpu.linear_words_backward(logits, x[part], words, d_table, start > 0)
                    d_bias += d_shift
                del logits  # before there are the next
            kept, losses, right, samples, surprise = (torch.cat(parts) for parts in zip(*found, strict=True))
            ctx.save_for_backward(d_features, d_table, d_bias, share, kept)
            ctx.copies, ctx.dtype = copy is not None, features.dtype
            ctx.mark_non_differentiable(right, samples, surprise)
            return -(share * losses).sum(), right, samples, surprise

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
        d_features, d_table, d_bias, share, kept = ctx.saved_tensors
        d_copy = (kept - share) * grad if ctx.copies else None
        return ((d_features * grad).to(ctx.dtype), d_table * grad, d_bias * grad, -kept * grad, d_copy, *[None] * 4)
