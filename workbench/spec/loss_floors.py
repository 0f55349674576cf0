"""Comparison of a run's losses at the end of training with floors, the losses that token frequencies alone give.

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
from typing import Any

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
        """The smallest gain that counts."""
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
