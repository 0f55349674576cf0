"""Generators without weights, which sample tokens by their frequencies in the training text, or uniformly.

The unigram generator is the smallest one of Clark et al. 2020, section 3.2; the uniform generator comes from the
released code (docs/electra.md 1.2). B rows, K picks, V size of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from workbench.models.losses import weighted_mean
from workbench.rng import uniform
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Corruption, Guess


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

    def forward(self, draws: Tensor, targets: Tensor, weights: Tensor) -> Guess:
        """Return samples at draws (B, K) in [0, 1), and the mean loss of targets (B, K) under weights (B, K)."""
        assert self.counted, "a unigram generator is used before `count` was called"
        samples = self.sample(draws)
        right = self.log_share[targets] == self.log_share.max()
        # Slots that do not count may hold special tokens, whose log share is minus infinity.
        losses = -self.log_share[targets].masked_fill(weights == 0, 0.0)
        return Guess(samples, weighted_mean(losses, weights), right, -self.log_share[samples])

    def sample(self, draws: Tensor) -> Tensor:
        """Return tokens at draws in [0, 1), of any shape."""
        tokens = torch.searchsorted(self.cumulative, draws * self.cumulative[-1], right=True)
        return tokens.clamp(max=len(self.cumulative) - 1)

    def guess(self, keys: Tensor, masked: Corruption) -> Guess:
        """Return samples (B, K) at the picks of rows with `keys` (B,), and how well targets are predicted."""
        draws = uniform(keys, "sample", masked.targets.shape[1])
        return self(draws, masked.targets, masked.weights)  # type: ignore[no-any-return]

    def log_likelihood(self, ids: Tensor) -> Tensor:
        """Return the logarithm (B, L) of the probability of each token of ids (B, L)."""
        return self.log_share[ids]


def count_words(model: nn.Module, counts: Callable[[], NDArray[np.int64]]) -> None:
    """Give each generator without weights in `model` the counts (V,) of the tokens in the training text.

    `counts`, which may have to read the whole text, is called only if there is such a generator.
    """
    for part in model.modules():
        if isinstance(part, WordFrequencies):
            part.count(torch.from_numpy(counts()))
