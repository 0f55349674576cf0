"""When minimal pairs are scored by several processes, and what an error does to these."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import Diverged, InputError
from workbench.execution.several_devices import shared_scoring
from workbench.execution.several_devices.devices import Training
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.store.run_store import RunDir
from workbench.tasks.common.examples import Examples, Task
from workbench.tasks.minimal_pairs import PairSet, pair_set
from workbench.training.ranks import ALONE

PAIRS = pair_set("toy", "minimal-pairs", ["a b"] * 3, ["b a"] * 3, {"paradigm": ["x"] * 3})


def test_pairs_are_shared_by_processes_that_run_already_or_have_a_gpu_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "resolved_device", lambda host: host.device)
    many, few = shared_scoring.WORTH, 3
    assert not shared_scoring.is_shared(many, Host(device="cuda"))
    assert shared_scoring.is_shared(many, Host(device="cuda", devices=2))
    assert not shared_scoring.is_shared(few, Host(device="cuda", devices=2)), "starting processes takes longer"
    assert not shared_scoring.is_shared(many, Host(device="cpu", devices=2)), "they would share the cores"
    monkeypatch.setattr(shared_scoring, "launched", lambda: 2)
    assert shared_scoring.is_shared(few, Host(device="cpu", devices=2))


@pytest.mark.parametrize("raised", [InputError("no scorer"), Diverged("a score is nan"), None])
def test_an_error_that_all_processes_raise_does_not_end_the_others(
    raised: Exception | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[str] = []

    @contextlib.contextmanager
    def together(run: RunDir, host: Host, scoring: Any) -> Iterator[str]:
        announced = json.loads(Training("a", asdict(host), 1, scoring).write())["scoring"]
        assert announced["encoder"] == "points/00000004/encoder" and TasksSpec(**announced["tasks"]) == TasksSpec()
        assert PairSet.from_json(announced["pairs"]) == PAIRS
        yield "several"
        left.append("in order")

    monkeypatch.setattr(shared_scoring, "launched", lambda: 2)
    monkeypatch.setattr(shared_scoring, "together", together)
    with contextlib.ExitStack() as stack:
        if raised is not None:
            stack.enter_context(pytest.raises(type(raised), match=str(raised)))
        host = Host(device="cpu", devices=2)
        given = (RunDir(tmp_path), "points/00000004/encoder", PAIRS, TasksSpec(), host)
        with shared_scoring.scoring_together(*given) as ranks:
            assert ranks == "several"
            if raised is not None:
                raise raised
    assert left == ["in order"]


def test_other_measures_are_taken_by_the_first_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_scoring, "launched", lambda: 2)
    rows = Examples(["a"], None, [0])
    task = Task("t", "table", ("x", "y"), "accuracy", ("accuracy",), 1.0, rows, {"dev": rows})
    with shared_scoring.scoring_together(RunDir(tmp_path), "encoder", task, TasksSpec(), Host(devices=2)) as ranks:
        assert ranks is ALONE
