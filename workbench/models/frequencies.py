"""Floors: the lowest losses that token frequencies alone can reach, without the context of a token.

A floor is the loss of the optimal predictor that is given the frequency of each token, the shares of masked and
replaced tokens, and the token shown at the position itself, but not its neighbours. A model whose loss stays at the
floor has learned nothing from context.

The floors are derived from this model. A picked token v is drawn from the token frequencies p of the training text.
With probability k, the corrupted input shows v itself; otherwise it shows a token u, drawn from q independently of v.
q is uniform for the random tokens of BERT MLM, and p for a generator that has learned frequencies only (at temperature
T, p^(1/T) divided by its sum). k is computed from the observed share r of replaced tokens by r = (1 - k)(1 - sum p q):
a generator that predicts better than frequencies restores the original more often, and so copying the token shown is
correct more often. The floors are the entropies of v given u and of (u != v) given u (Cover and Thomas 2006,
chapter 2), which no such predictor can beat on average.

V size of the vocabulary. All numbers are float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from workbench.spec.run_spec import RunSpec

Shares = NDArray[np.float64]
Where = Literal["picks", "all"]  # a loss is a mean over the picks, or over all tokens


@dataclass(frozen=True)
class Frequencies:
    """The token frequencies of a run's text, and how often its tokens were picked and replaced.

    `words` (V,) are the shares of the vocabulary's entries among the tokens that may be picked; `special` is the share
    of tokens that are never picked ([CLS], [SEP]); `picked` and `replaced` are shares of all tokens.
    """

    words: Shares
    special: float
    spec: RunSpec
    picked: float
    replaced: float

    def generator(self) -> dict[str, float]:
        """Return the floor of the generator's loss, by its name; none for a generator without weights."""
        if self.spec.generator.kind != "transformer":
            return {}  # such a generator consists of frequencies, or is uniform
        shares = self.spec.corruption
        return {"generator_loss": self.masked(shares.generator_mask, shares.generator_random)}

    def masked(self, mask: float, random: float) -> float:
        """Return the floor of predicting picks, of which the input shows shares as [MASK] and as random tokens."""
        seen = 1 - mask
        if seen <= 0:
            return entropy(self.words)
        uniform = np.full_like(self.words, 1 / len(self.words))
        return mask * entropy(self.words) + seen * restoring(self.words, uniform, 1 - random / seen)

    def restored(self, where: Where) -> float:
        """Return the floor of predicting the original tokens from an input with the samples of a generator."""
        counted = 1.0 if where == "picks" else 1 - self.special  # the share of positions that may be replaced
        return counted * restoring(self.words, self._noise, self._kept(where))

    def detection(self, where: Where) -> dict[str, float]:
        """Return the floor of the loss of detecting replaced tokens, and the ROC area of the same predictor."""
        loss, area = detecting(self.words, self._noise, self._kept(where), self.special if where == "all" else 0.0)
        return {"discriminator_loss": loss, "discriminator_auc": area}

    def _kept(self, where: Where) -> float:
        """Return k of the formulas, computed from the observed share of replaced tokens."""
        among = self.picked if where == "picks" else 1 - self.special
        rate = min(self.replaced / among, 1.0) if among > 0 else 0.0
        return max(0.0, 1 - rate / (1 - float(self.words @ self._noise)))

    @property
    def _noise(self) -> Shares:
        """The distribution q (V,) of the formulas: what a generator samples that has learned frequencies only."""
        if self.spec.generator.kind == "uniform":
            return np.full_like(self.words, 1 / len(self.words))
        tempered = self.words ** (1 / self.spec.generator.temperature)
        noise: Shares = tempered / tempered.sum()
        return noise


def frequencies(counts: NDArray[Any], spec: RunSpec, rates: Mapping[str, float]) -> Frequencies:
    """Return the frequencies of a run, from the counts (V,) of its text and its `mask_rate` and `replaced_rate`.

    The counts leave out the [CLS] at the start and the [SEP] at the end of every row.
    """
    special, length = spec.data.special, spec.data.length
    words = counts.astype(np.float64)
    words[[special.pad, special.cls, special.sep, special.mask]] = 0
    inside = 1 - words.sum() / counts.sum()
    never = (2 + (length - 2) * inside) / length
    picked, replaced = (rates.get(name, 0.0) for name in ("mask_rate", "replaced_rate"))
    return Frequencies(words / words.sum(), float(never), spec, picked, replaced)


def entropy(shares: Shares) -> float:
    """Return the entropy in nats of a distribution."""
    return float(-_times_log(shares, shares).sum())


def restoring(words: Shares, noise: Shares, kept: float) -> float:
    """Return the entropy of the original token given the token shown, in nats; `kept` is k of the formulas."""
    seen = kept * words + (1 - kept) * noise
    same = words * (kept + (1 - kept) * noise)  # the probability that u is shown and is the original
    other = (1 - kept) * noise  # times p(v): that u is shown and the original is another token v
    likely = _times_log(same, same) + other * (-entropy(words) - _times_log(words, words))
    return float(-(likely + (1 - words) * _times_log(other, other) - _times_log(seen, seen)).sum())


def detecting(words: Shares, noise: Shares, kept: float, special: float) -> tuple[float, float]:
    """Return the entropy of "replaced" given the token shown, in nats, and the ROC area of the same predictor.

    The ROC area is that of ranking tokens by their probability of being replaced. A share `special` of the tokens is
    never replaced and always recognised; `kept` is k of the formulas.
    """
    original = (1 - special) * words * (kept + (1 - kept) * noise)
    replaced = (1 - special) * (1 - kept) * noise * (1 - words)
    seen = original + replaced
    loss = (_times_log(seen, seen) - _times_log(original, original) - _times_log(replaced, replaced)).sum()
    if not replaced.sum() > 0 or not original.sum() + special > 0:
        return float(loss), 0.5
    order = np.argsort(replaced / np.maximum(seen, 1e-300))
    negatives, positives = original[order], replaced[order]
    below = special + np.cumsum(negatives) - negatives / 2  # ties count half
    return float(loss), float((positives * below).sum() / positives.sum() / (original.sum() + special))


def _times_log(weights: Shares, shares: Shares) -> Shares:
    """Return weights * log(shares), with 0 in place of the logarithm of 0."""
    return weights * np.log(np.where(shares > 0, shares, 1.0))
