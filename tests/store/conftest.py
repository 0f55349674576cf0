"""What tests of the store share."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.store.run_store import RunStore


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """An empty store."""
    return RunStore(tmp_path / "runs")
