"""Generators without weights: words as often as they occur in the training text, or all words alike.

Clark et al. 2020, section 3.2, where the unigram generator is the smallest; the uniform one is the released code's
(docs/electra.md 1.2). B rows, K picks, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from workbench.models.losses import weighted_mean
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Guess


class WordFrequencies(nn.Module):
    """One distribution over the vocabulary for every position. A unigram one must `count` before it is used."""

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
        """Take the frequencies of the training text, counts (V,); a uniform generator has no use for them.

        No word is impossible, as if each had been seen once more; what is never picked is never written either.
        """
        if self.spec.generator.kind == "unigram":
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
        """Samples at draws (B, K) in [0, 1), and the mean loss at targets (B, K) over weights (B, K)."""
        assert self.counted, "the words of the training text were not counted"
        words = torch.searchsorted(self.cumulative, draws * self.cumulative[-1], right=True)
        samples = words.clamp(max=len(self.cumulative) - 1)
        right = targets == self.log_share.argmax()
        # Slots that do not count may hold special tokens, whose log share is minus infinity.
        losses = -self.log_share[targets].masked_fill(weights == 0, 0.0)
        return Guess(samples, weighted_mean(losses, weights), right, -self.log_share[samples])


def count_words(model: nn.Module, counts: Callable[[], NDArray[np.int64]]) -> None:
    """Have every generator in `model` that is made of word frequencies take them; `counts` is called only for these."""
    for part in model.modules():
        if isinstance(part, WordFrequencies):
            part.count(torch.from_numpy(counts()))
