"""What tests of the store share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from written_runs import begun, finished

from workbench.store.run_store import RunStore


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """An empty store."""
    return RunStore(tmp_path / "runs")


@pytest.fixture(scope="session")
def four_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store with three finished runs and one that is not, for copies."""
    store = RunStore(tmp_path_factory.mktemp("four") / "runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        for seed in range(3):
            finished(store, seed)
        begun(store, 3)
    return store.root
