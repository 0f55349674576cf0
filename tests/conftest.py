"""What tests in every folder share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Tests compute on tiny tensors, where threads of torch only wait for one another: ten times slower on a busy machine.
# Commands that a test starts inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real corpora and GLUE files: $WORKBENCH_TEST_DATA, or ../shared/data beside the repository."""
    named = os.environ.get("WORKBENCH_TEST_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not (folder / "corpus").is_dir():
        pytest.skip(f"no real data at {folder}; set WORKBENCH_TEST_DATA to test on it")
    return folder


@pytest.fixture(scope="session", autouse=True)
def workbench_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of the session's own, shared by parallel workers; the built-in corpus is extracted into it once."""
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "workbench-cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_CACHE", str(cache))
        yield cache
