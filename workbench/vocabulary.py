"""Loss and samples over the whole vocabulary, in one pass that never holds all logits.

A chunk of rows at a time: logits, softmax, loss, one sample a row, and at once the gradients, since the slope of the
loss by each row's likelihood is known where the likelihood is. Backward has nothing left to do but to scale them.
Memory is CHUNK numbers, whatever B, K and L. Decision 7.

N rows (positions of a batch, flat), E embedding width, V vocabulary. Sums run in fp32 whatever the features are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from workbench.tensors import Guess

CHUNK = {"cpu": 2**22, "cuda": 2**28}  # logits held at once: 16 MiB, which stay in a CPU's cache, and 1 GiB
BLOCK = 64  # words whose chances are summed up before a sample is looked for among them


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
            x, words, shift = features.to(dtype), table.to(dtype), bias.to(dtype)
            learns = any(ctx.needs_input_grad)
            d_features, d_table, d_bias = torch.empty_like(x), torch.zeros_like(table), torch.zeros_like(bias)
            share = weights / weights.sum().clamp(min=1e-6)
            rows = max(1, min(len(x), CHUNK.get(x.device.type, CHUNK["cpu"]) // len(table)))
            kept, losses, surprise = (torch.zeros_like(share) for _ in range(3))
            right, samples = torch.zeros_like(targets, dtype=torch.bool), torch.zeros_like(targets)
            buffer = torch.empty(rows, len(table), dtype=torch.promote_types(dtype, torch.float32), device=x.device)
            for start in range(0, len(x), rows):
                part = slice(start, start + rows)
                target = targets[part, None]
                logits = _logits(x[part], words, shift, buffer)
                logits -= logits.amax(-1, keepdim=True)
                likelihood = logits.gather(1, target)[:, 0]
                right[part] = likelihood == 0
                chances = logits.exp_()  # not yet over their sum
                total = chances.sum(-1)
                if draws is not None:
                    even, its = (chances, total) if temperature == 1 else _tempered(chances, temperature)
                    samples[part] = sample(even, draws[part])
                    surprise[part] = its.log() - even.gather(1, samples[part, None])[:, 0].log()
                likelihood = likelihood - total.log()
                written = write[part] + likelihood
                losses[part] = written if copy is None else torch.logaddexp(copy[part], written)
                kept[part] = share[part] * (written - losses[part]).exp()  # slope of the loss by -likelihood
                if learns:
                    slope = chances.mul_((kept[part] / total)[:, None])
                    slope.scatter_add_(1, target, -kept[part, None].to(slope.dtype))
                    slope = slope.to(dtype)
                    torch.mm(slope, words, out=d_features[part])
                    d_table += slope.t() @ x[part]
                    d_bias += slope.sum(0)
            ctx.save_for_backward(d_features, d_table, d_bias, share, kept)
            ctx.copies, ctx.dtype = copy is not None, features.dtype
            ctx.mark_non_differentiable(right, samples, surprise)
            return -(share * losses).sum(), right, samples, surprise

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
        d_features, d_table, d_bias, share, kept = ctx.saved_tensors
        d_copy = (kept - share) * grad if ctx.copies else None
        return ((d_features * grad).to(ctx.dtype), d_table * grad, d_bias * grad, -kept * grad, d_copy, *[None] * 4)


def _tempered(chances: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Of exp(x) (n, V), exp(x / temperature) and its sums (n,)."""
    even = chances ** (1 / temperature)
    return even, even.sum(-1)


def _logits(x: Tensor, words: Tensor, shift: Tensor, buffer: Tensor) -> Tensor:
    """x (n, E) times words (V, E), plus shift (V,): (n, V) in fp32 or wider, in the buffer (rows, V)."""
    out = buffer[: len(x)]
    if x.dtype == out.dtype:
        return torch.addmm(shift, x, words.t(), out=out)
    return out.copy_(torch.addmm(shift, x, words.t()))


def sample(chances: Tensor, draws: Tensor) -> Tensor:
    """One word (N,) int64 with a probability in proportion to chances (N, V) >= 0, at draws (N,) in [0, 1).

    Inverse of the cumulative distribution in two steps: over sums of BLOCK words, then within the block it falls into,
    so that only V / BLOCK numbers are summed one after the other. A word of no chance is never drawn.
    """
    size = chances.shape[1]
    whole = size - size % BLOCK
    sums = chances[:, :whole].unflatten(1, (-1, BLOCK)).sum(-1)
    if whole < size:
        sums = torch.cat([sums, chances[:, whole:].sum(-1, keepdim=True)], 1)
    before = sums.cumsum(-1)
    target = draws[:, None].to(before.dtype) * before[:, -1:]
    block = torch.searchsorted(before, target, right=True).clamp(max=sums.shape[1] - 1)
    places = block * BLOCK + torch.arange(BLOCK, device=chances.device)
    inside = chances.gather(1, places.clamp(max=size - 1)).masked_fill(places >= size, 0.0).cumsum(-1)
    rest = target - (before.gather(1, block) - sums.gather(1, block))
    word = torch.searchsorted(inside, rest.clamp(min=0), right=True)
    last = torch.searchsorted(inside, inside[:, -1:].contiguous())  # rounding never points past the last word
    return (block * BLOCK + torch.minimum(word, last))[:, 0]
