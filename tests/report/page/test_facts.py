"""The facts at the top of the page: what a score is the mean of."""

from __future__ import annotations

import pytest
from by_hand import board, cell

from workbench.report.page import facts
from workbench.spec.scoring import GLUE, LINEAR, PROBES, score_label


@pytest.mark.parametrize(
    ("suite", "tasks", "text"),
    [
        ("pairs", ("pairs:replace",), "pairs:replace"),
        ("linear", ("linear:next",), "linear:next"),
        ("probes", ("order", "next"), "mean of order, next"),
        ("probes", PROBES, "probe score (package, order, next and signature)"),
        ("linear", LINEAR, "linear probe score (linear:package, linear:order, linear:next and linear:signature)"),
        ("glue", GLUE, "GLUE (CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI and RTE)"),
    ],
)
def test_a_score_is_described_by_its_tasks_once(suite: str, tasks: tuple[str, ...], text: str) -> None:
    scores = board([cell("rtd", [60.0])], suite=suite, tasks=tasks, label=score_label(suite, tasks))
    assert facts.score(scores) == text
