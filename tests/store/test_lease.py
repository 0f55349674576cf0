"""One owner at a time, whoever dies, sleeps or disagrees about the time; and whether an owner is running."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drills.cells import BEAT, GRACE, take

from workbench.errors import LeaseHeld, LeaseLost
from workbench.store import owner
from workbench.store.atomic import dumps, write_atomic
from workbench.store.lease import Lease
from workbench.store.owner import alive, fate, machine, process, read


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def from_elsewhere(lease: Lease) -> None:
    """Make others judge this process's lease as if it were another machine's."""
    content = json.loads((lease.folder / "lease").read_text())
    os.pwrite(lease._file, dumps(content | {"machine": "x" * len(machine())}).encode(), 0)


def pretend(folder: Path, stage: bool = True, **changes: Any) -> None:
    """The lease of an owner that this process knows nothing good about: another machine's, unless changed."""
    content = {"format": 1, "owner": "abc123", "host": "far", "pid": 1, "started": "1", "machine": "x", "beat": BEAT}
    (folder / "lease").write_text(dumps(content | changes))
    if stage:
        (folder / ".tmp-abc123").mkdir()


# -- one owner


def test_held_and_given_back(tmp_path: Path) -> None:
    lease = take(tmp_path)
    assert names(tmp_path) == [lease.stage.name, "lease"] and alive(tmp_path)
    lease.check()
    with pytest.raises(LeaseHeld, match=f"process {os.getpid()} on ") as caught:
        take(tmp_path, patience=0)
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)
    lease.release()
    assert names(tmp_path) == [] and not alive(tmp_path)
    lease.release()
    with pytest.raises(LeaseLost):
        lease.check()
    take(tmp_path).release()


def test_our_heartbeat_keeps_a_lease_that_others_watch(tmp_path: Path) -> None:
    lease = take(tmp_path)
    from_elsewhere(lease)  # so that only the heartbeat speaks for it
    with pytest.raises(LeaseHeld):
        take(tmp_path, patience=3 * GRACE)
    lease.check()
    lease.release()


# -- the dead, the silent and the damaged


@contextlib.contextmanager
def child(code: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    header = "import os, sys, time\nfrom pathlib import Path\nfrom workbench.store.lease import acquire, LeaseLost\n"
    process = subprocess.Popen([sys.executable, "-c", header + code, *words], stdout=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_a_killed_owner_is_replaced_at_once_even_as_a_zombie(tmp_path: Path) -> None:
    with child("lease = acquire(Path(sys.argv[1])); print('mine', flush=True); time.sleep(60)", str(tmp_path)) as dying:
        assert dying.stdout is not None and dying.stdout.readline() == "mine\n"
        assert alive(tmp_path)
        (tmp_path / f".tmp-{read(tmp_path).token}" / "half").write_text("x")  # type: ignore[union-attr]
        dying.kill()
        os.waitid(os.P_PID, dying.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet collected
        assert not alive(tmp_path)
        begin = time.monotonic()
        lease = take(tmp_path, patience=0, grace=600)
        assert time.monotonic() - begin < 60
        assert names(tmp_path) == [lease.stage.name, "lease"]
        lease.release()


def test_silence_ends_it_and_is_remembered_between_calls(tmp_path: Path) -> None:
    pretend(tmp_path)
    with pytest.raises(LeaseHeld):
        take(tmp_path, patience=0)
    assert alive(tmp_path, grace=GRACE)
    time.sleep(GRACE + 0.05)
    assert not alive(tmp_path, grace=GRACE)
    take(tmp_path, patience=0).release()


def test_a_folder_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*paths: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    lease = take(tmp_path)
    lease.check()
    assert os.listdir(lease.stage) == []
    with pytest.raises(LeaseHeld):
        take(tmp_path)
    lease.release()
    assert names(tmp_path) == []


def test_a_lease_is_never_seen_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill at the worst moment leaves a lease that says whose it was, so nobody has to wait."""
    made: list[bytes] = []
    link = os.link
    monkeypatch.setattr(os, "link", lambda a, b: (link(a, b), made.append(Path(b).read_bytes())))
    take(tmp_path).release()
    assert json.loads(made[0])["pid"] == os.getpid()


def test_either_sign_of_a_takeover_is_enough(tmp_path: Path) -> None:
    for spoil in (
        lambda lease: (tmp_path / "lease").write_text(dumps({"owner": "another"})),
        lambda lease: (tmp_path / "lease").write_text(""),
        lambda lease: (tmp_path / "lease").unlink(),
        lambda lease: lease.stage.rename(tmp_path / "gone"),
    ):
        lease = take(tmp_path)
        spoil(lease)
        with pytest.raises(LeaseLost):
            lease.check()
        lease.release()
        for name in names(tmp_path):
            (tmp_path / name).unlink() if name == "lease" else shutil.rmtree(tmp_path / name)


def test_an_owner_whose_folder_was_moved_is_told_so(tmp_path: Path) -> None:
    folder = tmp_path / "cell"
    folder.mkdir()
    lease = take(folder)
    folder.rename(tmp_path / "moved")
    with pytest.raises(LeaseLost, match=f"^{re.escape(str(folder))} was moved or removed; nothing more is written$"):
        lease.check()
    lease.release()


# -- late writers


def late(folder: Path) -> tuple[Lease, Lease]:
    """An owner that stood still, and the one that took over from it."""
    old = take(folder)
    old._stop.set()
    old._thread.join()
    from_elsewhere(old)
    return old, take(folder)


def test_a_late_owner_notices(tmp_path: Path) -> None:
    old, new = late(tmp_path)
    how = "was taken over by another process while this one was paused"
    with pytest.raises(LeaseLost, match=f"^{re.escape(str(tmp_path))} {how}; nothing more is written$"):
        old.check()
    old.release()
    new.check()
    assert names(tmp_path) == [new.stage.name, "lease"]
    new.release()


def test_a_write_after_the_last_look_has_nothing_to_rename(tmp_path: Path) -> None:
    """Stopped between the check and the rename: the draft went away with the staging folder."""
    old = take(tmp_path)
    (tmp_path / "done.json").write_text("before")
    news: list[Lease] = []

    def sleep_through() -> None:
        old.check()
        old._stop.set()
        old._thread.join()
        from_elsewhere(old)
        news.append(take(tmp_path))

    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "done.json", b"late", old.stage, sleep_through)
    assert (tmp_path / "done.json").read_text() == "before"
    old.lost = False  # even one that never looked again
    os.utime(old._file)
    with contextlib.suppress(OSError):
        os.rename(tmp_path / "lease", old.stage / "lease")
    news[0].check()
    old._drop()
    news[0].release()


# ---- the owner of a folder ----


def test_what_counts_as_dead(tmp_path: Path) -> None:
    me = process(os.getpid())
    assert me is not None
    here = {"machine": machine(), "pid": os.getpid(), "started": me[1]}
    for changes, known in (
        ({}, "running"),
        ({"started": "1"}, "dead"),  # the number was given to another process
        ({"pid": 2**22 + 1}, "dead"),
        ({"machine": "another boot"}, "unknown"),
        ({"pid": "7"}, "unknown"),
    ):
        pretend(tmp_path, stage=False, **(here | changes))
        seen = read(tmp_path)
        assert seen is not None and fate(seen) == known, changes


@pytest.mark.parametrize("hours", [-9000.0, -3.0, -1.0, 1.0, 3.0, 9000.0])
def test_a_heartbeat_of_a_machine_with_another_clock_counts(tmp_path: Path, hours: float) -> None:
    pretend(tmp_path)
    wrong = time.time() + hours * 3600
    for _ in range(2):  # at the first look, and after a heartbeat
        os.utime(tmp_path / "lease", (wrong, wrong))
        assert alive(tmp_path)
        wrong += BEAT


@pytest.mark.parametrize("hours", [0.0, 3.0])
def test_silence_by_the_clock_of_the_disk_ends_it_at_the_first_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: float
) -> None:
    pretend(tmp_path)
    os.utime(tmp_path / "lease", (time.time() + hours * 3600,) * 2)
    limit = 5 * BEAT
    time.sleep(2.2 * limit)
    assert alive(tmp_path, grace=10 * limit)
    monkeypatch.setattr(owner, "_watched", {})
    assert not alive(tmp_path, grace=limit)
    monkeypatch.setattr(owner, "_watched", {})
    monkeypatch.setattr(owner, "draft_in", lambda folder: folder / "missing" / "probe")
    owner._ahead.cache_clear()
    assert alive(tmp_path, grace=limit), "nothing can be written there, so its clock is not known"
    owner._ahead.cache_clear()


def test_a_running_owner_on_this_machine_needs_no_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    me = process(os.getpid())
    assert me is not None
    pretend(tmp_path, machine=machine(), pid=os.getpid(), started=me[1])
    monkeypatch.setattr(owner, "disk_time", lambda folder: time.time() + 1e6)
    assert alive(tmp_path)


def test_silence_is_counted_from_the_last_heartbeat_that_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(owner.time, "monotonic", lambda: now[0])
    first = owner.Seen(b"{}", (1, 1), touched=5000.0)  # the clocks of two machines are not compared
    assert owner.silence(tmp_path, first) == 0
    now[0] += 7
    assert owner.silence(tmp_path, first) == 7
    now[0] += 4
    monkeypatch.chdir(tmp_path.parent)
    assert owner.silence(Path(tmp_path.name), first) == 11
    assert owner.silence(tmp_path, owner.Seen(b"{}", (2, 1), touched=5000.0)) == 0
    assert owner.silence(tmp_path / "other", first) == 0


@pytest.mark.parametrize(
    ("content", "token", "beat", "shown"),
    [
        (b'{"owner": "ab12", "beat": 2, "pid": 7, "host": "here"}', "ab12", 2.0, "process 7 on here"),
        (b'{"owner": "../ab", "beat": -1}', "", owner.BEAT, "process ? on an unknown host"),
        (b'{"owner": 12, "beat": 1e9}', "", owner.BEAT, "process ? on an unknown host"),
        (b"[1]", "", owner.BEAT, "process ? on an unknown host"),
        (b"\xff{", "", owner.BEAT, "process ? on an unknown host"),
    ],
)
def test_no_content_of_a_lease_is_trusted(content: bytes, token: str, beat: float, shown: str) -> None:
    seen = owner.Seen(content, (1, 1), 0.0)
    assert (seen.token, seen.beat, str(seen)) == (token, beat, shown)


def test_a_process_that_ended_or_is_a_zombie_is_none() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    running = process(child.pid)
    assert running is not None and running[0] in "RSD" and running[1].isdigit()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has asked how
    assert process(child.pid) is None
    child.communicate()
    assert process(child.pid) is None
