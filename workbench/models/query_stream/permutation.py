"""Which tokens a permutation language model predicts, in which order, and which others each of them sees.

Yang et al. 2019, "XLNet", section 2.3, and the released code (zihangdai/xlnet, `data_utils.py`, `_sample_mask` and
`_local_perm`). Differences from the code: a span begins at any token, and not only at the beginning of a word, because
rows hold ids alone; and one order covers the whole row, since no memory of a former row is kept.

B rows, L positions, K predicted positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from workbench.models.corruption import real_tokens
from workbench.models.losses import gather
from workbench.rng import uniform
from workbench.spec.parts import Special
from workbench.tensors import Batch, ordinary


def pick_spans(batch: Batch, special: Special, alpha: int, longest: int) -> tuple[Tensor, Tensor]:
    """Return the positions of each row that are predicted, (B, K) int64, and whether each counts, (B, K) float.

    There are K = L / alpha, rounded down; a row with padding is due as many of its own tokens, and at least one. Spans
    of n tokens, n from 1 to `longest` with a probability proportional to 1/n, follow each other from left to right,
    each at a random place among alpha n other tokens. If these are too few, single tokens are added; if they are too
    many, the last ones are left out. Special tokens and padding are never picked.
    """
    length = batch.ids.shape[1]
    columns = torch.arange(length, device=batch.ids.device)
    starts, sizes = _spans(batch.keys, length, alpha, longest)
    inside = (starts[..., None] <= columns) & (columns < (starts + sizes)[..., None])
    order = torch.where(inside.any(1), 2 - columns / length, uniform(batch.keys, "singles", length))
    top = order.masked_fill(~ordinary(batch.ids, batch.attention, special), -1.0).topk(slots(length, alpha), dim=1)
    due = (real_tokens(batch).sum(1, keepdim=True) // alpha).clamp(min=1)
    counted = torch.arange(top.indices.shape[1], device=batch.ids.device) < due
    return top.indices, (counted & (top.values >= 0)).float()


def slots(length: int, alpha: int) -> int:
    """Return K, the number of predicted positions of a row of `length` tokens."""
    return max(1, length // alpha)


def _spans(keys: Tensor, length: int, alpha: int, longest: int) -> tuple[Tensor, Tensor]:
    """Return the first positions and the sizes of spans, (B, S) int64 each, enough to cover rows of this length."""
    count = length // (alpha + 1) + 1
    total = sum(1 / size for size in range(1, longest + 1))
    draws = uniform(keys, "span-sizes", count) * total
    sizes = torch.ones_like(draws, dtype=torch.int64)
    for size in range(1, longest):
        sizes = sizes + (draws >= sum(1 / smaller for smaller in range(1, size + 1)))
    stretches = sizes * (alpha + 1)
    before = (uniform(keys, "span-places", count) * (sizes * alpha)).long()  # tokens of the context on its left
    return stretches.cumsum(1) - stretches + before, sizes


def visible_in_order(batch: Batch, special: Special, positions: Tensor, weights: Tensor) -> Tensor:
    """Return which positions each one sees under a random order of the row, (B, L, L) bool.

    Predicted tokens and special tokens have places in the order; each sees those before it and all other tokens. A
    special token also sees itself. The other tokens see only each other.
    """
    real, predicted = real_tokens(batch), torch.zeros_like(batch.ids, dtype=torch.bool)
    predicted = predicted.scatter(1, positions, weights > 0)
    placed = real & (predicted | ~ordinary(batch.ids, batch.attention, special))
    order = torch.where(placed, uniform(batch.keys, "order", batch.ids.shape[1]), -1.0)
    own_order, key_order = order[:, :, None], order[:, None]
    hidden = placed[:, None] & ((own_order < key_order) | (predicted[:, :, None] & (own_order == key_order)))
    return real[:, None] & ~hidden


def visible_before(ids: Tensor, attention: Tensor | None) -> Tensor:
    """Return which positions each one sees from left to right, (B, L, L) bool: the tokens before it."""
    before = torch.ones(1, ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).tril(-1)
    return before.expand(len(ids), -1, -1) if attention is None else before & attention.bool()[:, None]


def visible_except(ids: Tensor, attention: Tensor | None, places: Tensor) -> Tensor:
    """Return which positions each one sees, (B, L, L) bool: all tokens but the one at places (B,)."""
    columns = torch.arange(ids.shape[1], device=ids.device)
    seen = columns != places[:, None]
    seen = seen if attention is None else seen & attention.bool()
    return seen[:, None].expand(-1, ids.shape[1], -1)


def seeing(visible: Tensor, positions: Tensor) -> Tensor:
    """Return whether positions (B, K) see any position at all, (B, K) bool."""
    return gather(visible, positions).any(-1)
