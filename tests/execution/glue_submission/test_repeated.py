"""A fine-tuning that was carried out again must give the recorded score, but for rounding."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from workbench.errors import InputError
from workbench.execution.glue_submission import repeated

SCORE: dict[str, Any] = {
    "task": "RTE", "seed": 4, "metric": "accuracy", "value": 61.5, "values": {"dev": {"accuracy": 61.5, "loss": 0.4}}
}  # fmt: skip


@pytest.mark.parametrize("now", [61.5, 61.50001])
def test_the_recorded_values_pass_silently(now: float, caplog: pytest.LogCaptureFixture) -> None:
    """Also those of versions that computed correlations with fewer digits."""
    repeated._compare(SCORE, {"dev": {"accuracy": now, "loss": 0.4}})
    assert not caplog.records


def test_other_metrics_are_not_the_recorded_ones(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "workbench"):
        repeated._compare(SCORE, {"dev": {"accuracy": 61.5}})
    assert "fine-tuned again" in caplog.text


@pytest.mark.parametrize("now", [60.5, 61.499, 62.5])
def test_a_difference_of_rounding_is_said(now: float, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "workbench"):
        repeated._compare(SCORE, {"dev": {"accuracy": now, "loss": 0.4}})
    assert f"RTE, seed 4: fine-tuned again, accuracy on dev is {now:.4f} and not 61.5000" in caplog.text


@pytest.mark.parametrize("now", [60.49, 62.51, 0.0])
def test_a_larger_difference_is_another_model_and_refused(now: float) -> None:
    with pytest.raises(InputError, match="as recorded: this is not the model that was chosen; use the --device and"):
        repeated._compare(SCORE, {"dev": {"accuracy": now, "loss": 0.4}})
