"""A run has an id once nothing that decides what it computes is left open; a store takes nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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
