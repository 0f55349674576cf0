"""The owner of a folder, and whether its process is still running: the reading side of a lease.

The time without a heartbeat is measured on this process's monotonic clock, while the lease's modification time does not
change; the clocks of two machines are never compared. On the same machine, a process that has ended is recognised at
once. A command that looks only once takes the age of the last heartbeat by the clock of the disk.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workbench.store.atomic import draft_in, loads

BEAT = 10.0  # seconds between heartbeats
GRACE = 60.0  # seconds without a heartbeat after which an owner counts as gone, or five heartbeats if that is longer
FORGOTTEN = 2 * 3600.0  # seconds after which a staging folder of the cache counts as left by a process that ended


@dataclass(frozen=True)
class Seen:
    """The state of a lease file when it was read.

    `changed` is different after every heartbeat. `touched` is the time of the last one by the clock of the disk, in
    seconds: that of the change of the inode, which no machine sets to a time of its own.
    """

    content: bytes
    changed: tuple[int, int]
    touched: float

    @property
    def owner(self) -> dict[str, object]:
        """The owner as written in the lease; empty if that cannot be read."""
        try:
            value = loads(self.content)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def token(self) -> str:
        """The owner's token, or "" if there is no valid one."""
        token = self.owner.get("owner")
        return token if isinstance(token, str) and token.isalnum() else ""

    @property
    def beat(self) -> float:
        """The seconds between the owner's heartbeats; the default if there is no valid number."""
        beat = self.owner.get("beat")
        return float(beat) if isinstance(beat, (int, float)) and 0 < beat < 3600 else BEAT

    def __str__(self) -> str:
        return f"process {self.owner.get('pid', '?')} on {self.owner.get('host', 'an unknown host')}"


_watched: dict[Path, tuple[tuple[int, int], float]] = {}


@functools.cache
def machine() -> str:
    """Return a name for the boot of this machine and the process namespace, or "" if they cannot be determined.

    They cannot if /proc shows another process namespace: its process numbers differ from `os.getpid`, and a running
    owner would seem to have ended.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
        named = re.search("^NSpid:(.*)", status, re.MULTILINE)
        numbers = named[1].split() if named else []
        if (numbers or [os.readlink("/proc/self")]) != [str(os.getpid())]:
            return ""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def process(pid: int) -> tuple[str, str] | None:
    """Return state letter and start time (clock ticks since boot) of a process; None if it has ended or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except OSError:  # a process of another user, hidden in /proc
            pass
        return "?", "?"
    return None if fields[0] in ("Z", "X") else (fields[0], fields[19])


def read(folder: Path) -> Seen | None:
    """Return the present lease of `folder`, or None if it has none. Raises OSError."""
    try:
        fd = os.open(folder / "lease", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        info = os.fstat(fd)
        return Seen(os.read(fd, 4096), (info.st_mtime_ns, info.st_ino), info.st_ctime)
    finally:
        os.close(fd)


def fate(seen: Seen) -> Literal["dead", "running", "unknown"]:
    """Return whether the owner runs; "unknown" on another boot or namespace, or if stopped (kill -STOP)."""
    pid = seen.owner.get("pid")
    if not machine() or seen.owner.get("machine") != machine() or not isinstance(pid, int):
        return "unknown"
    state = process(pid)
    if state is None or state[1] not in ("?", seen.owner.get("started")):
        return "dead"
    return "unknown" if state[0] in ("T", "t") else "running"


def silence(folder: Path, seen: Seen) -> float:
    """Return for how many seconds this process has observed the lease without a heartbeat."""
    now = time.monotonic()
    place = folder.absolute()
    changed, since = _watched.get(place, (None, now))
    if changed != seen.changed:
        since = now
    _watched[place] = (seen.changed, since)
    return now - since


@functools.cache
def _ahead(folder: Path) -> float | None:
    """Return the seconds by which the disk's clock is ahead of ours, from a probe file; None if it cannot be made."""
    probe = draft_in(folder)
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        return os.stat(probe).st_ctime - time.monotonic()
    except OSError:
        return None
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


def disk_time(folder: Path) -> float | None:
    """Return the present time by the clock of a folder's disk, in seconds; None if no file can be made there."""
    ahead = _ahead(folder.absolute())
    return None if ahead is None else time.monotonic() + ahead


def alive(folder: Path, grace: float = GRACE) -> bool:
    """Return whether `folder` seems to have a running owner, for display; a takeover is decided by `acquire` only.

    An owner on this machine is looked up. Any other counts as running until it has been silent for the time after which
    `acquire` takes over, by what this process has seen, or for twice that time by the clock of the disk, since a
    network disk may show a heartbeat late. Where that clock cannot be read, an owner counts as running.
    """
    seen = read(folder)
    if seen is None or (known := fate(seen)) == "dead":
        return False
    limit = max(grace, 5 * seen.beat)
    if silence(folder, seen) >= limit:
        return False
    now = None if known == "running" else disk_time(folder.absolute().parent)
    return now is None or now - seen.touched < 2 * limit
