"""Whether a run's losses left, by the end of training, what token frequencies alone reach.

A loss is judged by its mean over the last tenth of training. Neighbouring steps are not independent, so the interval of
that mean is Student's t over the means of eight blocks of equal length, each far longer than the noise is correlated
("batch means", Law and Kelton 2000, section 9.5.3). Two things are asked of it: that the interval leaves out the floor,
and that the mean is better than the floor by a margin. The formulas take a generator's replacements to be as frequent
as words are, which gave a discriminator .01 of ROC area beyond the floor (docs/log.md), and thousands of steps make a
difference that no encoder is better for a certain one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SHARE = 0.1  # of the rows, the last ones
BLOCKS = 8
LEVEL = 0.95
AREA_MARGIN = 0.03  # of ROC area
LOSS_MARGIN = 0.02  # of the floor
CHANCE = 0.5  # the ROC area of a discriminator that knows nothing
NAMES = {
    "generator_loss": "the generator\u2019s loss",
    "mlm_loss": "the main model\u2019s MLM loss",
    "lm_loss": "the main model\u2019s language-model loss",
    "discriminator_loss": "the discriminator\u2019s loss",
    "discriminator_auc": "the discriminator\u2019s ROC area",
}


@dataclass(frozen=True)
class Reach:
    """How far one metric of a run got: `value` plus or minus `half` (None for a single row), and its floor."""

    metric: str
    value: float
    half: float | None
    floor: float

    @property
    def gain(self) -> float:
        """How much better than the floor; an area is better the larger it is, a loss the smaller."""
        return self.value - self.floor if is_area(self.metric) else self.floor - self.value

    @property
    def margin(self) -> float:
        """By how much it has to be better."""
        return AREA_MARGIN if is_area(self.metric) else LOSS_MARGIN * abs(self.floor)

    @property
    def flagged(self) -> bool:
        """Whether it is not better than the floor, surely and by the margin."""
        return self.gain <= (self.half or 0.0) or self.gain < self.margin

    def sentence(self) -> str:
        """Return what is wrong, for a person who looks at this run alone."""
        half = "" if self.half is None else f" ± {self.half:.3f}"
        return (
            f"{name(self.metric)} is {self.value:.3f}{half} at the end of training, no better than the "
            f"{self.floor:.3f} that token frequencies alone give"
        )


def is_area(metric: str) -> bool:
    """Return whether a metric is a ROC area; everything else that has a floor is a loss."""
    return metric.endswith("_auc")


def name(metric: str) -> str:
    """Return what a metric is called in a sentence."""
    return NAMES.get(metric, f"its {metric.replace('_', ' ')}")


def reaches(rows: Sequence[Mapping[str, Any]], floors: Mapping[str, float]) -> list[Reach]:
    """Return how far each metric with a floor got, from a run's logged rows or from means over stretches of them."""
    found = []
    for metric, floor in (base_rate(rows) | dict(floors)).items():
        values = tail(rows, metric)
        if values and math.isfinite(floor):
            found.append(Reach(metric, mean(values), half_width(values), floor))
    return found


def base_rate(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return what a discriminator comes to that knows only how many tokens are replaced: for runs without floors.

    That share is P(says replaced) P(replaced | says so) / P(says so | replaced).
    """
    found = {"discriminator_auc": CHANCE}
    names = ("discriminator_positive_rate", "discriminator_precision", "discriminator_recall")
    said, right, recall = (mean(tail(rows, metric)) for metric in names)
    if said and right and recall and said * right < recall:
        share = said * right / recall
        found["discriminator_loss"] = -share * math.log(share) - (1 - share) * math.log(1 - share)
    return found


def mean(values: Sequence[float]) -> float:
    """Return the mean, 0 of nothing."""
    return math.fsum(values) / len(values) if values else 0.0


def tail(rows: Sequence[Mapping[str, Any]], metric: str) -> list[float]:
    """Return the last tenth of what was logged of a metric, and no less than eight values where there are as many."""
    values = [row[metric] for row in rows if is_number(row.get(metric))]
    return values[-max(BLOCKS, round(SHARE * len(values))) :]


def mean_rates(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return how often tokens were picked and replaced at the end of training, as far as that was logged."""
    return {rate: mean(tail(rows, rate)) for rate in ("mask_rate", "replaced_rate") if tail(rows, rate)}


def half_width(values: Sequence[float]) -> float | None:
    """Return the half-width of a 95 % interval for the mean of a series whose neighbours may be correlated."""
    blocks = list(block_means(values))
    if len(blocks) < 2:
        return None
    from scipy.special import stdtrit

    centre = mean(blocks)
    variance = math.fsum((block - centre) ** 2 for block in blocks) / (len(blocks) - 1)
    return float(stdtrit(len(blocks) - 1, 0.5 + LEVEL / 2)) * math.sqrt(variance / len(blocks))


def block_means(values: Sequence[float]) -> Iterable[float]:
    """Yield the means of up to eight blocks of equal length; what is left over at the beginning is not used."""
    length = max(1, len(values) // BLOCKS)
    first = len(values) % length
    for start in range(first, len(values), length):
        yield math.fsum(values[start : start + length]) / length


def is_number(value: Any) -> bool:
    """Return whether a logged value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
