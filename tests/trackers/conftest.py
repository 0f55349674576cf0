"""A run whose copy goes to a tracker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import BoundRun
from workbench.store.run_store import RunDir, RunStore


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunDir]:
    """Return a new run, in a home directory without logins."""
    for name in list(os.environ):
        if name.startswith("WANDB_") or name == "NETRC":
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    yield RunStore(tmp_path / "runs").open(BoundRun(RunSpec()))
