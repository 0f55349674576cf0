"""Threads of OpenMP that spin while they wait on a quiet machine, and soon sleep where other processes need the cores.

Between two parallel parts of a step, the threads of GNU's OpenMP wait in a loop. That is fastest as long as each has a
core of its own. Beside other processes, most of the time that the scheduler gives to the run is spent in such loops:
with two threads on two cores and four busy processes, a run reached a third of its fair share (docs/log.md).

OpenMP spins for 300,000 turns, but for 1,000 if it manages more threads than there are cores. It reads its settings
once, so the only way to change between the two while a program runs is to give it more threads to manage: a second
team, which belongs to a thread of Python that computes once and then sleeps. The numbers that a run computes do not
depend on any of this.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import torch

INTERVAL = 0.5  # seconds between two measurements
MOST_WAITING = 0.1  # share of the time in which threads could run but wait for a core; more is a busy machine
TASKS = Path("/proc/self/task")

_watched: int | None = None  # the process that is watched; a fork is another one and has no threads of its parent


def share_cores() -> None:
    """Watch from now on, in a thread, whether this process must wait for cores. Does nothing for a single thread."""
    global _watched
    if sys.platform != "linux" or torch.get_num_threads() == 1 or _watched == os.getpid():
        return
    _watched = os.getpid()
    threading.Thread(target=_watch, name="workbench-cores", daemon=True).start()


def _watch() -> None:
    release: threading.Event | None = None  # set to end the second team; None if there is none
    before = waited()
    while before is not None:
        time.sleep(INTERVAL)
        now = waited()
        if now is None:
            break
        running, waiting = now[0] - before[0], now[1] - before[1]
        before = now
        if running + waiting < INTERVAL / 10:  # nothing is computed at present
            continue
        busy = waiting > MOST_WAITING * (running + waiting)
        if busy and release is None:
            release = threading.Event()
            threading.Thread(target=_second_team, args=(release,), name="workbench-team", daemon=True).start()
        elif not busy and release is not None:
            release.set()
            release = None
    if release is not None:
        release.set()


def waited() -> tuple[float, float] | None:
    """Return the seconds that the threads of this process have run, and those that they have waited for a core.

    None if Linux does not report it. Threads that have ended are missing, so a difference can be negative.
    """
    rows = []
    for task in TASKS.iterdir():
        with suppress(OSError, ValueError):  # the thread has ended
            rows.append([int(field) for field in (task / "schedstat").read_text().split()[:2]])
    return (sum(row[0] for row in rows) / 1e9, sum(row[1] for row in rows) / 1e9) if rows else None


def _second_team(release: threading.Event) -> None:
    """Make OpenMP manage more threads than there are cores until `release` is set."""
    large = torch.ones(1 << 20)  # torch sets this thread's number of threads here
    ctypes.CDLL(None).omp_set_num_threads(len(os.sched_getaffinity(0)) - torch.get_num_threads() + 2)
    large.add_(1)
    release.wait()
