"""Who owns a folder, and whether that process still lives: the reading side of a lease.

Silence is judged by watching the lease's modification time stand still on our own monotonic clock, never by comparing
the clocks of two machines. On the same machine a dead process is known at once.
"""

from __future__ import annotations

import functools
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workbench.store.atomic import loads

BEAT = 10.0  # seconds between signs of life
GRACE = 60.0  # seconds of silence after which an owner counts as gone: at least five beats
FORGOTTEN = 2 * 3600.0  # seconds: a lease of another machine this old is not shown as running, whatever the clocks say


@dataclass(frozen=True)
class Seen:
    """A lease file as read once. `changed` differs after every heartbeat; `age` is by this machine's clock."""

    content: bytes
    changed: tuple[int, int]
    age: float

    @property
    def owner(self) -> dict[str, object]:
        """Who wrote it; empty when that cannot be read."""
        try:
            value = loads(self.content)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def token(self) -> str:
        token = self.owner.get("owner")
        return token if isinstance(token, str) and token.isalnum() else ""

    @property
    def beat(self) -> float:
        beat = self.owner.get("beat")
        return float(beat) if isinstance(beat, (int, float)) and 0 < beat < 3600 else BEAT

    def __str__(self) -> str:
        return f"process {self.owner.get('pid', '?')} on {self.owner.get('host', 'an unknown host')}"


_watched: dict[Path, tuple[tuple[int, int], float]] = {}


@functools.cache
def machine() -> str:
    """This boot of this kernel and this process namespace; "" where that cannot be told.

    Nor can it where /proc shows another namespace, as in one made without a /proc of its own: the numbers of processes
    there are not those that `os.getpid` gives, and a live owner would be taken for dead.
    """
    try:
        status = Path("/proc/self/status").read_text(errors="replace")
        numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
        if (numbers or [os.readlink("/proc/self")]) != [str(os.getpid())]:
            return ""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def process(pid: int) -> tuple[str, str] | None:
    """State letter and start time (clock ticks since boot) of a process; None if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except OSError:  # another user's, in a /proc that hides it
            pass
        return "?", "?"
    return None if fields[0] in ("Z", "X") else (fields[0], fields[19])


def read(folder: Path) -> Seen | None:
    """The lease of `folder` now; None if it has none. Raises OSError."""
    try:
        fd = os.open(folder / "lease", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        info = os.fstat(fd)
        return Seen(os.read(fd, 4096), (info.st_mtime_ns, info.st_ino), time.time() - info.st_mtime)
    finally:
        os.close(fd)


def fate(seen: Seen) -> Literal["dead", "running", "unknown"]:
    """What is known of the owner without waiting: only of a process of the same boot and the same process table.

    A stopped process (kill -STOP) is of unknown fate, as is any on another machine.
    """
    pid = seen.owner.get("pid")
    if not machine() or seen.owner.get("machine") != machine() or not isinstance(pid, int):
        return "unknown"
    found = process(pid)
    if found is None or found[1] not in ("?", seen.owner.get("started")):
        return "dead"
    return "unknown" if found[0] in ("T", "t") else "running"


def silence(folder: Path, seen: Seen) -> float:
    """Seconds for which this process has watched the lease stand still."""
    now = time.monotonic()
    place = folder.absolute()
    changed, since = _watched.get(place, (None, now))
    if changed != seen.changed:
        since = now
    _watched[place] = (seen.changed, since)
    return now - since


def alive(folder: Path, grace: float = GRACE) -> bool:
    """Whether someone seems to be at work in `folder`. For showing; only `acquire` decides."""
    seen = read(folder)
    if seen is None or fate(seen) == "dead":
        return False
    return silence(folder, seen) < max(grace, 5 * seen.beat) and seen.age < FORGOTTEN
