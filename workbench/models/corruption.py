"""The corruption of inputs: which positions are picked, and which tokens are written there.

All objectives are built from these functions. B rows, L positions, K picks, V size of the vocabulary.
Sources: Clark et al. 2020, sections 3.1 and 3.4, and the released code (docs/electra.md 1.1, 1.2 and 7).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workbench.errors import InputError
from workbench.models.counts.ngram import Ngrams
from workbench.models.counts.unigram import WordFrequencies
from workbench.models.encoder import Encoder, build_generator_body, seeded
from workbench.models.heads import MlmHead
from workbench.models.losses import gather, share
from workbench.models.sentence_scores import Scorer, masked_scorers, pseudo_log_likelihood, summed
from workbench.rng import uniform
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, Corruption, Guess, Mean, ordinary, sample


def real_tokens(batch: Batch) -> Tensor:
    """Return which positions are not padding, bool (B, L)."""
    return torch.ones_like(batch.ids, dtype=torch.bool) if batch.attention is None else batch.attention.bool()


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
    rows, length = ids.shape
    where = torch.where(active, positions, length)  # tokens that are not written go to a column past the end
    total = ids.new_zeros(rows, length + 1).scatter_add(1, where, tokens)[:, :length]
    count = ids.new_zeros(rows, length + 1).scatter_add(1, where, torch.ones_like(tokens))[:, :length]
    return torch.where(count > 0, total // count.clamp(min=1), ids)


def mask_tokens(
    batch: Batch, spec: RunSpec, mask: float, random: float = 0.0, picks: tuple[Tensor, Tensor] | None = None
) -> Corruption:
    """Return the batch with a share `mask` of its picks masked and a share `random` replaced by random tokens.

    The picks are those of `pick_positions` if none are given.
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


def require_weights(spec: RunSpec) -> None:
    """Raise InputError if the generator has no weights, for objectives that use more of it than its samples."""
    if spec.generator.kind != "transformer":
        raise InputError(
            f"{spec.objective} needs a generator with weights, and generator.kind={spec.generator.kind} has no "
            f"weights; set generator.kind=transformer"
        )


class Generator(nn.Module):
    """The generator, which replaces picked tokens by samples: a small masked language model, or counts of tokens.

    Clark et al. 2020, sections 3.1 and 3.2.
    """

    def __init__(self, encoder: Encoder, spec: RunSpec) -> None:
        super().__init__()
        self.spec = spec
        self.words: Ngrams | WordFrequencies | None = None
        if spec.generator.kind != "transformer":
            self.words = Ngrams(spec) if spec.generator.kind == "ngram" else WordFrequencies(spec)
            return
        self.body = build_generator_body(encoder, spec)
        with seeded(spec.seed, "init", "generator-head"):
            self.head = MlmHead(self.body, self.body.table)
        if spec.generator_frozen:
            self.requires_grad_(False)

    def forward(self, batch: Batch) -> Corruption:
        """Return the corrupted batch with the generator's own loss, a mean over picks (docs/electra.md 1.8)."""
        masked = mask_for_generator(batch, self.spec)
        return self._replaced(batch, masked, self.guess(batch, masked))

    def with_states(self, batch: Batch) -> tuple[Corruption, Tensor]:
        """Return what `forward` does, and the hidden states (B, L, D) of the generator, which must have weights."""
        masked = mask_for_generator(batch, self.spec)
        states: Tensor = self.body(masked.ids, batch.attention, batch.segments)
        return self._replaced(batch, masked, self.guess_from(states, batch, masked)), states

    def candidates(self, states: Tensor, keys: Tensor, count: int, originals: Tensor | None = None) -> Tensor:
        """Return `count` sampled tokens (B, N, count) for each hidden state (B, N, D) of the generator.

        With `originals` (B, N), these come first, (B, N, 1 + count), and the samples differ from them and each other.
        """
        draws = uniform(keys, "candidates", states.shape[1] * count).unflatten(1, (-1, count))
        samples = self.head.draw(states, draws, self.spec.generator.temperature, originals)
        return samples if originals is None else torch.cat([originals[..., None], samples], -1)

    def _replaced(self, batch: Batch, masked: Corruption, guess: Guess) -> Corruption:
        ids = replace_tokens(batch, masked, guess.samples)
        metrics = masked.metrics | {
            "generator_accuracy": share(guess.right, masked.weights),
            "generator_entropy": share(guess.sample_nll, masked.weights),
            "replaced_rate": share(ids != batch.ids, real_tokens(batch)),
        }
        return Corruption(ids, masked.positions, masked.weights, masked.targets, guess.loss, metrics)

    def score(self, ids: Tensor, attention: Tensor | None) -> Tensor:
        """Return the sum (B,) of log q(token) over each sentence; with weights, q is given all other tokens."""
        special = self.spec.data.special
        if self.words is not None:
            return summed(self.words.log_likelihood(ids), ids, attention, special)
        return pseudo_log_likelihood(self.body, self.head, ids, attention, special)

    def scorers(self) -> dict[str, Scorer]:
        """Return the ways in which the generator by itself scores sentences; none if it has no weights."""
        if self.words is not None:
            return {}
        return masked_scorers(self.body, self.head, self.spec.data.special, "generator-")

    def guess(self, batch: Batch, masked: Corruption) -> Guess:
        """Return the samples of the generator at the picks, and how well it predicts the original tokens."""
        if self.words is not None:
            return self.words.guess(batch.keys, masked)
        return self.guess_from(self.body(masked.ids, batch.attention, batch.segments), batch, masked)

    def guess_from(self, states: Tensor, batch: Batch, masked: Corruption) -> Guess:
        """Return what `guess` does, from the hidden states (B, L, D) of the generator."""
        draws = uniform(batch.keys, "sample", masked.targets.shape[1])
        hidden = gather(states, masked.positions)  # (B, K, D)
        return self.head.guess(hidden, masked.targets, masked.weights, draws, self.spec.generator.temperature)
