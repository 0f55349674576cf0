"""`workbench doctor`: its facts about a machine, and which of them count as problems."""

from __future__ import annotations

import socket
from collections import namedtuple
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch

from workbench.bench import machine
from workbench.bench.machine import Check, checks
from workbench.cpu import compiled


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def found() -> dict[str, Check]:
    return {check.what: check for check in checks()}


def test_it_says_what_is_installed() -> None:
    facts = found()
    for name in machine.NEEDED:
        assert facts[name] == Check(name, "ok", metadata.version(name))
    assert "HF_HUB_OFFLINE" in facts["hub"].found
    assert facts["kernels"].state == ("ok" if compiled.available(torch.float32) else "missing")
    assert "bf16" in facts["arithmetic"].found or "fp32" in facts["arithmetic"].found


def test_a_package_that_is_missing_is_a_problem_where_commands_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    facts = found()
    assert facts["torch"].state == "problem" and "pip install" in facts["torch"].found
    assert facts["wandb"].state == "missing" and "--track wandb" in facts["wandb"].found


def test_a_missing_compiler_and_a_full_disk_are_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "/nonexistent/cc")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "not" / "yet"))
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: usage(10, 9, 1 << 20))
    facts = found()
    assert facts["C compiler"].state == "missing" and "/nonexistent/cc" in facts["C compiler"].found
    assert facts["cache"].state == "missing" and facts["cache"].found.endswith("not/yet: 0.0 GiB free")


def test_a_cache_that_cannot_be_made_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", "/proc/nowhere")
    assert found()["cache"].state == "problem"


@pytest.mark.parametrize("answers", [True, False])
def test_the_hub_is_asked_once_and_not_waited_for(answers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def connect(place: Any, timeout: float) -> socket.socket:
        asked.append((place, timeout))
        if not answers:
            raise TimeoutError("timed out")
        return socket.socket()

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(socket, "create_connection", connect)
    assert found()["hub"].state == ("ok" if answers else "missing")
    assert asked == [(machine.HUB, 3)]


@pytest.mark.parametrize(("setting", "state"), [("off", "missing"), ("sideways", "problem")])
def test_kernels_that_are_switched_off_are_said(setting: str, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.SETTING, setting)
    compiled._library.cache_clear()
    try:
        check = found()["kernels"]
        assert check.state == state and compiled.SETTING in check.found
    finally:
        monkeypatch.delenv(compiled.SETTING)
        compiled._library.cache_clear()
