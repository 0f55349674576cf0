"""The owner of a folder, and whether its process is running."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from drills.cells import BEAT
from pretended_lease import pretend

from workbench.store import owner
from workbench.store.owner import alive, fate, machine, process, read


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
