"""The loss over the whole vocabulary and samples from it, in one pass that never holds all logits.

For one chunk of rows after the other, this computes logits, softmax, loss, a sample for each row and the gradients,
because the gradient of a row depends on its own logits only. The backward pass only scales these gradients. The logits
take CHUNK bytes, whatever B, K and L are. Decision 7.

N rows (the positions of a batch, flattened), E width of the embeddings, V size of the vocabulary. Sums are in fp32 for
every dtype of the features.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from workbench import cpu
from workbench.tensors import Guess, Mean

CHUNK = {"cpu": 3 * 2**23, "cuda": 2**29}  # bytes of logits that are held at once


def guess(
    features: Tensor, table: Tensor, bias: Tensor, targets: Tensor, weights: Tensor,
    gate: Tensor | None = None, copied: Tensor | None = None,
    draws: Tensor | None = None, temperature: float = 1.0,
) -> Guess:  # fmt: skip
    """Return the weighted mean loss and, for each row, whether its target is the most probable token, and a sample.

    features (N, E), table (V, E), bias (V,), targets (N,), weights (N,). With logits x = features @ table.T + bias, the
    loss of a row is -log softmax(x)[target]; with `gate` (N,) and `copied` (N,) bool it is that of the copy mixture
    (`losses.copy_mixture_loss`). Samples come from softmax(x / temperature) at draws (N,) in [0, 1), and are 0 without
    draws.
    """
    if gate is None:
        write, copy = torch.zeros_like(weights, dtype=torch.float32), None
    else:
        assert copied is not None
        write, copy = F.logsigmoid(-gate.float()), F.logsigmoid(gate.float()).masked_fill(~copied, -torch.inf)
    apply: Any = _Vocabulary.apply
    weights = weights.float()
    loss, correct, samples, sample_nll = apply(features, table, bias, write, copy, targets, weights, draws, temperature)
    return Guess(samples, Mean(loss, weights.sum()), correct, sample_nll)


def log_likelihood(features: Tensor, table: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Return log softmax(features @ table.T + bias)[target] (N,) for features (N, E), in fp32 or wider, no gradient."""
    half = torch.is_autocast_enabled(features.device.type)
    with torch.autocast(features.device.type, enabled=False):
        dtype = torch.bfloat16 if half else features.dtype
        x, cast_table, ops = features.to(dtype), table.to(dtype), cpu.kernels_for(features.to(dtype))
        parts = []
        for part in torch.arange(len(x), device=x.device).split(_rows_at_once(cast_table)):
            none = torch.zeros(len(part), device=x.device)
            logits = cpu.linear_words(x[part], cast_table)
            parts.append(ops.vocabulary(logits, bias, targets[part], none, None, none, None, 1.0, False)[1])
        return torch.cat(parts) if parts else torch.zeros(0, device=x.device)


def _rows_at_once(table: Tensor) -> int:
    """Return how many rows of logits over a table (V, E) are held at once: a multiple of 32, for `tiles.c`."""
    fit = max(1, CHUNK.get(table.device.type, CHUNK["cpu"]) // table.element_size() // len(table))
    return fit // 32 * 32 or fit


class _Vocabulary(torch.autograd.Function):
    """The weighted mean of -log(exp(copy) + exp(write) q), where q is the probability of the target of a row.

    `copy` is None if nothing is copied. The tensors are those of `guess` and `portable.vocabulary`.
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, table: Tensor, bias: Tensor, write: Tensor, copy: Tensor | None, targets: Tensor,
        weights: Tensor, draws: Tensor | None, temperature: float,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        half = torch.is_autocast_enabled(features.device.type)
        with torch.autocast(features.device.type, enabled=False):
            dtype = torch.bfloat16 if half else features.dtype
            x, cast_table = features.to(dtype), table.to(dtype)
            with_grad = any(ctx.needs_input_grad)
            d_features, d_table, d_bias = torch.empty_like(x), torch.empty_like(table), torch.zeros_like(bias)
            share = weights / weights.sum().clamp(min=1e-6)
            many = _rows_at_once(cast_table)
            ops = cpu.kernels_for(x)
            chunks = []
            for start in range(0, len(x), many):
                part = slice(start, start + many)
                logits = cpu.linear_words(x[part], cast_table)
                copied, drawn = (None if one is None else one[part] for one in (copy, draws))
                *each, d_part = ops.vocabulary(
                    logits, bias, targets[part], write[part], copied, share[part], drawn, temperature, with_grad
                )
                chunks.append(each)
                if with_grad:
                    d_features[part] = cpu.linear_words_backward(logits, x[part], cast_table, d_table, start > 0)
                    d_bias += d_part
                del logits  # before the next ones are allocated
            grad_nll, log_likelihoods, correct, samples, sample_nll = (
                torch.cat(parts) for parts in zip(*chunks, strict=True)
            )
            ctx.save_for_backward(d_features, d_table, d_bias, share, grad_nll)
            ctx.copies, ctx.dtype = copy is not None, features.dtype
            ctx.mark_non_differentiable(correct, samples, sample_nll)
            return -(share * log_likelihoods).sum(), correct, samples, sample_nll

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
        d_features, d_table, d_bias, share, grad_nll = ctx.saved_tensors
        d_copy = (grad_nll - share) * grad if ctx.copies else None
        return ((d_features * grad).to(ctx.dtype), d_table * grad, d_bias * grad, -grad_nll * grad, d_copy, *[None] * 4)
