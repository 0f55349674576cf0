"""The corruption of inputs: which positions are picked, and which tokens are written there.

All objectives are built from these functions. B rows, L positions, K picks, V size of the vocabulary.
Sources: Clark et al. 2020, sections 3.1 and 3.4, and the released code (docs/electra.md 1.1, 1.2 and 7).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workbench.models.losses import gather, share
from workbench.rng import uniform
from workbench.spec.parts import Special
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, Corruption, Mean, ordinary, real_tokens, sample


def pick_positions(batch: Batch, spec: RunSpec) -> tuple[Tensor, Tensor]:
    """Return K picked positions of each row, and which of them count.

    [CLS], [SEP], [MASK] and padding are never picked. If a row is due fewer than K picks, the rest have weight 0, so
    that shapes are constant. If `corruption.picks` is "distinct", the picks of a row differ from each other; if it is
    "released", they are drawn with replacement, as in the released code.

    Returns:
        positions (B, K) int64; weights (B, K) float, 1 for picks that count and 0 for the others.
    """
    candidates = ordinary(batch.ids, batch.attention, spec.data.special)
    slots = torch.arange(spec.picks, device=batch.ids.device)
    counted = slots < pick_counts(batch, spec)[:, None]

    if spec.corruption.picks == "distinct":
        noise = uniform(batch.keys, "picks", batch.ids.shape[1]).masked_fill(~candidates, -1.0)
        top = noise.topk(spec.picks, dim=1)
        return top.indices, (counted & (top.values >= 0)).float()
    total = candidates.sum(1, keepdim=True)
    nth = (uniform(batch.keys, "picks", spec.picks) * total).long() + 1
    positions = torch.searchsorted(candidates.long().cumsum(1), nth).clamp(max=batch.ids.shape[1] - 1)
    return positions, (counted & (total > 0)).float()


def pick_counts(batch: Batch, spec: RunSpec) -> Tensor:
    """Return how many positions of each row are to be picked, (B,), from its number of tokens with [CLS] and [SEP]."""
    if batch.attention is None:
        return torch.full_like(batch.keys, spec.picked(batch.ids.shape[1]))
    rate, tokens = spec.corruption.rate, batch.attention.sum(1).double()
    if spec.corruption.picks == "distinct":
        return (rate * tokens - 1e-9).ceil().clamp(min=1).long()
    return (rate * tokens).round().clamp(min=1).long()


def write_tokens(ids: Tensor, positions: Tensor, tokens: Tensor, active: Tensor) -> Tensor:
    """Return ids (B, L) with tokens (B, K) written at positions (B, K) where active (B, K) is true.

    A position that is written more than once gets the integer mean of its tokens, as in the released code
    (docs/electra.md 1.1). This cannot happen if picks are distinct.
    """
    sums = _sums_by_comparison if ids.is_cuda else _sums_by_scatter
    total, count = sums(positions, tokens, active, ids.shape[1])
    return torch.where(count > 0, total // count.clamp(min=1), ids)


def _sums_by_scatter(positions: Tensor, tokens: Tensor, active: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Return for each place (B, L) the sum of the active tokens (B, K) at it, and their number."""
    where = torch.where(active, positions, length)  # tokens that are not written go to a column past the end
    empty = tokens.new_zeros(len(tokens), length + 1)
    total, count = (empty.scatter_add(1, where, values) for values in (tokens, torch.ones_like(tokens)))
    return total[:, :length], count[:, :length]


def _sums_by_comparison(positions: Tensor, tokens: Tensor, active: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Return the same as `_sums_by_scatter`, in fewer kernels: on a GPU a deterministic scatter sorts first."""
    there = (positions[:, :, None] == torch.arange(length, device=tokens.device)) & active[:, :, None]  # (B, K, L)
    return (there * tokens[:, :, None]).sum(1), there.sum(1)


def mask_tokens(
    batch: Batch, spec: RunSpec, mask: float, random: float = 0.0, picks: tuple[Tensor, Tensor] | None = None
) -> Corruption:
    """Return the batch with a share `mask` of its picks masked and a share `random` replaced by random tokens.

    Without given picks, `pick_positions` draws them.
    """
    positions, weights = pick_positions(batch, spec) if picks is None else picks
    targets = gather(batch.ids, positions)
    coin = uniform(batch.keys, "mask", spec.picks)
    tokens = torch.full_like(targets, spec.data.special.mask)
    if random > 0:
        words = (uniform(batch.keys, "words", spec.picks) * spec.encoder.vocab).long()
        tokens = torch.where(coin < mask, tokens, words)
    written = (coin < mask + random) & (weights > 0)
    ids = write_tokens(batch.ids, positions, tokens, written)
    picked = write_tokens(torch.zeros_like(batch.ids), positions, torch.ones_like(targets), weights > 0)
    metrics = {"mask_rate": share(picked, real_tokens(batch))}
    return Corruption(ids, positions, weights, targets, Mean(weights.new_zeros(()), 1), metrics)


def mask_for_generator(batch: Batch, spec: RunSpec) -> Corruption:
    """Return the input of a generator: picks as [MASK], as random tokens or unchanged, in the shares of the spec."""
    return mask_tokens(batch, spec, spec.corruption.generator_mask, spec.corruption.generator_random)


def sample_tokens(logits: Tensor, keys: Tensor, temperature: float = 1.0) -> Tensor:
    """Return tokens (B, K) int64 sampled from softmax(logits / temperature), logits (B, K, V), without gradient."""
    probs = (logits.detach().float() / temperature).softmax(-1).flatten(0, 1)
    return sample(probs, uniform(keys, "sample", logits.shape[1]).flatten()).view(logits.shape[:2])


def replace_tokens(batch: Batch, masked: Corruption, samples: Tensor) -> Tensor:
    """Return the ids (B, L) of the batch with samples (B, K) written at the picks."""
    return write_tokens(batch.ids, masked.positions, samples, masked.weights > 0)


# ----------------------------------------
# Picks of whole words in spans of one to three, for masked language models such as ALBERT.
#
# Joshi et al. 2020 mask spans; Lan et al. 2020, section 3.1, give a span of n words a probability proportional to 1/n.

LONGEST = 3  # words of a span
_SHARES = (1, 1 / 2, 1 / 3)  # of spans of one, two and three words
UP_TO = [1 / sum(_SHARES), (1 + 1 / 2) / sum(_SHARES), 1.0]  # the probability of a span of at most n words


class WordStarts(nn.Module):
    """Which tokens of the vocabulary begin a word, (V,); all of them until training begins (`training.loop`)."""

    table: Tensor

    def __init__(self, spec: RunSpec) -> None:
        super().__init__()
        self.spec = spec
        self.register_buffer("table", torch.ones(spec.encoder.vocab, dtype=torch.bool), persistent=False)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return picked positions (B, K) of whole words, and which of them count, as `corruption.pick_positions` does.

        The words of a row are divided into spans of 1 to 3 words. Spans are picked in random order until no word fits
        into the number of picks; of the last span the words that fit are picked. So a row may have fewer picks than K.
        Unlike in google-research/albert, `create_pretraining_data.py`, spans are drawn side by side over the whole row,
        so that no two of them meet at the same words.
        """
        length, slots = batch.ids.shape[1], torch.arange(batch.ids.shape[1] + 1, device=batch.ids.device)
        candidates = ordinary(batch.ids, batch.attention, self.spec.data.special)
        before = nn.functional.pad(candidates, (1, 0))[:, :-1]
        begins = candidates & (self.table[batch.ids] | ~before)  # the first token after [CLS] or [SEP] begins a word
        words = (begins.cumsum(1) - 1).clamp(min=0)
        draws = uniform(batch.keys, "spans", length)
        sizes = 1 + (draws[..., None] >= torch.tensor(UP_TO[:-1], device=draws.device)).sum(-1)
        spans = torch.searchsorted(sizes.cumsum(1), words, right=True)  # (B, L), the span of each token
        rank = uniform(batch.keys, "picks", length).gather(1, spans).masked_fill(~candidates, 2.0)
        order = rank.argsort(dim=1, stable=True)  # the tokens of a span stay together, and in their order
        # A word ends where another one begins, or where the candidates end.
        ends = nn.functional.pad(begins.gather(1, order) | ~candidates.gather(1, order), (0, 1), value=True)
        fits = ends & (slots <= pick_counts(batch, self.spec)[:, None])
        counted = torch.where(fits, slots, 0).amax(1).clamp(max=candidates.sum(1))
        return order[:, : self.spec.picks], (slots[: self.spec.picks] < counted[:, None]).float()


# ----------------------------------------
# Which tokens a permutation language model predicts, in which order, and which others each of them sees.
#
# Yang et al. 2019, "XLNet", section 2.3, and the released code (zihangdai/xlnet, `data_utils.py`, `_sample_mask` and
# `_local_perm`). Differences from the code: a span begins at any token, and not only at the beginning of a word,
# because rows hold ids alone; and one order covers the whole row, since no memory of a former row is kept.


def pick_spans(batch: Batch, special: Special, alpha: int, longest: int) -> tuple[Tensor, Tensor]:
    """Pick spans to predict in each row: positions (B, K) int64, and weights (B, K) float, 0 if a pick does not count.

    K = L / alpha, rounded down; in a row with padding, 1 / alpha of its tokens count, and at least one. Spans
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
