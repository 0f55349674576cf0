"""Which positions are picked, and what is written there. Every objective is made of these pieces.

B rows, L positions, K picks, V vocabulary. Sources: Clark et al. 2020, sections 3.1 and 3.4, and the released code
(docs/electra.md 1.1, 1.2 and 7).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workbench.cpu.portable import sample
from workbench.models.encoder import Encoder, build_generator_body, seeded
from workbench.models.heads import MlmHead
from workbench.models.losses import gather, share
from workbench.models.sentence_scores import Scorer, masked_scorers, pseudo_log_likelihood, summed
from workbench.models.unigram import WordFrequencies
from workbench.rng import uniform
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, Corruption, Guess, ordinary


def real_tokens(batch: Batch) -> Tensor:
    """(B, L) bool, everything but padding."""
    return torch.ones_like(batch.ids, dtype=torch.bool) if batch.attention is None else batch.attention.bool()


def pick_positions(batch: Batch, spec: RunSpec) -> tuple[Tensor, Tensor]:
    """K picked positions a row, and which of them count.

    [CLS], [SEP], [MASK] and padding are never picked. Rows with fewer real tokens fill their slots with weight 0, so
    the shapes never change. "distinct" picks differ, "released" ones are drawn with replacement.

    Returns:
        positions (B, K) int64; weights (B, K) float, 1 on slots that count.
    """
    candidates = ordinary(batch.ids, batch.attention, spec.data.special)
    slots = torch.arange(spec.picks, device=batch.ids.device)
    counted = slots < _wanted(batch, spec)[:, None]

    if spec.corruption.picks == "distinct":
        noise = uniform(batch.keys, "picks", batch.ids.shape[1]).masked_fill(~candidates, -1.0)
        top = noise.topk(spec.picks, dim=1)
        return top.indices, (counted & (top.values >= 0)).float()
    total = candidates.sum(1, keepdim=True)
    nth = (uniform(batch.keys, "picks", spec.picks) * total).long() + 1
    positions = torch.searchsorted(candidates.long().cumsum(1), nth).clamp(max=batch.ids.shape[1] - 1)
    return positions, (counted & (total > 0)).float()


def _wanted(batch: Batch, spec: RunSpec) -> Tensor:
    """How many picks each row is due (B,), from its real tokens, [CLS] and [SEP] included."""
    if batch.attention is None:
        return torch.full_like(batch.keys, spec.picked(batch.ids.shape[1]))
    rate, tokens = spec.corruption.rate, batch.attention.sum(1).double()
    if spec.corruption.picks == "distinct":
        return (rate * tokens - 1e-9).ceil().clamp(min=1).long()
    return (rate * tokens).round().clamp(min=1).long()


def write_tokens(ids: Tensor, positions: Tensor, tokens: Tensor, active: Tensor) -> Tensor:
    """ids (B, L) with tokens (B, K) written at positions (B, K) where active (B, K) is true.

    A position written more than once takes the integer mean of its tokens, as the released code does
    (docs/electra.md 1.1); distinct picks never meet this.
    """
    rows, length = ids.shape
    where = torch.where(active, positions, length)  # the column past the end takes what is not written
    total = ids.new_zeros(rows, length + 1).scatter_add(1, where, tokens)[:, :length]
    count = ids.new_zeros(rows, length + 1).scatter_add(1, where, torch.ones_like(tokens))[:, :length]
    return torch.where(count > 0, total // count.clamp(min=1), ids)


def mask_tokens(batch: Batch, spec: RunSpec, mask: float, random: float = 0.0) -> Corruption:
    """Of the picks, `mask` become [MASK], `random` any word of the vocabulary, the rest stay as they are."""
    positions, weights = pick_positions(batch, spec)
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
    return Corruption(ids, positions, weights, targets, weights.new_zeros(()), metrics)


def mask_for_generator(batch: Batch, spec: RunSpec) -> Corruption:
    """Return what a generator sees: its picks as [MASK], as random words or kept, in the shares of the spec."""
    return mask_tokens(batch, spec, spec.corruption.generator_mask, spec.corruption.generator_random)


def sample_tokens(logits: Tensor, keys: Tensor, temperature: float = 1.0) -> Tensor:
    """One word (B, K) int64 from softmax(logits / temperature), logits (B, K, V); no gradient passes."""
    chances = (logits.detach().float() / temperature).softmax(-1).flatten(0, 1)
    return sample(chances, uniform(keys, "sample", logits.shape[1]).flatten()).view(logits.shape[:2])


def replace_tokens(batch: Batch, masked: Corruption, samples: Tensor) -> Tensor:
    """The batch's ids (B, L) with samples (B, K) at the picks."""
    return write_tokens(batch.ids, masked.positions, samples, masked.weights > 0)


class Generator(nn.Module):
    """What replaces the picked tokens by its samples: a small masked language model, or word frequencies.

    Clark et al. 2020, sections 3.1 and 3.2.
    """

    def __init__(self, encoder: Encoder, spec: RunSpec) -> None:
        super().__init__()
        self.spec = spec
        self.words = WordFrequencies(spec) if spec.generator.kind != "transformer" else None
        if self.words is not None:
            return
        self.body = build_generator_body(encoder, spec)
        with seeded(spec.seed, "init", "generator-head"):
            self.head = MlmHead(self.body, self.body.table)
        if spec.generator_frozen:
            self.requires_grad_(False)

    def forward(self, batch: Batch) -> Corruption:
        """The corrupted batch, with the generator's own loss: a mean over picks (docs/electra.md 1.8)."""
        masked = mask_for_generator(batch, self.spec)
        guess = self.guess(batch, masked)
        ids = replace_tokens(batch, masked, guess.samples)
        metrics = masked.metrics | {
            "generator_accuracy": share(guess.right, masked.weights),
            "generator_entropy": share(guess.surprise, masked.weights),
            "replaced_rate": share(ids != batch.ids, real_tokens(batch)),
        }
        return Corruption(ids, masked.positions, masked.weights, masked.targets, guess.loss, metrics)

    def score(self, ids: Tensor, attention: Tensor | None) -> Tensor:
        """Return the sum (B,) of log q(token): its pseudo-log-likelihood, or the log of word frequencies."""
        special = self.spec.data.special
        if self.words is not None:
            return summed(self.words.log_share[ids], ids, attention, special)
        return pseudo_log_likelihood(self.body, self.head, ids, attention, special)

    def scorers(self) -> dict[str, Scorer]:
        """Return the ways in which a generator with weights scores sentences by itself; of any other, none."""
        if self.words is not None:
            return {}
        return masked_scorers(self.body, self.head, self.spec.data.special, "generator-")

    def guess(self, batch: Batch, masked: Corruption) -> Guess:
        """What it would write at the picks, and how well it knows what stood there."""
        draws = uniform(batch.keys, "sample", masked.targets.shape[1])
        if self.words is not None:
            guess: Guess = self.words(draws, masked.targets, masked.weights)
            return guess
        hidden = gather(self.body(masked.ids, batch.attention), masked.positions)  # (B, K, D)
        return self.head.guess(hidden, masked.targets, masked.weights, draws, self.spec.generator.temperature)
