"""What a process that is not the first waits for, and how it ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch.distributed as dist

from workbench.execution.several_devices import followers
from workbench.execution.several_devices.devices import OVER, Training


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The store of keys of a process with the number 1, which says nothing of its own."""
    made = dist.HashStore()  # type: ignore[attr-defined]
    monkeypatch.setattr(followers, "_store_of_follower", lambda: made)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.delenv(followers.PARENT, raising=False)
    level = followers.log.level
    yield made
    followers.log.setLevel(level)


def test_it_takes_part_in_each_training_until_the_command_is_over(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Training] = []
    monkeypatch.setattr(followers, "_take_part", lambda training, _: taken.append(training))
    announced = [Training(f"runs/{name}", {"devices": 2}, number) for number, name in enumerate("ab", start=1)]
    for training in announced:
        store.set(f"training/{training.number}", training.write())
    store.set("training/3", OVER)
    followers.follow_all()
    assert taken == announced and store.check(["ready/1"])


def test_it_ends_when_the_process_with_the_store_is_gone() -> None:
    class Gone:
        def check(self, keys: list[str]) -> bool:
            raise RuntimeError("Connection reset by peer")

    assert followers._next(Gone(), 1) is None


@pytest.mark.parametrize("scoring", [None, {"encoder": "encoder"}])
def test_it_trains_or_scores_as_announced(scoring: Any, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.training import devices

    done: list[str] = []

    class Store:
        def __init__(self, folder: Any) -> None: ...

        def get(self, name: str) -> str:
            return name

    @contextlib.contextmanager
    def group(*_: Any) -> Any:
        yield "processes"

    monkeypatch.setattr(followers, "RunStore", Store)
    monkeypatch.setattr(devices, "group", group)
    monkeypatch.setattr(devices, "part_of", lambda *_: None)
    monkeypatch.setattr(followers, "_following", lambda run, host: lambda group: done.append(f"trains {run}"))
    monkeypatch.setattr(
        followers, "part_of_scoring", lambda run, host, given: lambda group: done.append(f"scores {run}")
    )
    followers._take_part(Training("runs/a", {"devices": 2, "device": "cpu"}, 1, scoring), store)
    assert done == ["trains a" if scoring is None else "scores a"]
