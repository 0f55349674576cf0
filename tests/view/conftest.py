"""What tests of `workbench view` share: a small study, and a client that has been let in."""

from __future__ import annotations

from pathlib import Path

import made
import pytest
from starlette.testclient import TestClient

from workbench.store.run_store import RunStore
from workbench.view.server import Guard, application
from workbench.view.watched import Watched

TOKEN = "the-token"
HOST = "http://127.0.0.1:8642"
ARMS = ("rtd", "bert-mlm")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that tests do not change: two arms, three seeds; one run has diverged and one is not finished."""
    root = tmp_path_factory.mktemp("view") / "runs"
    store, _ = made.study(root, made.noisy(made.LEVELS), arms=ARMS, seeds=4, tasks=("order", "next"), tunings=1)
    made.unfinish(store.get(made.spec_of("rtd", 3, {"steps": 60}).name))
    broken = store.get(made.spec_of("bert-mlm", 3, {"steps": 60}).name)
    made.unfinish(broken)
    broken.fail("diverged", "loss is nan at step 7", step=7, trace="Traceback: it went up")
    return root


def looked(root: Path) -> Watched:
    watched = Watched(RunStore.existing(root))
    while not watched.complete:
        watched.look()
    return watched


def client_of(watched: Watched, let_in: bool = True, guard: Guard | None = None) -> TestClient:
    guard = guard or Guard("127.0.0.1", 8642, TOKEN)
    client = TestClient(application(watched, guard), base_url=HOST)
    if let_in:
        assert client.get(f"/?token={TOKEN}").status_code == 200
    return client


@pytest.fixture
def watched(finished: Path) -> Watched:
    return looked(finished)


@pytest.fixture
def client(watched: Watched) -> TestClient:
    return client_of(watched)
