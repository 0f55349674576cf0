"""Which runs are said not to have left what token frequencies alone reach: planted ones, and simulated noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from workbench.spec import loss_floors
from workbench.spec.loss_floors import FloorCheck, floor_checks, half_width, mean_rates

FLOORS = {"generator_loss": 6.16, "discriminator_loss": 0.59, "discriminator_auc": 0.55}


def noise(steps: int, memory: float, seed: int) -> NDArray[np.float64]:
    """A stationary series of variance 1 in which neighbouring steps correlate by `memory`."""
    draws = np.random.default_rng(seed).normal(size=steps)
    values = np.empty(steps)
    values[0] = draws[0]
    for step in range(1, steps):
        values[step] = memory * values[step - 1] + math.sqrt(1 - memory**2) * draws[step]
    return values


def logged(steps: int = 1000, seed: int = 0, **means: float) -> list[dict[str, float]]:
    """Rows of a run that stands at these means; losses over words vary by .12 from step to step, the rest by .02."""
    size = {metric: 0.12 if metric in ("generator_loss", "mlm_loss") else 0.02 for metric in means}
    series = {m: mean + size[m] * noise(steps, 0.0, seed + i) for i, (m, mean) in enumerate(means.items())}
    return [{m: float(values[step]) for m, values in series.items()} for step in range(steps)]


def flagged(rows: list[dict[str, float]], floors: dict[str, float]) -> list[str]:
    return [check.metric for check in floor_checks(rows, floors) if check.flagged]


SILENT = {"discriminator_recall": 0.011, "discriminator_positive_rate": 0.006, "discriminator_precision": 0.55}


def said(rows: list[dict[str, float]], **shares: float) -> list[dict[str, float]]:
    return [row | shares for row in rows]


@pytest.mark.parametrize("floors", [FLOORS, {}], ids=["with floors", "of an older run"])
def test_a_discriminator_at_the_base_rate_is_flagged(floors: dict[str, float]) -> None:
    """Recall 1.1 %, "replaced" for 0.6 % of tokens, an area of 0.52, a loss at the entropy of the base rate of 30 %."""
    rows = said(logged(discriminator_auc=0.52, discriminator_loss=0.609, generator_loss=5.5), **SILENT)
    assert sorted(flagged(rows, floors)) == ["discriminator_auc", "discriminator_loss"]


def test_a_discriminator_with_nothing_but_its_area_better_is_flagged() -> None:
    """What an RTD of nano ended with that was no better on the probes than an untrained encoder."""
    rows = said(logged(discriminator_auc=0.599, discriminator_loss=0.5876, generator_loss=5.9), **SILENT)
    assert flagged(rows, FLOORS | {"discriminator_loss": 0.5928}) == ["discriminator_loss"]


@pytest.mark.parametrize("floors", [FLOORS, {}], ids=["with floors", "of an older run"])
def test_a_discriminator_that_has_learnt_is_not_flagged(floors: dict[str, float]) -> None:
    """Also where it still says "original" nearly everywhere, as at low rates of replacement."""
    rows = logged(discriminator_auc=0.70, discriminator_loss=0.55, generator_loss=5.5)
    assert flagged(said(rows, **SILENT), floors) == []


def test_a_generator_and_a_main_model_at_the_unigram_loss_are_flagged() -> None:
    floors = {"generator_loss": 6.16, "mlm_loss": 6.13}
    assert flagged(logged(generator_loss=6.12, mlm_loss=6.10), floors) == ["generator_loss", "mlm_loss"]
    assert flagged(logged(generator_loss=5.80, mlm_loss=5.70), floors) == []


def test_a_discriminator_without_a_logged_area_is_judged_by_its_loss() -> None:
    assert flagged(logged(discriminator_loss=0.75), FLOORS) == ["discriminator_loss"]
    assert flagged(logged(discriminator_loss=0.20), FLOORS) == []


def test_only_the_end_of_training_counts() -> None:
    begun = logged(900, discriminator_auc=0.9)
    ended = logged(100, discriminator_auc=0.54)
    assert flagged(begun + ended, FLOORS) == ["discriminator_auc"]
    assert flagged(ended + begun, FLOORS) == []


def test_an_interval_that_reaches_the_floor_is_no_proof() -> None:
    few = [{"discriminator_auc": 0.55 + 0.06 + shift} for shift in (-0.2, 0.2, -0.2, 0.2, -0.2, 0.2, -0.2, 0.2)]
    assert flagged(few, FLOORS) == ["discriminator_auc"]
    assert flagged([{"discriminator_auc": 0.61}] * 8, FLOORS) == []


def test_gaps_in_the_log_and_metrics_without_a_floor_are_passed_over() -> None:
    rows = [{"discriminator_auc": None if step % 2 else 0.8, "mine_loss": 3.0} for step in range(100)]
    assert [check.metric for check in floor_checks(rows, FLOORS)] == ["discriminator_auc"]
    assert floor_checks([], FLOORS) == [] and mean_rates([]) == {}
    assert mean_rates([{"mask_rate": 0.3}] * 9 + [{"mask_rate": 0.1}]) == {"mask_rate": pytest.approx(0.275)}


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9])
def test_the_interval_covers_the_mean_where_neighbours_are_alike(memory: float) -> None:
    """400 series of 300 steps: 95 % within the error of counting, and a little less where the noise is slow."""
    hits = [abs(np.mean(s)) <= half_width(list(s)) for s in (noise(300, memory, seed) for seed in range(400))]
    assert np.mean(hits) >= {0.0: 0.92, 0.5: 0.92, 0.9: 0.86}[memory]


@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_false_alarms_and_missed_collapses_are_rare(memory: float) -> None:
    """400 runs of 3,000 steps each, .06 of area above the floor and right at it, with the noise of nano's RTD."""
    wrong = []
    for mean, should in ((0.61, False), (0.55, True)):
        runs = [[{"discriminator_auc": mean + 0.02 * value} for value in noise(300, memory, 7 * s)] for s in range(400)]
        wrong.append(np.mean([bool(flagged(rows, FLOORS)) != should for rows in runs]))
    assert max(wrong) <= 0.05


def test_the_sentence_says_what_is_wrong() -> None:
    told = FloorCheck("discriminator_auc", 0.5231, 0.0042, 0.5497).sentence()
    assert "ROC area is 0.523 ± 0.004" in told and "0.550 that token frequencies alone give" in told
    assert loss_floors.name("mine_loss") == "its mine loss"


def test_a_gain_that_does_not_count_is_not_called_none() -> None:
    """An area of .576 ± .006 beside a floor of .549 is better, but by less than what the formulas leave out."""
    told = FloorCheck("discriminator_auc", 0.576, 0.006, 0.549).sentence()
    assert told.endswith(
        "is 0.576 ± 0.006 at the end of training, hardly better than the 0.549 that token frequencies alone give: "
        "a gain below 0.030 does not count"
    )
    told = FloorCheck("generator_loss", 5.55, 0.02, 5.60).sentence()
    assert "hardly better" in told and "a gain below 0.112 does not count" in told
    for value, half in ((0.56, 0.012), (0.549, None), (0.53, 0.001)):
        told = FloorCheck("discriminator_auc", value, half, 0.549).sentence()
        assert "no better than the 0.549" in told and "count" not in told
