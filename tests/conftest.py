"""What tests in every folder share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Examples have no time limit: on a busy machine, any of them may take longer than hypothesis's 200 ms.
settings.register_profile("workbench", deadline=None)
settings.load_profile("workbench")

# Tests compute on tiny tensors, where threads of torch only wait for one another: ten times slower on a busy machine.
# Commands that a test starts inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that need a GPU where torch has none, if they are chosen: `make gpu-check` can be rehearsed then."""
    if "gpu" not in str(config.option.markexpr).replace("not gpu", ""):
        return
    import torch

    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real corpora and GLUE files: $WORKBENCH_TEST_DATA, or ../shared/data beside the repository."""
    named = os.environ.get("WORKBENCH_TEST_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not (folder / "corpus").is_dir():
        pytest.skip(f"no real data at {folder}; set WORKBENCH_TEST_DATA to test on it")
    return folder


@pytest.fixture(scope="session", autouse=True)
def workbench_cache(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Path]:
    """A cache of the session's own. Only the built-in corpus and compiled kernels are kept from one session to the
    next, in pytest's cache: making them takes a while, and their keys cover the code that makes them."""
    cache = tmp_path_factory.mktemp("workbench-cache")
    if kept := getattr(pytestconfig, "cache", None):
        for name in ("docs", "kernels"):
            (cache / name).symlink_to(kept.mkdir(f"workbench-{name}"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_CACHE", str(cache))
        yield cache


@pytest.fixture(autouse=True)
def tiny_numbers() -> Iterator[None]:
    """Training has a process compute with tiny numbers as zeros (`cpu.prepare`), which hypothesis will not have."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)
