"""An experiment from its job to its outcome: baselines, and what is said at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from written_runs import finish

from workbench.data.prepare import prepare
from workbench.execution.study import bound_runs, job_of
from workbench.execution.study_runner import Outcome, baselines_of, trained_already, untrained
from workbench.objectives import with_options
from workbench.spec.experiment import grid
from workbench.spec.presets import resolve
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunStore

KNOWN = {"data.fingerprint": "f" * 16, "budget.steps": 20}


def bound(**keys: Any) -> BoundRun:
    given = {key.replace("__", "."): value for key, value in keys.items()}
    return BoundRun(
        with_options(resolve("nano", KNOWN | {"objective": "rtd", "encoder.position_init": "sinusoidal"} | given))
    )


@pytest.mark.parametrize(
    "others",
    [
        {"objective": "bert-mlm"}, {"options.weight": 3.0}, {"recipe": "released", "tasks.names": "none"},
        {"tying": "none"}, {"generator.kind": "unigram"}, {"corruption.rate": 0.2}, {"optim.lr": 1e-5},
        {"schedule.kind": "wsd"}, {"budget.steps": 99}, {"start.take": "encoder", "start.parent.objective": "bert-mlm"},
    ],
    ids=str,
)  # fmt: skip
def test_runs_whose_encoders_begin_alike_share_a_baseline(others: dict[str, Any]) -> None:
    assert bound(**others).run_id != bound().run_id
    assert untrained(bound(**others)).run_id == untrained(bound()).run_id == "untrained-nano-s0-7cb8d4a653a4"


@pytest.mark.parametrize(
    "others", [{"seed": 1}, {"encoder.layers": 2}, {"encoder.init": 0.05}, {"data.special.pad": 7}], ids=str
)
def test_runs_whose_encoders_begin_otherwise_have_their_own(others: dict[str, Any]) -> None:
    assert untrained(bound(**others)).run_id != untrained(bound()).run_id


def test_runs_of_other_batches_share_one_baseline() -> None:
    runs = [bound(), bound(**{"batch.size": 8}), bound(seed=1)]
    assert untrained(runs[0]).run_id != untrained(runs[1]).run_id
    assert baselines_of(runs) == [untrained(runs[0]), untrained(runs[2])]


def test_the_baseline_of_a_causal_objective_is_scored_as_the_objective_is() -> None:
    causal, both = untrained(bound(objective="causal-lm")), untrained(bound(objective="bert-mlm", encoder__causal=True))
    assert (causal.spec.objective, both.spec.objective) == ("causal-lm", "bert-mlm")
    assert causal.spec.encoder.causal and both.spec.encoder.causal and causal.run_id != both.run_id
    assert untrained(bound(objective="causal-lm", optim__lr=1e-5)).run_id == causal.run_id


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ({}, 0),
        ({"a": "done", "b": "trained"}, 0),
        ({"a": "done", "b": "failed"}, 1),
        ({"a": "unfinished"}, 1),
        ({"a": "running"}, 1),
    ],
)
def test_the_exit_code_says_whether_every_run_is_done(states: dict[str, str], code: int) -> None:
    outcome = Outcome("x-1", {run: (state, "") for run, state in states.items()}, None, Path("runs"))
    assert outcome.exit_code == code
    assert [row["state"] for row in outcome.to_json()["runs"]] == list(states.values())


def test_the_summary_names_what_is_not_done_and_counts_what_is_doubtful() -> None:
    runs = {"a": ("done", ""), "b": ("done", "no better than frequencies"), "c": ("failed", "disk"), "d": ("new", "")}
    lines = Outcome("x-1", runs, Path("out/index.html"), Path("runs")).summary().splitlines()
    assert lines == [
        "2 of 4 runs are done in runs", "  failed: c: disk", "  new: d",
        "1 of them has a loss that is no better than token frequencies alone give; workbench status --runs runs names "
        "them",
        "report: out/index.html",
    ]  # fmt: skip
    assert Outcome("x-1", {}, None, Path("runs")).summary().endswith("no report was written")


def test_runs_that_are_trained_already_are_known_once_the_text_is_prepared(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("".join(f"one two {number} four\n\n" for number in range(400)))
    base = resolve("nano", {"budget.steps": 2, "data.corpus": str(tmp_path / "text.txt"), "tasks.names": "none"})
    job = job_of(grid("ablation", {}, None, base), base, 2, ["bert-mlm"])
    names = [spec.name for spec in job.specs]
    store = RunStore(tmp_path / "runs")
    assert trained_already(job, None, store.root) == set()
    prepared = prepare(base)
    assert trained_already(job, prepared, store.root) == set()
    bound, _ = bound_runs(job, job.specs, prepared)
    runs = {name: store.open(run) for name, run in bound.items()}
    assert trained_already(job, prepared, store.root) == set()
    finish(runs[names[1]], steps=2)
    assert trained_already(job, prepared, store.root) == {names[1]}
