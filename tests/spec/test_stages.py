"""A run has an id once nothing that decides what it computes is left open; a store takes nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench.execution.experiment_runner import untrained
from workbench.objectives import with_options
from workbench.spec.presets import resolve
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunStore

KNOWN = {"data.fingerprint": "f" * 16, "budget.steps": 20}


def bound(**keys: Any) -> BoundRun:
    given = {key.replace("__", "."): value for key, value in keys.items()}
    return BoundRun(with_options(resolve("nano", KNOWN | {"objective": "rtd"} | given)))


def test_a_draft_has_no_id_and_no_place_in_a_store(tmp_path: Path) -> None:
    draft, store = resolve("nano", KNOWN), RunStore(tmp_path)
    with pytest.raises(AttributeError, match="run_id"):
        store.open(draft)  # type: ignore[arg-type]
    assert store.runs() == []
    run = store.open(bound())
    assert run.run_id == bound().run_id and run.spec() == bound().spec


def test_the_parent_of_a_bound_run_is_bound_as_well() -> None:
    assert bound().parent() is None
    child = bound(tying="none", start__take="encoder", start__parent={"objective": "bert-mlm"})
    parent = child.parent()
    assert parent is not None and parent.run_id.startswith("bert-mlm-nano-s0-")
    assert parent.spec.data.fingerprint == KNOWN["data.fingerprint"] and parent.spec.budget.steps == 10


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
    assert untrained(bound(**others)).run_id == untrained(bound()).run_id == "untrained-nano-s0-fcfd60cc8ae5"


@pytest.mark.parametrize(
    "others", [{"seed": 1}, {"encoder.layers": 2}, {"encoder.init": 0.05}, {"data.special.pad": 7}], ids=str
)
def test_runs_whose_encoders_begin_otherwise_have_their_own(others: dict[str, Any]) -> None:
    assert untrained(bound(**others)).run_id != untrained(bound()).run_id


def test_the_baseline_of_a_causal_objective_is_scored_as_the_objective_is() -> None:
    causal, both = untrained(bound(objective="causal-lm")), untrained(bound(objective="bert-mlm", encoder__causal=True))
    assert (causal.spec.objective, both.spec.objective) == ("causal-lm", "bert-mlm")
    assert causal.spec.encoder.causal and both.spec.encoder.causal and causal.run_id != both.run_id
    assert untrained(bound(objective="causal-lm", optim__lr=1e-5)).run_id == causal.run_id
