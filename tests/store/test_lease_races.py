"""What other processes and failing disks do between two steps of a lease, one by one, on a clock that tests turn."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import LeaseHeld, LeaseLost
from workbench.store import lease as leases
from workbench.store import owner
from workbench.store.atomic import dumps
from workbench.store.lease import Lease, acquire
from workbench.store.owner import machine, process, read

GONE = {"machine": machine(), "pid": 2**22 + 1}  # an owner on this machine that has died
START = 1000.0  # what the clock shows when a test begins


class Clock:
    """Stands for the module `time`: only sleeping makes it go on, and nobody may look at it without end."""

    def __init__(self) -> None:
        self.now, self.looks = START, 0
        self.during_sleep: Callable[[], object] = lambda: None

    @property
    def elapsed(self) -> float:
        return self.now - START

    def monotonic(self) -> float:
        self.looks += 1
        assert self.looks < 2000, "an endless loop"
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.looks += 1
        assert self.looks < 2000, "an endless loop"
        self.now += seconds
        self.during_sleep()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(leases, "time", made)
    monkeypatch.setattr(owner, "time", made)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "cell"
    made.mkdir()
    return made


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def content(**changes: Any) -> str:
    """A lease as another process writes it; that of a live process of this machine, unless changed."""
    me = process(os.getpid())
    assert me is not None
    found = {"format": 1, "owner": "abc123", "host": "far", "pid": os.getpid(), "started": me[1], "machine": machine()}
    return dumps(found | {"beat": 1.0} | changes)


def leave(folder: Path, stage: bool = True, **changes: Any) -> None:
    """Write another process's lease into a folder."""
    (folder / "lease").write_text(content(**changes))
    if stage:
        (folder / ".tmp-abc123").mkdir()


def before(patch: pytest.MonkeyPatch, name: str, happens: Callable[..., object], when: str = "") -> None:
    """Once, just before `os.NAME` touches a path that holds `when`, let something happen."""
    real, left = getattr(os, name), [happens]

    def instead(*paths: Any, **options: Any) -> Any:
        if left and any(when in str(path) for path in paths):
            left.pop()(*paths)
        return real(*paths, **options)

    patch.setattr(os, name, instead)


def failing(code: int) -> Callable[..., None]:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def owns(lease: Lease) -> None:
    """The lease is in order, and nothing but it lies in its folder."""
    lease.check()
    assert names(lease.folder) == [lease.stage.name, "lease"]
    lease.release()
    assert names(lease.folder) == []


# -- what a lease says


def test_a_lease_says_whose_it_is(folder: Path) -> None:
    umask = os.umask(0)
    try:
        lease = acquire(folder, beat=7.5)
    finally:
        os.umask(umask)
    me = process(os.getpid())
    assert me is not None
    assert json.loads((folder / "lease").read_text()) == {
        "format": 1,
        "owner": lease.token,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": me[1],
        "machine": machine(),
        "beat": 7.5,
    }
    assert stat.S_IMODE((folder / "lease").stat().st_mode) == 0o644, "others may read it, and only its owner writes"
    assert lease._thread.daemon, "a process that ends without giving back must not wait for its heartbeat"
    owns(lease)


def test_a_process_that_cannot_look_at_itself_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "process", lambda pid: None)
    lease = acquire(folder)
    assert json.loads((folder / "lease").read_text())["started"] == "?"
    owns(lease)


# -- giving back


def test_giving_back_never_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that refuses everything: nothing is raised, and nothing may be written afterwards."""
    lease = acquire(folder)
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", failing(errno.EIO))
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        lease.release()
    assert lease.stage.is_dir()
    with pytest.raises(LeaseLost):
        lease.check()


@pytest.mark.parametrize("end", [Lease.release, lambda lease: lease.carry(lease.folder.with_name("new"))])
def test_giving_back_and_moving_do_not_wait_for_a_heartbeat_that_hangs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, end: Callable[[Lease], None]
) -> None:
    lease = acquire(folder)
    waited: list[float | None] = []
    join = threading.Thread.join
    monkeypatch.setattr(threading.Thread, "join", lambda self, timeout=None: waited.append(timeout) or join(self, 0))
    end(lease)
    assert len(waited) == 1 and waited[0] is not None and 0 < waited[0] < 60
    lease._drop()


# -- moving the folder


@pytest.mark.parametrize("started", [True, False])
def test_a_folder_takes_its_lease_along(folder: Path, started: bool) -> None:
    """Also before the heartbeat has begun. It ends before the folder is renamed."""
    target, lease = folder.with_name("new"), acquire(folder, beat=600.0) if started else Lease(folder)
    assert started or lease._claim()
    lease.carry(target)
    assert not lease._thread.is_alive() and lease._stop.is_set() and not folder.exists()
    assert lease.folder == target and lease.stage.parent == target
    owns(lease)


def test_a_folder_whose_lease_is_lost_stays(folder: Path) -> None:
    lease = acquire(folder)
    (folder / "lease").write_text(content())
    with pytest.raises(LeaseLost):
        lease.carry(folder.with_name("new"))
    assert names(folder.parent) == ["cell"] and (folder / "lease").read_text() == content()
    lease.release()


def test_a_move_that_fails_names_where_it_went_and_leaves_the_lease(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = acquire(folder)
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", failing(errno.ENOSPC))
        with pytest.raises(OSError, match=r" bytes are needed and .*/new'$"):
            lease.carry(folder.with_name("new"))
    owns(lease)


# -- the heartbeat


class Ticks:
    """Stands for the event that ends a heartbeat: so many beats, and what happens before each of them."""

    def __init__(self, *happens: Callable[[], object]) -> None:
        self.left, self.beats = list(happens), []  # type: ignore[var-annotated]

    def wait(self, beat: float) -> bool:
        self.beats.append(beat)
        assert self.left, "the heartbeat did not end"
        self.left.pop(0)()
        return False


def test_a_heartbeat_outlives_a_failing_disk_and_ends_with_the_lease(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(folder, beat=2.5)
    assert lease._claim()
    touched: list[int] = []

    def touch(file: int) -> None:
        touched.append(file)
        assert len(touched) < 9, "it beats without waiting"
        if len(touched) == 1:
            raise OSError(errno.EIO, "the disk is away for a moment")

    monkeypatch.setattr(os, "utime", touch)
    lease._stop = Ticks(lambda: None, lambda: None, (folder / "lease").unlink)  # type: ignore[assignment]
    lease._live()
    assert lease._stop.beats == [2.5] * 3  # type: ignore[attr-defined]
    assert touched == [lease._file] * 3 and lease.lost


# -- claiming a folder without a lease


def test_another_was_faster_to_claim(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before(monkeypatch, "link", lambda *_: leave(folder))
    with pytest.raises(LeaseHeld):
        acquire(folder)
    assert names(folder) == [".tmp-abc123", "lease"] and (folder / "lease").read_text() == content()


def test_another_was_faster_where_there_are_no_hard_links(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        leave(folder)
        raise OSError(errno.EOPNOTSUPP, "no hard links here")

    closed: list[int] = []
    close = os.close
    monkeypatch.setattr(os, "close", lambda file: closed.append(file) or (close(file) if file > 2 else None))
    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(LeaseHeld):
        acquire(folder)
    assert (folder / "lease").read_text() == content()
    assert all(file > 2 for file in closed)


@pytest.mark.parametrize("beat", [0.125, 10.0])
def test_an_owner_came_and_went_before_our_link(
    folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, beat: float
) -> None:
    before(monkeypatch, "link", lambda draft, lease: shutil.rmtree(draft.parent))
    lease = acquire(folder, beat=beat)
    assert 0 < clock.elapsed <= 0.05, "tried again after a moment"
    owns(lease)


def linked(then: Callable[[Path, Path], object]) -> Callable[[Path, Path], None]:
    """`os.link` after which something happens, the first time."""
    real, left = os.link, [then]

    def link(draft: Path, lease: Path) -> None:
        real(draft, lease)
        if left:
            left.pop()(draft, lease)

    return link


def test_an_owner_came_and_went_after_our_link(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It swept our staging folder away: the lease without it is of no use, and is removed."""
    monkeypatch.setattr(os, "link", linked(lambda draft, lease: shutil.rmtree(draft.parent)))
    owns(acquire(folder))


@pytest.mark.parametrize("when", ["before we look", "after we looked"])
def test_an_owner_took_our_lease_away_too(folder: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    def sweep(draft: Path, lease: Path) -> None:
        shutil.rmtree(draft.parent)
        if when == "before we look":
            lease.unlink()
            return

        def look(folder: Path) -> Any:
            monkeypatch.setattr(leases, "read", read)
            found = read(folder)
            lease.unlink()
            return found

        monkeypatch.setattr(leases, "read", look)

    monkeypatch.setattr(os, "link", linked(sweep))
    owns(acquire(folder))


def test_an_owner_that_swept_us_away_keeps_its_lease(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(draft: Path, lease: Path) -> None:
        shutil.rmtree(draft.parent)
        leave(folder)

    monkeypatch.setattr(os, "link", linked(replace))
    with pytest.raises(LeaseHeld):
        acquire(folder)
    assert (folder / "lease").read_text() == content()


def test_a_network_disk_that_linked_and_says_it_did_not(
    folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It carried the link out, lost its own answer, tried again and found the lease there."""
    monkeypatch.setattr(os, "link", linked(failing(errno.EEXIST)))
    lease = acquire(folder)
    assert clock.elapsed == 0 and os.listdir(lease.stage) == []
    owns(lease)


def test_a_lease_that_was_in_the_way_and_is_gone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before(monkeypatch, "link", failing(errno.EEXIST))
    owns(acquire(folder))


def test_a_folder_that_vanishes_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before(monkeypatch, "link", lambda *_: shutil.rmtree(folder))
    with pytest.raises(FileNotFoundError):
        acquire(folder)


def test_a_disk_that_fails_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        acquire(folder)


@pytest.mark.parametrize("swept", [False, True])
def test_a_full_disk_is_told_with_the_path(folder: Path, monkeypatch: pytest.MonkeyPatch, swept: bool) -> None:
    """Also where somebody swept the half-written lease away meanwhile."""

    def write(file: int, data: bytes) -> int:
        if swept:
            shutil.rmtree(next(folder.glob(".tmp-*")))
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(OSError, match=rf"device: \d+ bytes are needed and .*{folder}/lease'"):
            acquire(folder)
    assert not list(folder.iterdir())


# -- taking over from the dead


def test_the_dead_are_replaced_in_one_step(folder: Path, clock: Clock) -> None:
    leave(folder, **GONE)
    (folder / ".tmp-abc123" / "half").write_text("x")
    lease = acquire(folder, patience=0)
    assert clock.elapsed == 0
    owns(lease)


def test_a_lease_that_vanishes_during_takeover_is_made_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(folder, **GONE)
    before(monkeypatch, "rename", lambda *_: (folder / "lease").unlink(), when=".tmp-abc123")
    owns(acquire(folder))


def test_another_took_over_and_its_lease_is_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(folder, **GONE)
    newer = content(owner="new1")
    before(monkeypatch, "rename", lambda *_: (folder / "lease").write_text(newer), when=".tmp-abc123")
    with pytest.raises(LeaseHeld):
        acquire(folder)
    assert (folder / "lease").read_text() == newer


def test_a_faster_taker_is_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(folder, **GONE)

    def take(*_: Any) -> None:
        (folder / ".tmp-abc123").rmdir()
        (folder / ".tmp-new1").mkdir()
        (folder / "lease").write_text(content(owner="new1"))

    before(monkeypatch, "rename", take, when=".tmp-abc123")
    with pytest.raises(LeaseHeld):
        acquire(folder)
    assert names(folder) == [".tmp-new1", "lease"]


def test_a_folder_that_vanishes_during_takeover_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(folder, **GONE)
    before(monkeypatch, "rename", lambda *_: shutil.rmtree(folder), when=".tmp-abc123")
    with pytest.raises(FileNotFoundError):
        acquire(folder)


# -- a lease whose staging folder is gone


@pytest.mark.parametrize(
    ("changes", "grace", "limit"),
    [
        (GONE, 60.0, 5.0),  # a taker may be at work: five seconds are given to it
        (GONE, 0.125, 0.15625),  # no longer than silence would take: five beats of 1/32 s
        ({"machine": "x"}, 16.0, 16.0),  # of another machine: only silence tells
    ],
)
def test_how_long_a_lease_without_staging_folder_is_left_alone(
    folder: Path, clock: Clock, changes: dict[str, Any], grace: float, limit: float
) -> None:
    leave(folder, stage=False, beat=1 / 32, **changes)
    lease = acquire(folder, patience=1000.0, beat=0.125, grace=grace)
    assert clock.elapsed == limit
    owns(lease)


def test_a_long_beat_does_not_make_anyone_wait_longer(folder: Path, clock: Clock) -> None:
    leave(folder, stage=False, **GONE)
    lease = acquire(folder)
    assert 5.0 <= clock.elapsed <= 5.05
    owns(lease)


def test_a_slow_taker_is_stopped_before_the_lease_is_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(folder, stage=False, **GONE)
    (folder / ".tmp-slow").mkdir()
    seen: list[list[str]] = []
    before(monkeypatch, "rename", lambda *_: seen.append(names(folder)), when=str(folder / "lease"))
    owns(acquire(folder))
    assert seen == [["lease"]]


def test_a_lease_that_another_removed_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(folder, stage=False, **GONE)
    before(monkeypatch, "rename", lambda *_: (folder / "lease").unlink(), when=str(folder / "lease"))
    owns(acquire(folder))


@pytest.mark.parametrize("again", [False, True])
def test_a_newer_lease_is_put_back(folder: Path, monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    """Somebody made one between our look and our rename; and perhaps another one after it."""
    leave(folder, stage=False, **GONE)
    newer, newest = content(owner="new1"), content(owner="new2")
    before(monkeypatch, "rename", lambda *_: (folder / "lease").write_text(newer), when=str(folder / "lease"))
    if again:
        before(monkeypatch, "link", lambda *_: (folder / "lease").write_text(newest))
    with pytest.raises(LeaseHeld):
        acquire(folder)
    assert (folder / "lease").read_text() == (newest if again else newer)
    assert names(folder) == ["lease"]


# -- waiting


def test_an_owner_is_gone_after_exactly_its_time(folder: Path, clock: Clock) -> None:
    leave(folder, machine="x", beat=1.0)
    lease = acquire(folder, beat=1.0, grace=3.0)
    assert clock.elapsed == 5.0, "five beats of the owner are more than the grace given"
    owns(lease)


@pytest.mark.parametrize(("beat", "patience"), [(1.0, 0.25), (10.0, 0.5)])
def test_patience_is_kept_to(folder: Path, clock: Clock, beat: float, patience: float) -> None:
    """Also with an owner that is known to live: it may give back."""
    leave(folder)
    with pytest.raises(LeaseHeld, match=r"on far; .* taken over after 60 seconds without a heartbeat"):
        acquire(folder, patience=patience, beat=beat)
    assert clock.elapsed == patience


def test_a_live_owner_is_known_at_once(folder: Path, clock: Clock) -> None:
    leave(folder)
    with pytest.raises(LeaseHeld):
        acquire(folder)
    assert clock.elapsed == 0


def test_a_heartbeat_is_enough_to_know(folder: Path, clock: Clock) -> None:
    leave(folder, machine="x")

    def beat() -> None:
        if clock.elapsed == 3.0:
            os.utime(folder / "lease", (5, 5))

    clock.during_sleep = beat
    with pytest.raises(LeaseHeld):
        acquire(folder)
    assert clock.elapsed == 3.0


@pytest.mark.parametrize("hours", [-1.0, 1.0, -24 * 400.0])
def test_a_heartbeat_by_a_wrong_clock_keeps_a_lease(folder: Path, clock: Clock, hours: float) -> None:
    """A silent owner loses its lease after the same time as any other."""
    leave(folder, machine="x")
    clock.during_sleep = lambda: os.utime(folder / "lease", (clock.now + hours * 3600,) * 2)
    with pytest.raises(LeaseHeld):
        acquire(folder, patience=100.0)
    clock.during_sleep = lambda: None
    silent = clock.elapsed
    lease = acquire(folder, patience=1000.0)
    assert clock.elapsed - silent == 60.0
    owns(lease)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\0", b"[]", b'{"owner": 3}', b'{"owner": "../x", "beat": "y"}'])
def test_a_damaged_lease_is_waited_out(folder: Path, clock: Clock, content: bytes) -> None:
    (folder / "lease").write_bytes(content)
    with pytest.raises(LeaseHeld, match=r"process \? on an unknown host"):
        acquire(folder, patience=0)
    lease = acquire(folder)
    assert clock.elapsed == 60.0
    owns(lease)
