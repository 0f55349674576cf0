"""Softmax, GELU, and residual sum with layer norm as functions with gradients, for models that `layers.py` cannot hold.

On a CPU each takes one pass over memory (`workbench/cpu/compiled.py`); elsewhere, under torch.compile, and without
`fast`, torch computes the same.

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
from workbench.tensors import Drop


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
