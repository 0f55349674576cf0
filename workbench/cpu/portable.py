"""The operations between the matrix products of a training step, by torch, for any dtype and device.

Biases and sums over rows are in fp32 or wider. `grad` is the gradient of the loss with respect to the output of a
function, and `d_x` is the gradient of the loss with respect to x.

B rows, L positions, D width, H heads, d = D / H, N = B * L, I inner width, V size of the vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from workbench.tensors import Drop, dropped, sample

_aten: Any = torch.ops.aten


def split(x: Tensor, bias: Tensor | None, parts: int, rows: int, heads: int) -> Tensor:
    """Return x (N, parts * D) plus its bias (parts * D,), divided into parts and heads: (parts, B * H, L, d)."""
    x = x if bias is None else x + bias.to(x.dtype)
    width = x.shape[1] // parts // heads
    return x.view(rows, -1, parts, heads, width).permute(2, 0, 3, 1, 4).reshape(parts, rows * heads, -1, width)


def merge(x: Tensor, rows: int, with_sums: bool = False) -> tuple[Tensor, Tensor | None]:
    """Return x (parts, B * H, L, d) with its heads joined, (N, parts * D), and its sums over N if `with_sums`."""
    parts, many, length, width = x.shape
    out = x.view(parts, rows, many // rows, length, width).permute(1, 3, 0, 2, 4).reshape(rows * length, -1)
    return out, _summed(out) if with_sums else None


def softmax(scores: Tensor, bias: Tensor | None, scale: float, drop: Drop) -> tuple[Tensor, Tensor]:
    """Return the attention probabilities softmax(scale * scores + bias), and the same after dropout.

    scores (B * H, Q, L), of Q queries, are overwritten by the probabilities. bias (B or 1, Q or 1, L), or None, is
    added to them; a dimension of 1 stands for all rows of the batch, or for all queries.
    """
    scores.mul_(scale)
    if bias is not None:
        scores.view(len(bias), -1, *scores.shape[1:]).add_(bias[:, None].to(scores.dtype))
    probs = torch.softmax(scores, -1, out=scores)
    return probs, dropped(probs, drop)


def softmax_backward(grad: Tensor, probs: Tensor, scale: float, drop: Drop) -> tuple[Tensor, Tensor]:
    """Return the gradient with respect to the scores, and the probabilities after dropout, (B * H, Q, L) each.

    grad, the gradient with respect to the probabilities after dropout, may be overwritten; probs are those before it.
    """
    grad = _aten._softmax_backward_data(dropped(grad, drop), probs, -1, probs.dtype)
    return grad.mul_(scale), dropped(probs, drop)


def residual_norm(
    branch: Tensor, bias: Tensor, residual: Tensor, norm_weight: Tensor, norm_bias: Tensor, eps: float, drop: Drop
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the layer norm of residual + dropout(branch + bias), with what its backward pass needs.

    branch and residual are (N, D), the biases and the norm's weight (D,). Returns the output (N, D), the sum before the
    norm (N, D), and the mean and the reciprocal standard deviation of each row of the sum, N numbers each.
    """
    added = dropped(branch + bias.to(branch.dtype), drop).add_(residual)
    out, mean, rstd = torch.native_layer_norm(added, [added.shape[1]], norm_weight, norm_bias, eps)
    return out, added, mean, rstd


def residual_norm_backward(
    grad: Tensor, extra_grad: Tensor | None, added: Tensor, means: Tensor, rstds: Tensor, norm_weight: Tensor,
    drop: Drop,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients with respect to the residual and the branch, (N, D) each, and to three vectors, (3, D).

    The vectors are the norm's weight, its bias and the branch's bias. The gradient with respect to the output is
    grad + extra_grad, or grad if extra_grad is None. The other tensors are those of `residual_norm`.
    """
    grad = grad if extra_grad is None else grad + extra_grad
    d_added, d_norm_weight, d_norm_bias = _aten.native_layer_norm_backward(
        grad, added, [added.shape[1]], means, rstds, norm_weight, norm_weight, [True, True, True]
    )
    d_branch = dropped(d_added, drop)
    return d_added, d_branch, torch.stack([d_norm_weight, d_norm_bias, _summed(d_branch)])


def gelu(x: Tensor, bias: Tensor) -> Tensor:
    """Return GELU(x + bias) for x (N, I) and bias (I,)."""
    return F.gelu(x + bias.to(x.dtype))


def gelu_backward(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients with respect to x (N, I), which may overwrite grad, and to the bias (I,)."""
    grad = _aten.gelu_backward(grad, x + bias.to(x.dtype))
    return grad, _summed(grad)


def vocabulary(
    logits: Tensor, bias: Tensor, targets: Tensor, write: Tensor, copy: Tensor | None, share: Tensor,
    draws: Tensor | None, temperature: float, with_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Return the log-likelihoods of n target tokens, the gradient of the mean loss, and a sampled token for each row.

    The likelihood of a row is exp(copy) + exp(write) q, or exp(write) q if copy is None, where q is the probability of
    the target in softmax(logits + bias). The mean loss is the sum of -share * log-likelihood over the rows.
    logits (n, V) are overwritten by the gradient with respect to them if `with_grad`; bias (V,); targets, write, copy
    and share, the weight of a row in the mean, are (n,) each; draws (n,) in [0, 1) or None.

    Returns, (n,) each: the gradient with respect to -log q; the log-likelihoods; whether the target is the most
    probable token; the tokens of softmax((logits + bias) / temperature) at the draws; and the negative
    log-likelihoods of these (both 0 without draws). Last, the gradient with respect to bias (V,), or None.
    """
    shifted = logits.to(torch.promote_types(logits.dtype, torch.float32)).add_(bias)
    shifted -= shifted.amax(-1, keepdim=True)
    target_logits = shifted.gather(1, targets[:, None])[:, 0]
    probs = shifted.exp_()  # not yet divided by their sum
    total = probs.sum(-1)
    samples, sample_nll = torch.zeros_like(targets), torch.zeros_like(total)
    if draws is not None:
        tempered = probs if temperature == 1 else probs ** (1 / temperature)
        samples = sample(tempered, draws)
        sample_nll = tempered.sum(-1).log() - tempered.gather(1, samples[:, None])[:, 0].log()
    written = write + target_logits - total.log()
    log_likelihoods = written if copy is None else torch.logaddexp(copy, written)
    grad_nll = share * (written - log_likelihoods).exp()
    d_bias = None
    if with_grad:
        grad = probs.mul_((grad_nll / total)[:, None])
        grad.scatter_add_(1, targets[:, None], -grad_nll[:, None].to(grad.dtype))
        d_bias = grad.sum(0)
        logits.copy_(grad)
    return grad_nll, log_likelihoods, target_logits == 0, samples, sample_nll, d_bias


def _summed(x: Tensor) -> Tensor:
    """Return the sums (D,) of x (N, D) over its rows, in fp32 or wider."""
    return x.sum(0, dtype=torch.promote_types(x.dtype, torch.float32))
