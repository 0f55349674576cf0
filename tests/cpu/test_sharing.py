"""Waiting threads that give way to other processes: when it begins, when it ends, and what Linux tells of waiting."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from workbench import cpu

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells how long threads wait for a core")
TEAM, WATCH = "workbench-team", "workbench-cores"


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    with monkeypatch.context() as context:  # an earlier test of this process may have left a watch, which ends so
        context.setattr(cpu, "waited", lambda: None)
        assert within_seconds(lambda: not running(WATCH) and not running(TEAM))
    torch.set_num_threads(2)
    monkeypatch.setattr(cpu, "_watched", None)
    monkeypatch.setattr(cpu, "INTERVAL", 0.01)
    yield
    torch.set_num_threads(threads)


def running(name: str) -> bool:
    return any(thread.name == name for thread in threading.enumerate())


def within_seconds(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_a_second_team_stands_by_while_threads_wait_for_cores(
    two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    share, clock = [0.0], [0.0, 0.0]

    def scripted() -> tuple[float, float] | None:
        if share[0] < 0:
            return None  # ends the watch
        clock[0], clock[1] = clock[0] + 1 - share[0], clock[1] + share[0]
        return clock[0], clock[1]

    monkeypatch.setattr(cpu, "waited", scripted)
    cpu.share_cores()
    cpu.share_cores()
    assert [thread.name for thread in threading.enumerate()].count(WATCH) == 1
    time.sleep(0.2)
    assert not running(TEAM)
    share[0] = 0.5
    assert within_seconds(lambda: running(TEAM))
    share[0] = 0.02
    assert within_seconds(lambda: not running(TEAM))
    share[0] = 0.5
    assert within_seconds(lambda: running(TEAM))
    share[0] = -1.0  # a second team ends with the watch that began it
    assert within_seconds(lambda: not running(WATCH) and not running(TEAM))


def test_a_single_thread_is_not_watched(two_threads: None) -> None:
    torch.set_num_threads(1)
    cpu.share_cores()
    assert not running(WATCH)


def test_the_time_of_all_threads_is_counted() -> None:
    def compute() -> None:
        end = time.thread_time() + 0.1
        while time.thread_time() < end:
            pass
        done.wait(30)

    done = threading.Event()
    before = cpu.waited()
    workers = [threading.Thread(target=compute) for _ in range(2)]
    for worker in workers:
        worker.start()
    assert before is not None
    start = before[0]
    assert within_seconds(lambda: (cpu.waited() or before)[0] - start >= 0.2)
    done.set()


def test_two_threads_on_one_core_wait_for_it() -> None:
    """Two threads that compute at the same time, bound to one core, wait about half of the time."""
    cores = os.sched_getaffinity(0)
    before = cpu.waited()
    os.sched_setaffinity(0, {min(cores)})
    try:
        large = torch.ones(400, 400)
        workers = [threading.Thread(target=lambda: [large @ large for _ in range(200)]) for _ in range(2)]
        for worker in workers:
            worker.start()
        now = cpu.waited()
        while any(worker.is_alive() for worker in workers):
            time.sleep(0.01)
            now = cpu.waited() if all(worker.is_alive() for worker in workers) else now
    finally:
        os.sched_setaffinity(0, cores)
    assert before is not None and now is not None
    assert now[1] - before[1] > cpu.MOST_WAITING * (sum(now) - sum(before))
