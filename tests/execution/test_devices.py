"""Processes of one run on several devices: what they are told, and hosts that they cannot have."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from workbench.errors import Diverged, InputError
from workbench.execution import devices
from workbench.execution.devices import OVER, Training
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.spec.presets import resolve
from workbench.store.run_store import RunDir
from workbench.tasks.common.examples import Examples, Task
from workbench.tasks.minimal_pairs import PairSet
from workbench.training.distributed import ALONE


def test_an_announcement_holds_the_whole_host() -> None:
    host = Host(device="cpu", threads=3, devices=2, shard=True, command=("workbench", "run"))
    told = Training.read(Training("runs/a", asdict(host), 4).write())
    assert (told.run, told.number) == ("runs/a", 4)
    assert Host(**{**told.host, "command": tuple(told.host["command"])}) == host


@pytest.mark.parametrize("text", ["0", "86401", "-1", "1.5", "soon", ""])
def test_a_wait_that_is_no_time_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(devices.TIMEOUT, raising=False)
    assert devices.seconds() == 600
    monkeypatch.setenv(devices.TIMEOUT, "86400")
    assert devices.seconds() == 86_400
    monkeypatch.setenv(devices.TIMEOUT, text)
    with pytest.raises(InputError, match=f"{devices.TIMEOUT}={text!r} is not a whole number of seconds"):
        devices.seconds()


@pytest.mark.parametrize(
    ("host", "processes", "words"),
    [
        ({"shard": True}, 1, "--shard splits a model over several devices, and there is one"),
        ({"shard": True, "devices": 2, "compile": True}, 1, "--shard does not work with --compile"),
        ({"shard": True, "devices": 2, "plain": True}, 1, "--shard does not work with --plain"),
        ({"devices": 2}, 4, "--devices 2 does not fit torchrun, which started 4 processes"),
    ],
)
def test_a_host_that_processes_cannot_share_is_refused(
    host: dict[str, Any], processes: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "launched", lambda: processes)
    with pytest.raises(InputError, match=words):
        devices.check(Host(device="cpu", **host))
    devices.check(Host(device="cpu", devices=processes))


def test_runs_that_several_devices_do_not_compute_are_refused() -> None:
    timed, lamb = resolve("nano", {"budget.seconds": 5}), resolve("nano", {"optim.kind": "lamb"})
    devices.refuse(timed, Host())
    devices.refuse(lamb, Host(devices=2))
    with pytest.raises(InputError, match="a budget in seconds is not timed over several devices"):
        devices.refuse(timed, Host(devices=2))
    with pytest.raises(InputError, match=r"optim\.kind=lamb updates whole ones; set optim.kind=adamw"):
        devices.refuse(lamb, Host(devices=2, shard=True))


def test_each_process_has_its_share_of_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "threads_for_each", lambda count: 8 // count)
    assert devices.host_of_each(Host(device="cpu", devices=4)).threads == 2
    assert devices.host_of_each(Host(device="cpu", devices=4, threads=7)).threads == 7


def test_the_ends_of_processes_are_told_with_their_last_line() -> None:
    children = [subprocess.Popen(["sh", "-c", command], text=True) for command in ("exit 0", "exit 3", "kill -9 $$")]
    errors = io.StringIO("first\n  the disk is full \n\n")
    assert devices._ends_of(children, errors, "lost") == (
        "; process 2 ended with exit code 3; process 3 ended with signal 9; the disk is full"
    )
    assert devices._ends_of([], io.StringIO("memory ran out\nworkbench: lost\n"), "lost") == "; memory ran out"
    assert devices._ends_of([], io.StringIO("workbench: lost\n"), "lost") == ""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The store of keys of a process with the number 1, which says nothing of its own."""
    made = dist.HashStore()  # type: ignore[attr-defined]
    monkeypatch.setattr(devices, "rendezvous", lambda: made)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.delenv(devices.PARENT, raising=False)
    level = devices.log.level
    yield made
    devices.log.setLevel(level)


def test_it_takes_part_in_each_training_until_the_command_is_over(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Training] = []
    monkeypatch.setattr(devices, "_take_part", lambda training, _: taken.append(training))
    announced = [Training(f"runs/{name}", {"devices": 2}, number) for number, name in enumerate("ab", start=1)]
    for training in announced:
        store.set(f"training/{training.number}", training.write())
    store.set("training/3", OVER)
    devices.follow_all()
    assert taken == announced and store.check(["ready/1"])


def test_it_ends_when_the_process_with_the_store_is_gone() -> None:
    class Gone:
        def check(self, keys: list[str]) -> bool:
            raise RuntimeError("Connection reset by peer")

    assert devices._next(Gone(), 1) is None


PAIRS = PairSet("toy", "minimal-pairs", ["a b"] * 3, ["b a"] * 3, {"paradigm": ["x"] * 3})


def test_pairs_are_shared_by_processes_that_run_already_or_have_a_gpu_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "resolved_device", lambda host: host.device)
    many, few = devices.WORTH, 3
    assert not devices.is_shared(many, Host(device="cuda"))
    assert devices.is_shared(many, Host(device="cuda", devices=2))
    assert not devices.is_shared(few, Host(device="cuda", devices=2)), "starting processes takes longer"
    assert not devices.is_shared(many, Host(device="cpu", devices=2)), "they would share the cores"
    monkeypatch.setattr(devices, "launched", lambda: 2)
    assert devices.is_shared(few, Host(device="cpu", devices=2))


@pytest.mark.parametrize("raised", [InputError("no scorer"), Diverged("a score is nan"), None])
def test_an_error_that_all_processes_raise_does_not_end_the_others(
    raised: Exception | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[str] = []

    @contextlib.contextmanager
    def together(run: RunDir, host: Host, scoring: Any) -> Iterator[str]:
        announced = json.loads(Training("a", asdict(host), 1, scoring).write())["scoring"]
        assert announced["encoder"] == "points/00000004/encoder" and TasksSpec(**announced["tasks"]) == TasksSpec()
        assert PairSet(**announced["pairs"]) == PAIRS
        yield "several"
        left.append("in order")

    monkeypatch.setattr(devices, "launched", lambda: 2)
    monkeypatch.setattr(devices, "together", together)
    with contextlib.ExitStack() as stack:
        if raised is not None:
            stack.enter_context(pytest.raises(type(raised), match=str(raised)))
        host = Host(device="cpu", devices=2)
        given = (RunDir(tmp_path), "points/00000004/encoder", PAIRS, TasksSpec(), host)
        with devices.scoring_together(*given) as ranks:
            assert ranks == "several"
            if raised is not None:
                raise raised
    assert left == ["in order"]


def test_other_measures_are_taken_by_the_first_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "launched", lambda: 2)
    rows = Examples(["a"], None, [0])
    task = Task("t", "table", ("x", "y"), "accuracy", ("accuracy",), 1.0, rows, {"dev": rows})
    with devices.scoring_together(RunDir(tmp_path), "encoder", task, TasksSpec(), Host(devices=2)) as ranks:
        assert ranks is ALONE
