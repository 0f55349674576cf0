"""Names of arms, budgets and code in a report."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from made import PROBES, recorded, scored, spec_of, trained

from workbench.report.comparison.boards import boards
from workbench.report.load import frames
from workbench.report.load.naming import arm_name, budget_of
from workbench.report.page import experiment_facts
from workbench.store.run_store import RunStore


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        ({"tokens": 2e6}, "2,000,000 tokens"),
        ({"steps": 1000}, "1,000 steps"),
        ({"seconds": 0.5}, "0.5 seconds"),
        ({"flops": 1e17, "convention": "matmul"}, "1e17 FLOPs (matmul)"),
    ],
)
def test_budgets_and_arms_have_names(budget: dict[str, float], text: str) -> None:
    assert budget_of(budget)[0] == text
    assert [arm_name(v) for v in (0.25, 1.0, "ideas/my_idea.py", None)] == ["0.25", "1", "my_idea", "unknown"]


COUNTS = {"data.words": 60_000, "data.tokens": 100_000}


TEXT = {"words": 60_000, "tokens": 100_000, "documents": 9, "sources": {"bnc.train": 10_000, "childes.train": 50_000}}


def test_runs_that_count_words_stay_in_the_arm_of_those_that_did_not(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    specs = [spec_of("rtd", seed, {"steps": 60}, **(COUNTS if seed else {})) for seed in range(3)]
    bare = [spec_of("bert-mlm", seed, {"steps": 0}) for seed in range(3)]
    for spec in (*bare, *specs):
        run = trained(store, spec, spec.budget.steps or 0)
        for task in PROBES:
            scored(run, task, 0, 60.0 + spec.seed)
    found = frames.read(store, recorded(store, specs, bare, text=TEXT))
    (board,) = boards(found)
    (cell,) = board.at(board.budget)
    assert cell.arm == "rtd" and len(cell.scores) == 3
    assert cell.gain is not None and cell.gain.estimate.n == 3  # each has the untrained encoder of its seed

    rows = {row["seed"]: row for row in found.rows("runs") if row["role"] == "arm"}
    assert math.isnan(rows[0]["words"]) and math.isnan(rows[0]["epochs"])
    seen = 60 * 4096 * 30 / 32 * 0.6  # of rows of 32 tokens, 30 are of the text
    assert rows[1]["words"] == pytest.approx(seen) and rows[1]["epochs"] == pytest.approx(seen / 60_000)
    told = dict(experiment_facts.facts(found, [board]))
    assert told["Text"] == "docs (60,000 words: childes.train 50,000, bnc.train 10,000)"
    assert told["Words seen by a run"] == "138 k (2.3 epochs)"
    assert not any(key.startswith("data.words") for key, _ in experiment_facts.settings(found)["same"])
