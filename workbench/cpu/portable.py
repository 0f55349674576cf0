"""What lies between the matrix products of a step, in torch's own operations, for any dtype and device.

A bias comes in fp32 or wider, as do sums over columns. "Slopes by x" are the gradient of the loss by x.

B rows, L positions, D width, H heads, d = D / H, N = B * L, I inner width, V vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

_aten: Any = torch.ops.aten
BLOCK = 64  # words whose chances are summed up before a sample is looked for among them
_INTEGERS = {torch.bfloat16: torch.int16, torch.float32: torch.int32, torch.float64: torch.int64}  # of the same width


class Drop(NamedTuple):
    """Dropout at a rate, of numbers that follow from the key. A rate of 0 leaves everything as it is."""

    key: int
    rate: float


def split(x: Tensor, bias: Tensor | None, parts: int, rows: int, heads: int) -> Tensor:
    """x (N, parts * D) and its bias to (parts, B * H, L, d)."""
    x = x if bias is None else x + bias.to(x.dtype)
    width = x.shape[1] // parts // heads
    return x.view(rows, -1, parts, heads, width).permute(2, 0, 3, 1, 4).reshape(parts, rows * heads, -1, width)


def merge(x: Tensor, rows: int, added: bool = False) -> tuple[Tensor, Tensor | None]:
    """(parts, B * H, L, d) to (N, parts * D), and its sums over N if `added`."""
    parts, many, length, width = x.shape
    out = x.view(parts, rows, many // rows, length, width).permute(1, 3, 0, 2, 4).reshape(rows * length, -1)
    return out, _summed(out) if added else None


def softmax(scores: Tensor, bias: Tensor | None, scale: float, drop: Drop) -> tuple[Tensor, Tensor]:
    """Softmax of scale * scores (B * H, L, L) + bias (B, L), in place, and the same with dropout."""
    scores.mul_(scale)
    if bias is not None:
        scores.view(len(bias), -1, *scores.shape[1:]).add_(bias[:, None, None, :].to(scores.dtype))
    chances = torch.softmax(scores, -1, out=scores)
    return chances, dropped(chances, drop)


def softmax_backward(slopes: Tensor, chances: Tensor, scale: float, drop: Drop) -> tuple[Tensor, Tensor]:
    """Slopes by the scores, from those by what dropout left (B * H, L, L); and what it left."""
    slopes = _aten._softmax_backward_data(dropped(slopes, drop), chances, -1, chances.dtype)
    return slopes.mul_(scale), dropped(chances, drop)


def residual_norm(
    branch: Tensor, bias: Tensor, residual: Tensor, gain: Tensor, shift: Tensor, eps: float, drop: Drop
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Layer norm of residual + dropout of (branch + bias), all (N, D); that sum; its means and 1 / deviations (N,)."""
    added = dropped(branch + bias.to(branch.dtype), drop).add_(residual)
    out, mean, stretch = torch.native_layer_norm(added, [added.shape[1]], gain, shift, eps)
    return out, added, mean, stretch


def residual_norm_backward(
    slopes: Tensor, more: Tensor | None, added: Tensor, means: Tensor, stretches: Tensor, gain: Tensor, drop: Drop
) -> tuple[Tensor, Tensor, Tensor]:
    """Slopes by residual and by branch (N, D), from `slopes` + `more`; and by gain, shift and bias (3, D)."""
    slopes = slopes if more is None else slopes + more
    d_added, d_gain, d_shift = _aten.native_layer_norm_backward(
        slopes, added, [added.shape[1]], means, stretches, gain, gain, [True, True, True]
    )
    d_branch = dropped(d_added, drop)
    return d_added, d_branch, torch.stack([d_gain, d_shift, _summed(d_branch)])


def gelu(x: Tensor, bias: Tensor) -> Tensor:
    """GELU of x (N, I) + bias."""
    return F.gelu(x + bias.to(x.dtype))


def gelu_backward(slopes: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Slopes by x (N, I), which may lie where `slopes` were, and by the bias."""
    slopes = _aten.gelu_backward(slopes, x + bias.to(x.dtype))
    return slopes, _summed(slopes)


def vocabulary(
    logits: Tensor, shift: Tensor, targets: Tensor, write: Tensor, copy: Tensor | None, share: Tensor,
    draws: Tensor | None, temperature: float, learns: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """The loss -log(exp(copy) + exp(write) q) of n rows, where q is the target's chance in softmax(logits + shift).

    logits (n, V), overwritten by the loss's slopes by them if it `learns`; shift (V,); targets, write, copy or None,
    and share, the weight of a row in the mean, (n,) each. Returns, (n,) each, slopes of the mean by -write, the
    negative losses, whether the target is the likeliest word, words from softmax((logits + shift) / temperature) at
    draws (n,) in [0, 1), and -log of their chances (both 0 without draws); and slopes by the shift, or None.
    """
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32)).add_(shift)
    exact -= exact.amax(-1, keepdim=True)
    likely = exact.gather(1, targets[:, None])[:, 0]
    chances = exact.exp_()  # not yet over their sum
    total = chances.sum(-1)
    samples, surprise = torch.zeros_like(targets), torch.zeros_like(total)
    if draws is not None:
        even = chances if temperature == 1 else chances ** (1 / temperature)
        samples = sample(even, draws)
        surprise = even.sum(-1).log() - even.gather(1, samples[:, None])[:, 0].log()
    written = write + likely - total.log()
    losses = written if copy is None else torch.logaddexp(copy, written)
    kept = share * (written - losses).exp()
    d_shift = None
    if learns:
        slopes = chances.mul_((kept / total)[:, None])
        slopes.scatter_add_(1, targets[:, None], -kept[:, None].to(slopes.dtype))
        d_shift = slopes.sum(0)
        logits.copy_(slopes)
    return kept, losses, likely == 0, samples, surprise, d_shift


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


def dropped(x: Tensor, drop: Drop) -> Tensor:
    """A copy of x with zeros at a rate, and the rest made larger for it; x itself where the rate is 0."""
    if not drop.rate:
        return x
    words = np.random.Generator(np.random.SFC64(drop.key)).integers(0, 2**64, -(-x.numel() // 4), dtype=np.uint64)
    kept = min(round((1 - drop.rate) * 2**15), 2**15 - 1)
    draws = torch.from_numpy(words.view(np.int16)[: x.numel()])
    bits = draws.bitwise_and_(0x7FFF).sub_(kept).bitwise_right_shift_(15)  # all ones below `kept`, else all zeros
    integer = _INTEGERS[x.dtype]
    found = torch.bitwise_and(x.view(integer), bits.to(integer).view(x.shape)).view(x.dtype)
    return found.mul_(2**15 / kept)


def _summed(x: Tensor) -> Tensor:
    """Over rows, in fp32 or wider."""
    return x.sum(0, dtype=torch.promote_types(x.dtype, torch.float32))
