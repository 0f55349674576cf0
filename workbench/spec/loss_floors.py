"""Floors, the losses that token frequencies alone give, and how the losses at the end of a run compare with them.

A loss is judged by its mean over the last tenth of training. Losses of neighbouring steps are correlated, so the
confidence interval of the mean is Student's t over the means of eight blocks of equal length, each much longer than the
correlation ("batch means", Law and Kelton 2000, section 9.5.3). A loss is better than its floor if the interval does
not contain the floor and the mean is better than the floor by a margin. The margin has two reasons. The formulas of the
floors assume that a generator's replacements are as frequent as tokens of the text, which gave a discriminator .01 of
ROC area above its floor (docs/log.md); and over thousands of steps, even a difference too small to make a better
encoder lies outside the interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from workbench.spec.run_spec import RunSpec

# ----------------------------------------
# The lowest losses that token frequencies alone can reach, without the context of a token.
#
# A floor is the loss of the optimal predictor that is given the frequency of each token, the shares of masked and
# replaced tokens, and the token shown at the position itself, but not its neighbours. A model whose loss stays at the
# floor has learned nothing from context.
#
# The floors are derived from this model. A picked token v is drawn from the token frequencies p of the training text.
# With probability k, the corrupted input shows v itself; otherwise it shows a token u, drawn from q independently of v.
# q is uniform for the random tokens of BERT MLM, and p for a generator that has learned frequencies only (at
# temperature T, p^(1/T) divided by its sum). k is computed from the observed share r of replaced tokens by
# r = (1 - k)(1 - sum p q): a generator that predicts better than frequencies restores the original more often, and so
# copying the token shown is correct more often. The floors are the entropies of v given u and of (u != v) given u
# (Cover and Thomas 2006, chapter 2), which no such predictor can beat on average.
#
# V size of the vocabulary. All numbers are float64.

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
        """Return the floor of predicting picks when these shares of them are shown as [MASK] and as random tokens."""
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

    The predictor ranks tokens by their probability of being replaced. A share `special` of the tokens is
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


# ----------------------------------------
# The comparison of a run's losses with floors.

SHARE = 0.1  # of the logged rows, counted from the end
BLOCKS = 8
LEVEL = 0.95
AREA_MARGIN = 0.03  # difference of ROC areas
LOSS_MARGIN = 0.02  # as a share of the floor
CHANCE = 0.5  # the ROC area of a discriminator that guesses
NAMES = {
    "generator_loss": "the generator\u2019s loss",
    "mlm_loss": "the main model\u2019s MLM loss",
    "lm_loss": "the main model\u2019s language-model loss",
    "nsp_loss": "the main model\u2019s next-sentence loss",
    "sop_loss": "the main model\u2019s sentence-order loss",
    "discriminator_loss": "the discriminator\u2019s loss",
    "discriminator_auc": "the discriminator\u2019s ROC area",
}


@dataclass(frozen=True)
class FloorCheck:
    """The value of one metric at the end of a run, and its floor.

    `half` is the half-width of the value's confidence interval; None for a single row.
    """

    metric: str
    value: float
    half: float | None
    floor: float

    @cached_property
    def gain(self) -> float:
        """The difference from the floor, above 0 for a larger ROC area or a smaller loss."""
        difference = self.value - self.floor
        return difference if self.metric.endswith("_auc") else -difference  # every other metric with a floor is a loss

    @cached_property
    def margin(self) -> float:
        """The smallest gain that counts, in units of the metric."""
        return AREA_MARGIN if self.metric.endswith("_auc") else LOSS_MARGIN * abs(self.floor)

    @property
    def slight(self) -> bool:
        """Whether the gain exceeds `half` and is below the margin."""
        return (self.half or 0.0) < self.gain < self.margin

    @property
    def flagged(self) -> bool:
        """Whether the gain is below the margin or does not exceed `half`."""
        return self.gain < self.margin or self.gain <= (self.half or 0.0)

    @property
    def too_little(self) -> str:
        """The clause on a gain that is too small to count."""
        return f"a gain below {self.margin:.3f} does not count"

    def sentence(self) -> str:
        """Return the warning about this metric, which a reader of this run alone can understand."""
        half = "" if self.half is None else f" ± {self.half:.3f}"
        than = f"the {self.floor:.3f} that token frequencies alone give"
        start = f"{name(self.metric)} is {self.value:.3f}{half} at the end of training, "
        return start + (f"hardly better than {than}: {self.too_little}" if self.slight else f"no better than {than}")


def name(metric: str) -> str:
    """Return the name of a metric in a sentence."""
    return NAMES.get(metric, f"its {metric.replace('_', ' ')}")


def floor_checks(rows: Sequence[Mapping[str, Any]], floors: Mapping[str, float]) -> list[FloorCheck]:
    """Return final value and floor of each metric with a floor, from logged rows or means over consecutive rows."""
    values = {metric: (tail(rows, metric), floor) for metric, floor in (base_rate(rows) | dict(floors)).items()}
    return [
        FloorCheck(metric, mean(logged), half_width(logged), floor)
        for metric, (logged, floor) in values.items()
        if logged and math.isfinite(floor)
    ]


def base_rate(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the floors of a discriminator that uses only the share of replaced tokens, for runs without other floors.

    This share is P(predicted as replaced) P(replaced | predicted as replaced) / P(predicted as replaced | replaced).
    """
    floors = {"discriminator_auc": CHANCE}
    names = ("discriminator_positive_rate", "discriminator_precision", "discriminator_recall")
    positive, precision, recall = (mean(tail(rows, metric)) for metric in names)
    if positive and precision and recall and positive * precision < recall:
        share = positive * precision / recall
        floors["discriminator_loss"] = -share * math.log(share) - (1 - share) * math.log(1 - share)
    return floors


def mean(values: Sequence[float]) -> float:
    """Return the mean of values, and 0 if there are none."""
    return math.fsum(values) / len(values) if values else 0.0


def tail(rows: Sequence[Mapping[str, Any]], metric: str) -> list[float]:
    """Return the last tenth of the logged values of a metric, and at least eight of them if there are that many."""
    values = [row[metric] for row in rows if isinstance(row.get(metric), (int, float))]
    values = [value for value in values if not isinstance(value, bool) and math.isfinite(value)]
    return values[-max(BLOCKS, round(SHARE * len(values))) :]


def mean_rates(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the shares of tokens picked and replaced at the end of training, by metric, if they were logged."""
    return {rate: mean(tail(rows, rate)) for rate in ("mask_rate", "replaced_rate") if tail(rows, rate)}


def half_width(values: Sequence[float]) -> float | None:
    """Return the half-width of a 95 % confidence interval for the mean of a series with correlated neighbours.

    None if there are fewer than two blocks. Blocks have an eighth of the values each; values left over at the beginning
    are not used.
    """
    length = max(1, len(values) // BLOCKS)
    starts = range(len(values) % length, len(values), length)
    blocks = [math.fsum(values[start : start + length]) / length for start in starts]
    if len(blocks) < 2:
        return None
    from scipy.special import stdtrit

    centre = mean(blocks)
    variance = math.fsum((block - centre) ** 2 for block in blocks) / (len(blocks) - 1)
    return float(stdtrit(len(blocks) - 1, 0.5 + LEVEL / 2)) * math.sqrt(variance / len(blocks))
