"""Softmax, GELU, and layer norm of a residual sum, with gradients, for models that `layers.py` does not support.

On a CPU each is one pass over memory (`workbench/cpu/compiled.py`). On a GPU, under torch.compile, and without `fast`,
the same is computed by torch operations.

B rows, H heads, Q queries, K keys, N rows of a matrix, D or I its columns.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812

from workbench import cpu
from workbench.cpu.layers import Dropped
from workbench.tensors import Drop, Guess, Mean


def can(x: Tensor) -> bool:
    """Return whether the functions can be computed for x in one pass each: on a CPU, and not compiled."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def attention_probabilities(scores: Tensor, bias: Tensor, scale: float, drop: Drop, fast: bool) -> Tensor:
    """Return softmax(scale * scores + bias) after dropout, (B * H, Q, K), for scores that nothing else reads.

    bias (B or 1, Q or 1, K) is added to the scores of all heads.
    """
    if fast:
        result: Tensor = _Softmax.apply(scores, bias, scale, drop)  # type: ignore[no-untyped-call]
        return result
    raised = scores.view(-1, scores.shape[0] // len(bias), *scores.shape[1:]).float() * scale + bias[:, None]
    return F.dropout(raised.softmax(-1).to(scores.dtype).view_as(scores), drop.rate)


def gelu(x: Tensor, bias: Tensor, fast: bool) -> Tensor:
    """Return GELU(x + bias) for x (N, I) and bias (I,)."""
    result: Tensor = _Gelu.apply(x, bias) if fast else F.gelu(x + bias)  # type: ignore[no-untyped-call]
    return result


def residual_norm(branch: Tensor, bias: Tensor, residual: Tensor, norm: nn.LayerNorm, drop: Drop, fast: bool) -> Tensor:
    """Return the layer norm of residual + dropout(branch + bias), (N, D), for bias (D,)."""
    if not fast:
        out: Tensor = norm(F.dropout(branch + bias, drop.rate) + residual)
        return out
    result: Tensor = _ResidualNorm.apply(branch, bias, residual, norm.weight, norm.bias, norm.eps, drop)  # type: ignore[no-untyped-call]
    return result


def dropout(x: Tensor, drop: Drop, fast: bool) -> Tensor:
    """Return x (N, D) after dropout."""
    if not drop.rate:
        return x
    result: Tensor = Dropped.apply(x, drop) if fast else F.dropout(x, drop.rate)  # type: ignore[no-untyped-call]
    return result


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, bias: Tensor, scale: float, drop: Drop) -> Tensor:
        probs, after_dropout = cpu.kernels_for(scores).softmax(scores.detach(), bias, scale, drop)
        ctx.save_for_backward(probs)
        ctx.scale, ctx.drop = scale, drop
        result: Tensor = after_dropout
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (probs,) = ctx.saved_tensors
        d_scores, _ = cpu.kernels_for(grad).softmax_backward(grad.contiguous(), probs, ctx.scale, ctx.drop)
        return d_scores, None, None, None


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, bias)
        out: Tensor = cpu.kernels_for(x).gelu(x, bias)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, bias = ctx.saved_tensors
        d_x, d_bias = cpu.kernels_for(x).gelu_backward(grad.contiguous(), x, bias)
        return d_x, d_bias


class _ResidualNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, branch: Tensor, bias: Tensor, residual: Tensor, weight: Tensor, shift: Tensor, eps: float, drop: Drop
    ) -> Tensor:
        compute = cpu.kernels_for(branch).residual_norm
        out, added, means, rstds = compute(branch, bias, residual, weight, shift, eps, drop)
        ctx.save_for_backward(added, means, rstds, weight)
        ctx.drop = drop
        result: Tensor = out
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        added, means, rstds, weight = ctx.saved_tensors
        compute = cpu.kernels_for(grad).residual_norm_backward
        d_added, d_branch, (d_weight, d_shift, d_bias) = compute(
            grad.contiguous(), None, added, means, rstds, weight, ctx.drop
        )
        return d_branch, d_bias, d_added, d_weight, d_shift, None, None


# ----------------------------------------
# The loss over the whole vocabulary and samples from it, in one pass that never holds all logits.
#
# For one chunk of rows after the other, this computes logits, softmax, loss, a sample for each row and the gradients,
# because the gradient of a row depends on its own logits only. The backward pass only scales these gradients. The
# logits take CHUNK bytes, whatever B, K and L are. Decision 7.
#
# N rows (the positions of a batch, flattened), E width of the embeddings, V size of the vocabulary. Sums are in fp32
# for every dtype of the features.


CHUNK = {"cpu": 3 * 2**23, "cuda": 2**29}  # bytes of logits that are held at once


def guess(
    features: Tensor, table: Tensor, bias: Tensor, targets: Tensor, weights: Tensor,
    gate: Tensor | None = None, copied: Tensor | None = None,
    draws: Tensor | None = None, temperature: float = 1.0,
) -> Guess:  # fmt: skip
    """Return the weighted mean loss and, for each row, whether its target is the most probable token, and a sample.

    features (N, E), table (V, E), bias (V,), targets (N,), weights (N,). With logits x = features @ table.T + bias, the
    loss of a row is -log softmax(x)[target]; with `gate` (N,) and `copied` (N,) bool it is the copy-mixture loss
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
