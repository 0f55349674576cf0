"""What tests of reports share."""

from __future__ import annotations

from pathlib import Path

import made
import pytest
from helpers.made import LEVELS, noisy, scored, study
from made import TASKS, overtaking, published, store_of

from workbench.report import write
from workbench.store.run_store import RunStore

ARMS = ("rtd", "bert-mlm")


@pytest.fixture(scope="session")
def ledger_store(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunStore, str]:
    root = tmp_path_factory.mktemp("ledger")
    store, name = made.study(
        root / "runs", made.noisy(made.LEVELS), arms=ARMS, seeds=3, tasks=("order", "next"), budgets=(10, 20)
    )
    broken = store.get(made.spec_of("rtd", 2, {"steps": 20}).name)
    for file in ("done.json", "manifest.json"):
        (broken.path / file).unlink()
    broken.fail("diverged", "loss is nan at step 7", step=7)
    return store, name


@pytest.fixture
def with_published(tmp_path: Path) -> tuple[RunStore, str]:
    store, name = study(tmp_path / "runs", noisy(LEVELS), ("rtd", "bert-mlm"), tasks=TASKS)
    big, small = published(store, "owner/big", 3e12), published(store, "small", None, "not stated")
    for run, value in ((big, 90.0), (small, 61.0)):
        for task in TASKS:
            for seed in (0, 10, 2):
                scored(run, task, seed, value + seed, finetune={"lr": 1e-4})
    return store, name


@pytest.fixture(scope="session")
def pointed_study(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunStore, str, Path]:
    root = tmp_path_factory.mktemp("points")
    store, name = store_of(root, overtaking)
    return store, name, write(store, name, root / "report")
