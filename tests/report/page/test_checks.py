"""Warnings of a report."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import made
import parsed
import pytest
from compute_studies import law, study
from swept_runs import sweep

from workbench.report import write
from workbench.report.comparison.boards import board
from workbench.report.load import frames
from workbench.report.page import checks


@pytest.mark.parametrize(
    ("ratio", "said"), [(1.0, ""), (1.04, ""), (1.2, "rtd trained 1.20 times as long as bert-mlm")]
)
def test_seconds_that_the_clock_did_not_keep_are_marked(ratio: float, said: str) -> None:
    found, _ = study({"rtd": law(60, 0.2, 0.05), "bert-mlm": law(66, 0.2, 0.05)}, budgets=(240,))
    rows = found.rows("runs")
    for row in rows:
        if row["role"] == "arm":
            row |= {"budget": "60 seconds", "seconds": 60.0 * (ratio if row["arm"] == "rtd" else 1.0)}
    found = replace(found, runs=type(found.runs)(rows))
    results = board(found, "probes")
    assert results is not None
    text = checks.unequal(results, "60 seconds")
    assert said in text and bool(text) == bool(said)


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
    told = [text for text in checks.collapsed(frames.read(store, name)) if run.run_id in text]
    assert [bool(re.search(said, text)) for text in told if "recall" not in text and "majority" not in text] == (
        [True] if said else []
    )
    made.unfinish(run)
    unfinished = checks.collapsed(frames.read(store, name))
    assert not [text for text in unfinished if run.run_id in text], "it has not come to the end of training"


def test_grid_of_cells_says_what_became_of_each(tmp_path: Path) -> None:
    store, name = sweep(tmp_path, [{"generator.width": w} for w in (0.25, 0.5)])
    runs = {(r.spec().generator.width, r.spec().seed): r for r in store.runs()}
    made.unfinish(runs[0.25, 1])
    runs[0.25, 1].fail("diverged", "loss is nan at step 3", step=3)
    made.unfinish(runs[0.5, 2])
    shutil.rmtree(runs[0.5, 0].path)
    seeds, rows = checks.cells(frames.read(store, name))
    table = {arm: states for arm, _, states in rows}
    assert seeds == [0, 1, 2]
    assert [table["0.25"].get(s, "") for s in seeds] == ["done", "diverged", "done"]
    assert [table["0.5"].get(s, "") for s in seeds] == ["", "done", "interrupted"]
    told = " ".join(parsed.page(write(store, name, tmp_path / "out")).by_id("absent").text.split())
    assert "diverged" in told and "interrupted" in told and "missing" in told
