"""Scores of minimal pairs in the report: how sentences were scored, ties, chance and published points beside."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from made import recorded, scored, spec_of, trained

from workbench.execution.experiment_runner import untrained
from workbench.execution.run_list import distinct_runs
from workbench.report import write
from workbench.spec.published import BABYLM
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunStore

BUDGET = {"steps": 60}
SCORERS = {"bert-mlm": "pll", "rtd": "originality"}


def page(tmp_path: Path, suite: str, task: str, ties: int = 3) -> tuple[str, Path]:
    """The report on two objectives and their untrained encoders, three seeds each."""
    store = RunStore(tmp_path / "runs")
    specs = [spec_of(name, seed, BUDGET) for name in SCORERS for seed in range(3)]
    bare = [run.spec for run in distinct_runs(untrained(BoundRun(spec)) for spec in specs)]
    for spec in [*specs, *bare]:
        run = trained(store, spec)
        value = 50.0 + spec.seed if spec in bare else 60.0 + spec.seed + len(spec.objective)
        scored(run, task, 0, value, suite=suite, metric="accuracy", values={"mean": {"accuracy": value}},
               baselines={"chance": 50.0}, scorer=SCORERS[spec.objective], ties=ties, test_rows=1000)  # fmt: skip
    name = recorded(store, specs, bare, tasks={"names": [task]})
    out = tmp_path / "report"
    return write(store, name, out).read_text(), out


def test_a_reader_is_told_how_sentences_were_scored_and_of_ties(tmp_path: Path) -> None:
    text, out = page(tmp_path, "pairs", "pairs")
    assert "pll (bert-mlm and untrained) and originality (rtd). Scorers differ between objectives" in text
    assert "27 of 9,000 pairs, over all runs, have the same score for both sentences; each counts half." in text
    assert "chance" in text and "Paper, table 5" not in text
    sheet = pd.read_csv(out / "scores.csv")
    assert set(sheet["scorer"]) == set(SCORERS.values()) and set(sheet["ties"]) == {3}
    assert set(pd.read_csv(out / "baselines.csv")["baseline"]) == {"chance"}


@pytest.mark.parametrize(("task", "shown"), [("blimp-filtered", True), ("blimp", False)])
def test_published_points_stand_beside_the_pairs_that_they_are_of(tmp_path: Path, task: str, shown: bool) -> None:
    text, _ = page(tmp_path, "blimp", task, ties=0)
    assert all((f"{point.name} {point.blimp:.1f} ({point.year})" in text) == shown for point in BABYLM)
    assert "In no pair do both sentences have the same score." in text
