"""Processes of one run on several devices: what they are told, and hosts that they cannot have."""

from __future__ import annotations

import io
import subprocess
from dataclasses import asdict
from typing import Any

import pytest

from workbench.errors import InputError
from workbench.execution.several_devices import devices
from workbench.execution.several_devices.devices import Training
from workbench.spec.host import Host
from workbench.spec.presets import resolve


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
    alone = Host(device="cpu")
    assert devices.host_of_each(alone) is alone


def test_the_ends_of_processes_are_told_with_their_last_line() -> None:
    children = [subprocess.Popen(["sh", "-c", command], text=True) for command in ("exit 0", "exit 3", "kill -9 $$")]
    errors = io.StringIO("first\n  the disk is full \n\n")
    assert devices._ends_of(children, errors, "lost") == (
        "; process 2 ended with exit code 3; process 3 ended with signal 9; the disk is full"
    )
    assert devices._ends_of([], io.StringIO("memory ran out\nworkbench: lost\n"), "lost") == "; memory ran out"
    assert devices._ends_of([], io.StringIO("workbench: lost\n"), "lost") == ""
