"""Warnings of trainings that collapsed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import made
import pytest
from swept_runs import sweep

from workbench.report.load import frames
from workbench.report.page import warnings


@pytest.mark.parametrize(
    ("metric", "value", "said"),
    [
        ("generator_entropy", 0.01, "entropy is below 0.05 nats"),
        ("discriminator_positive_rate", 0.0, "the same answer for at least 999 tokens in 1,000"),
        ("discriminator_positive_rate", 1.0, "the same answer for at least 999 tokens in 1,000"),
        ("discriminator_positive_rate", 0.06, ""),
        ("generator_entropy", 2.0, ""),
    ],
)
def test_collapses_are_flagged(tmp_path: Path, metric: str, value: float, said: str) -> None:
    """By the end of the log: a discriminator that begins at the majority class has not collapsed."""
    store, name = sweep(tmp_path, [{"generator.width": 0.25}, {"generator.width": 0.5}], seeds=1)
    run = store.runs()[0]
    path = run.path / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [row | {metric: (1.0 - value) if i < 4 else value} for i, row in enumerate(rows)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made.relist(run)
    told = [text for text in warnings.collapsed(frames.read(store, name)) if run.run_id in text]
    assert [bool(re.search(said, text)) for text in told if "recall" not in text and "majority" not in text] == (
        [True] if said else []
    )
    made.unfinish(run)
    unfinished = warnings.collapsed(frames.read(store, name))
    assert not [text for text in unfinished if run.run_id in text], "it has not come to the end of training"


def test_the_end_of_a_log_is_its_last_tenth() -> None:
    rows = [{"step": n, "loss": float(n)} for n in range(1, 31)] + [{"step": 31, "other": 1.0}]
    assert warnings.at_end(rows, "loss") == 29.0  # of 28, 29 and 30
    assert warnings.at_end(rows[:3], "loss") == 3.0 and warnings.at_end(rows, "other") == 1.0
    assert warnings.at_end([], "loss") is None
