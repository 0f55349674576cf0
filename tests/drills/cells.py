"""Drills on leases: cells shared by workers that are killed, stopped, without locks or with wrong clocks."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import LeaseHeld, LeaseLost
from workbench.store import lease as leases
from workbench.store import owner
from workbench.store.atomic import write_atomic
from workbench.store.lease import Lease, acquire
from workbench.store.owner import process

BEAT, GRACE = 0.05, 0.4
LATE, LONG_GRACE = 0.5, 1.5  # seconds; LATE stands for the attribute cache of a network disk


def take(folder: Path, **options: Any) -> Lease:
    return acquire(folder, **({"beat": BEAT, "grace": GRACE} | options))


def work(root: Path, cells: int, seed: int, pause: float) -> None:
    """Carry out every cell that nobody owns, until all are done. What `log` says twice was done twice."""
    draw = random.Random(seed)
    me = os.open(root / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    order = list(range(cells))
    draw.shuffle(order)
    while not all((root / str(cell) / "done").exists() for cell in order):
        for cell in order:
            folder = root / str(cell)
            if (folder / "done").exists():
                continue
            with contextlib.suppress(LeaseHeld):
                lease = take(folder, patience=0)
                try:
                    if not (folder / "done").exists():
                        os.write(me, f"begin {cell}\n".encode())
                        time.sleep(draw.uniform(0, 2 * pause))
                        write_atomic(folder / "done", str(os.getpid()).encode(), lease.stage, lease.check)
                        os.write(me, f"end {cell}\n".encode())
                finally:
                    lease.release()


@dataclass(frozen=True)
class Swept:
    """How often each cell was begun and ended, what lies in their folders afterwards, and how many were killed."""

    begun: Counter[str]
    ended: Counter[str]
    left: list[str]
    killed: int


def sweep(
    root: Path, cells: int, workers: int = 8, kills: int = 0, pause: float = 0.005,
    prepare: Callable[[int], None] = lambda number: None,
) -> Swept:  # fmt: skip
    """Workers on the same cells; `kills` of them die at random instants, and others take their place.

    `prepare` is called in each worker with its number.
    """
    for cell in range(cells):
        (root / str(cell)).mkdir(parents=True)
    draw = random.Random(cells)
    running: list[int] = []
    started = killed = 0
    while True:
        while len(running) < workers and not all((root / str(cell) / "done").exists() for cell in range(cells)):
            started += 1
            pid = os.fork()
            if not pid:
                try:
                    prepare(started)
                    work(root, cells, started, pause)
                finally:
                    os._exit(0 if sys.exc_info()[0] is None else 1)
            running.append(pid)
        if kills and running:
            time.sleep(draw.uniform(0, 0.01))
            os.kill(draw.choice(running), signal.SIGKILL)
            kills, killed = kills - 1, killed + 1
        running = [pid for pid in running if os.waitpid(pid, os.WNOHANG)[0] == 0]
        if not running:
            break
        time.sleep(0.005)
    lines = (root / "log").read_text().splitlines()
    return Swept(
        Counter(line.split()[1] for line in lines if line.startswith("begin")),
        Counter(line.split()[1] for line in lines if line.startswith("end")),
        sorted({name for cell in range(cells) for name in os.listdir(root / str(cell))}),
        killed,
    )


def exactly_once(folder: Path, count: int) -> str:
    """Goal 7: 8 workers on 80 cells, `count` times."""
    for number in range(count):
        found = sweep(folder / str(number), cells=80)
        once = Counter({str(cell): 1 for cell in range(80)})
        assert found.begun == once and found.ended == once and found.left == ["done"], found
    return f"{80 * count} of {80 * count} cells carried out exactly once by 8 workers"


def killed_workers(folder: Path, count: int) -> str:
    """Goal 8: two kills a cell; all are finished, none is recorded twice."""
    found = sweep(folder, cells=count, kills=2 * count, pause=0.2)
    assert found.killed >= count and set(found.begun) == {str(cell) for cell in range(count)}
    assert max(found.ended.values()) == 1, found.ended
    assert sum(found.begun.values()) > count, "no kill hit work"
    assert all((folder / str(cell) / "done").exists() for cell in range(count))
    return f"{found.killed} kills over {count} cells: all finished, 0 recorded twice"


def paused_owners(folder: Path, count: int) -> str:
    """Goal 9: stopped past its lease and continued, an owner writes nothing more."""
    for number in range(count):
        here = folder / str(number)
        here.mkdir()
        reader, writer = os.pipe()
        sleeper = os.fork()
        if not sleeper:
            mine = acquire(here, beat=BEAT)
            beats = 0
            while True:
                try:
                    mine.check()
                    write_atomic(here / "done.json", str(beats).encode(), mine.stage, mine.check)
                except LeaseLost:
                    os._exit(7)
                except FileNotFoundError:  # between the last look and the rename, which then had no source
                    os._exit(8)
                except BaseException:
                    os._exit(1)
                beats += 1
                os.write(writer, b".")
        os.read(reader, 1)
        time.sleep(random.Random(number).uniform(0, 0.05))
        os.kill(sleeper, signal.SIGSTOP)
        while (process(sleeper) or "?")[0] != "T":
            time.sleep(0.001)
        begun = time.monotonic()
        lease = take(here)
        assert time.monotonic() - begun >= GRACE - 0.1, "stopped is not dead"
        write_atomic(here / "done.json", b"new", lease.stage, lease.check)
        os.kill(sleeper, signal.SIGCONT)
        code = os.waitstatus_to_exitcode(os.waitpid(sleeper, 0)[1])
        assert code in (7, 8), code
        assert (here / "done.json").read_bytes() == b"new", "a late write was accepted"
        lease.check()
        lease.release()
        assert os.listdir(here) == ["done.json"]
        os.close(reader)
        os.close(writer)
    return f"0 of {count} late writes accepted"


def mislead(number: int) -> None:
    """Let this process be on a machine of its own, whose clock is up to an hour off."""
    off, real, utime = random.Random(number).uniform(-3600, 3600), time.time, os.utime
    time.time = lambda: real() + off  # type: ignore[assignment]
    os.utime = lambda file, times=None: utime(file, times or (time.time(), time.time()))  # type: ignore[assignment]
    owner.machine.cache_clear()
    for module in (owner, leases):
        module.machine = lambda: f"machine {number}"  # type: ignore[attr-defined]


def see_late(number: int) -> None:
    """Let this process read leases as from a network disk: for LATE seconds as before, unless it changes a folder."""
    global GRACE
    GRACE = LONG_GRACE
    real, link, rename, seen = owner.read, os.link, os.rename, dict[Path, tuple[float, Any]]()

    def read(folder: Path) -> Any:
        if folder not in seen or time.monotonic() - seen[folder][0] > LATE:
            seen[folder] = time.monotonic(), real(folder)
        return seen[folder][1]

    def own(change: Callable[..., None]) -> Callable[..., None]:
        def changed(*given: Any, **more: Any) -> None:
            seen.clear()
            change(*given, **more)

        return changed

    os.link, os.rename = own(link), own(rename)
    for module in (owner, leases):
        module.read = read  # type: ignore[attr-defined]
    mislead(number)


def late_caches(folder: Path, count: int) -> str:
    """Goal 10: workers of several machines with wrong clocks, and what they see of a lease is old; kills among them.

    Cells take up to 1.8 s, so an owner whose heartbeat were not seen for that long would lose its lease.
    """
    cells = 10 if count > 1 else 4  # among other tests
    for number in range(count):
        found = sweep(folder / str(number), cells=cells, workers=4, pause=0.9, prepare=see_late)
        once = Counter({str(cell): 1 for cell in range(cells)})
        assert found.begun == once and found.ended == once, found
        kills = cells // 2
        found = sweep(folder / f"killed {number}", cells=cells, workers=4, kills=kills, pause=0.9, prepare=see_late)
        assert set(found.begun) == set(once) and max(found.ended.values()) == 1, found
        assert all((folder / f"killed {number}" / cell / "done").exists() for cell in once)
    swept = f"{2 * count} of {2 * count} sweeps of {cells} cells by 4 machines"
    return f"{swept}, half of them with kills: nothing recorded twice"


def wrong_clocks(folder: Path, count: int) -> str:
    """Goal 10: workers of several machines, their clocks up to an hour off; nothing is done twice."""
    for number in range(count):
        found = sweep(folder / str(number), cells=10, workers=4, pause=0.05, prepare=mislead)
        once = Counter({str(cell): 1 for cell in range(10)})
        assert found.begun == once and found.ended == once, found
    return f"{count} of {count} sweeps of 10 cells by 4 machines: no lease stolen"


def without_locks(folder: Path, count: int) -> str:
    """Goal 11: where every POSIX lock fails, 8 workers still carry out each cell once."""
    import fcntl

    def refuse(*given: object) -> None:
        raise OSError(37, "No locks available")

    def unlocked(number: int) -> None:
        fcntl.flock = fcntl.lockf = refuse  # type: ignore[assignment]

    found = sweep(folder, cells=count, prepare=unlocked)
    once = Counter({str(cell): 1 for cell in range(count)})
    assert found.begun == once and found.ended == once and found.left == ["done"], found
    return f"{count} of {count} cells carried out exactly once with every lock refused"
