"""Generators, which replace picked tokens by samples.

A generator is a small masked language model, or has no weights (`generator.kind`): `unigram` samples tokens by their
frequencies in the training text, the smallest generator of Clark et al. 2020, section 3.2; `uniform` comes from the
released code (docs/electra.md 1.2); `ngram` samples a token by how often it occurs beside one of its two neighbours.

Statistical language models with contexts on both sides are the generators of CodeBERT (Feng et al. 2020, section 3.3),
which does not state their order or smoothing. Here a random number decides for each pick whether its left or its right
neighbour c in the generator's input is the context, and token w has the probability

    p(w | c) = (n(c, w) + t(c) p(w)) / (n(c) + t(c)),

where n(c, w) counts w beside c on that side, n(c) is the sum over w, t(c) is the number of different w, and p(w) is the
unigram distribution (Witten and Bell 1991, "The zero-frequency problem", method C, interpolated). Over both outcomes of
the random number this is the mean of the two models. A neighbour that was never counted, such as [MASK], leaves the
choice to the other one; without any counted neighbour, samples follow the unigram distribution.

B rows, L positions, K picks, V size of the vocabulary, P different pairs of neighbours in the counted rows, which is at
most the number of their tokens and bounds the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from workbench.errors import InputError
from workbench.models.corruption import mask_for_generator, replace_tokens
from workbench.models.encoder import Encoder, seeded
from workbench.models.heads import MlmHead, Scorer, masked_scorers, pseudo_log_likelihood, summed
from workbench.models.losses import gather, share, weighted_mean
from workbench.models.tying import build_generator_body
from workbench.rng import uniform
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, Corruption, Guess, real_tokens

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


class WordFrequencies(nn.Module):
    """One distribution over the vocabulary for all positions. A unigram generator needs `count` before it is used."""

    log_share: Tensor
    cumulative: Tensor

    def __init__(self, spec: RunSpec) -> None:
        super().__init__()
        self.spec = spec
        self.counted = False
        for name in ("log_share", "cumulative"):
            self.register_buffer(name, torch.zeros(spec.encoder.vocab), persistent=False)
        if spec.generator.kind == "uniform":
            self._set(torch.zeros(spec.encoder.vocab, dtype=torch.float64))

    def count(self, counts: Tensor) -> None:
        """Set the distribution from the counts (V,) of the training text, which a uniform generator ignores.

        Every count is raised by 1, so that no token is impossible. Tokens that are never picked are never sampled.
        """
        if self.spec.generator.kind != "uniform":
            special = self.spec.data.special
            seen = counts.double() + 1
            seen[[special.pad, special.cls, special.sep, special.mask]] = 0
            self._set(seen.log() / self.spec.generator.temperature)

    def _set(self, logits: Tensor) -> None:
        share = logits.softmax(0)
        self.log_share.copy_(share.log())
        self.cumulative.copy_(share.cumsum(0))
        self.counted = True

    def sample(self, draws: Tensor) -> Tensor:
        """Return tokens at draws in [0, 1), of any shape."""
        tokens = torch.searchsorted(self.cumulative, draws * self.cumulative[-1], right=True)
        return tokens.clamp(max=len(self.cumulative) - 1)

    def guess(self, keys: Tensor, masked: Corruption) -> Guess:
        """Return samples (B, K) at the picks of rows with `keys` (B,), and how well targets are predicted."""
        assert self.counted, "a unigram generator is used before `count` was called"
        samples = self.sample(uniform(keys, "sample", masked.targets.shape[1]))
        nll = -self.log_share[masked.targets]
        right = -nll == self.log_share.max()
        # Picks of weight 0 may hold special tokens, whose log-probability is minus infinity; 0 * inf would be NaN.
        loss = weighted_mean(nll.masked_fill(masked.weights == 0, 0.0), masked.weights)
        return Guess(samples, loss, right, -self.log_share[samples])

    def log_likelihood(self, ids: Tensor) -> Tensor:
        """Return the logarithm (B, L) of the probability of each token of ids (B, L)."""
        return self.log_share[ids]


class Context(NamedTuple):
    """What a `Side` has counted for contexts c, as tensors of the shape of the contexts.

    `before` is the sum of all counts above the pairs of c in the table, `total` is n(c), and `kinds` is t(c).
    `unigram_weight` is the weight of the unigram distribution, t(c) / (n(c) + t(c)), float64; 1 without counts.
    """

    before: Tensor
    total: Tensor
    kinds: Tensor
    unigram_weight: Tensor


class Side(nn.Module):
    """The counts of pairs on one side of the context, as a sorted table of context * V + token.

    `pairs` (P + 1,) ends with an entry that no pair has; `ends` (P + 2,) are the sums of all counts before an entry;
    `starts` (V + 1,) is the first entry of each context; `largest` (V,) is the largest probability given each context.
    """

    pairs: Tensor
    ends: Tensor
    starts: Tensor
    largest: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("pairs", "ends", "starts", "largest"):
            self.register_buffer(name, torch.zeros(0), persistent=False)

    def count(self, pairs: Tensor, counts: Tensor, unigram: Tensor) -> None:
        """Set the table from pairs (P,) and their counts (P,), given the unigram distribution (V,)."""
        vocab = len(unigram)
        pairs, order = pairs.sort()
        sums = counts[order].cumsum(0)
        self.pairs = torch.cat([pairs, pairs.new_tensor([vocab**2])])
        self.ends = torch.cat([sums.new_zeros(1), sums, sums[-1:] if len(sums) else sums.new_zeros(1)])
        self.starts = torch.searchsorted(self.pairs, torch.arange(vocab + 1, device=pairs.device) * vocab)
        unseen = self.context(torch.arange(vocab, device=pairs.device)).unigram_weight * unigram.max().double()
        seen = self.share(pairs // vocab, pairs % vocab, unigram)
        self.largest = unseen.scatter_reduce(0, pairs // vocab, seen, "amax")

    def context(self, context: Tensor) -> Context:
        """Return the facts on contexts of any shape."""
        first, last = self.starts[context], self.starts[context + 1]
        total, kinds = self.ends[last] - self.ends[first], last - first
        weight = torch.where(total > 0, kinds.double() / (total + kinds).clamp(min=1), 1.0)
        return Context(self.ends[first], total, kinds, weight)

    def share(self, context: Tensor, tokens: Tensor, unigram: Tensor) -> Tensor:
        """Return p(token | context), float64, for contexts and tokens of one shape."""
        facts, key = self.context(context), context * len(unigram) + tokens
        place = torch.searchsorted(self.pairs, key)
        count = (self.ends[place + 1] - self.ends[place]).masked_fill(self.pairs[place] != key, 0)
        return count / (facts.total + facts.kinds).clamp(min=1) + facts.unigram_weight * unigram[tokens]

    def sample(self, context: Tensor, draws: Tensor) -> Tensor:
        """Return tokens in proportion to n(context, token), at draws in [0, 1); any token without counts."""
        facts = self.context(context)
        target = facts.before + (draws.double() * facts.total).long()
        place = torch.searchsorted(self.ends, target, right=True) - 1
        return self.pairs[place.clamp(max=len(self.pairs) - 1)] % (len(self.starts) - 1)


class Ngrams(nn.Module):
    """The two sides and the unigram distribution; `count` must be called before it is used."""

    pairs: Tensor
    counts: Tensor

    def __init__(self, spec: RunSpec) -> None:
        super().__init__()
        self.vocab = spec.encoder.vocab
        self.special = spec.data.special
        self.unigram, self.left, self.right = WordFrequencies(spec), Side(), Side()
        for name in ("pairs", "counts"):
            self.register_buffer(name, torch.zeros(0), persistent=False)

    def count(self, pairs: Tensor, counts: Tensor) -> None:
        """Set the tables from pairs (P,), left * V + right, and their counts (P,).

        The unigram distribution must have been counted. Tokens that are never picked are never sampled.
        """
        assert self.unigram.counted, "pairs are counted before tokens"
        self.pairs, self.counts = pairs, counts
        share, special = self.unigram.log_share.double().exp(), self.special
        never = pairs.new_tensor([special.pad, special.cls, special.sep, special.mask])
        left, right = pairs // self.vocab, pairs % self.vocab
        after, before = ~torch.isin(right, never), ~torch.isin(left, never)
        self.left.count(pairs[after], counts[after], share)
        self.right.count((right * self.vocab + left)[before], counts[before], share)

    def guess(self, keys: Tensor, masked: Corruption) -> Guess:
        """Return samples (B, K) at the picks of rows with `keys` (B,), and how well their contexts predict the targets.

        Loss, accuracy and entropy are of the distribution given the chosen neighbour.
        """
        assert len(self.pairs), "an n-gram generator is used before `count` was called"
        draws, side, back = (uniform(keys, stream, masked.positions.shape[1]) for stream in ("sample", "side", "back"))
        share, length = self.unigram.log_share.double().exp(), masked.ids.shape[1]
        left = masked.ids.gather(1, (masked.positions - 1).clamp(min=0))
        right = masked.ids.gather(1, (masked.positions + 1).clamp(max=length - 1))
        from_left = side < self._left_weight(left, right)

        backing = self.left.context(left).unigram_weight, self.right.context(right).unigram_weight
        backed_off = back < torch.where(from_left, *backing)
        beside = torch.where(from_left, self.left.sample(left, draws), self.right.sample(right, draws))
        samples = torch.where(backed_off, self.unigram.sample(draws), beside)

        of_targets, of_samples = (
            torch.where(from_left, self.left.share(left, tokens, share), self.right.share(right, tokens, share))
            for tokens in (masked.targets, samples)
        )
        # Picks of weight 0 may hold special tokens, whose probability is 0.
        of_targets = of_targets.masked_fill(masked.weights == 0, 1.0)
        best = torch.where(from_left, self.left.largest[left], self.right.largest[right])
        loss = weighted_mean(-of_targets.log().float(), masked.weights)
        return Guess(samples, loss, of_targets >= best, -of_samples.log().float())

    def log_likelihood(self, ids: Tensor) -> Tensor:
        """Return the logarithm (B, L) of the probability of each token of ids (B, L) given both of its neighbours."""
        left, right = ids.roll(1, 1), ids.roll(-1, 1)  # first and last tokens are special, and never scored
        share, weight = self.unigram.log_share.double().exp(), self._left_weight(left, right)
        both = weight * self.left.share(left, ids, share) + (1 - weight) * self.right.share(right, ids, share)
        return both.log()

    def _left_weight(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the probability that the left neighbour is the context: 1/2, or 1 or 0 if only one was counted."""
        seen = self.left.context(left).total > 0, self.right.context(right).total > 0
        return (1.0 + seen[0].double() - seen[1].double()) / 2


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
        """Return the result of `forward`, and the hidden states (B, L, D) of a generator with weights."""
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
        """Return the result of `guess`, computed from the generator's hidden states (B, L, D)."""
        draws = uniform(batch.keys, "sample", masked.targets.shape[1])
        hidden = gather(states, masked.positions)  # (B, K, D)
        return self.head.guess(hidden, masked.targets, masked.weights, draws, self.spec.generator.temperature)


def count_text(model: nn.Module, tokens: Callable[[], NDArray[np.int64]], pairs: Callable[[], Pairs]) -> None:
    """Give each generator without weights in `model` the counts (V,) of the tokens in the training text.

    An n-gram generator also gets the pairs of neighbours and their counts. `tokens` and `pairs`, which may have to read
    the whole text, are called only if there is such a generator.
    """
    for part in model.modules():
        if isinstance(part, WordFrequencies):
            part.count(torch.from_numpy(tokens()))
    for part in model.modules():
        if isinstance(part, Ngrams):  # which holds one of the above
            keys, counts = pairs()
            part.count(torch.from_numpy(keys), torch.from_numpy(counts))
