"""One owner to a folder, without locks: exclusive create, a heartbeat, and takeover of the dead.

A lease is the file `lease` with its owner's token, and a staging folder `.tmp-TOKEN` beside it, through which the
owner puts everything in place by rename. Whoever takes over renames that folder away first: a late write of the old
owner then has no source to rename from, however long it slept after its last check. Exactly one of many takers wins
that rename.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import threading
import time
import uuid
from pathlib import Path

from workbench.store.atomic import STAGE, TRASH, disk_errors, dumps, sweep, write_all
from workbench.store.owner import BEAT, GRACE, Seen, fate, machine, process, read, silence

NO_FILE = -1  # where a descriptor would be
HANGING = 5.0  # seconds that giving back waits for a heartbeat which a disk keeps from ending


class LeaseHeld(RuntimeError):
    """Someone else is at work in this folder."""


class LeaseLost(RuntimeError):
    """Someone else took over while this process was paused; nothing more may be written."""


class Lease:
    """A lease held by this process; made by `acquire`. Writers call `check` before they put anything in place."""

    def __init__(self, folder: Path, beat: float = BEAT) -> None:
        self.folder, self.beat = folder, beat
        self.token = uuid.uuid4().hex
        self.stage = folder / f"{STAGE}{self.token}"
        self.lost = False
        self._file = NO_FILE
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)

    def check(self) -> None:
        """Raises LeaseLost unless this process still owns the folder. Costs one small read."""
        if not self.lost:
            seen = read(self.folder)
            self.lost = seen is None or seen.token != self.token or not self.stage.is_dir()
        if self.lost:
            raise LeaseLost(
                f"{self.folder} was taken over by another process while this one stood still; nothing more is written"
            )

    def release(self) -> None:
        """Give the folder back. Harmless when it is lost already."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=HANGING)
        # Moved into our own staging folder: after a takeover that folder is gone, and the new owner's lease is safe.
        with contextlib.suppress(LeaseLost, OSError):
            self.check()
            os.rename(self.folder / "lease", self.stage / "lease")
        self._drop()

    def _drop(self) -> None:
        self.lost = True
        shutil.rmtree(self.stage, ignore_errors=True)
        if self._file != NO_FILE:
            os.close(self._file)
            self._file = NO_FILE

    def _create(self, path: Path) -> None:
        me = process(os.getpid())
        content = {
            "format": 1,
            "owner": self.token,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": me[1] if me else "?",
            "machine": machine(),
            "beat": self.beat,
        }
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            with disk_errors(path):
                write_all(self._file, dumps(content).encode())
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def _live(self) -> None:
        while not self.lost and not self._stop.wait(self.beat):
            with contextlib.suppress(OSError, LeaseLost):
                os.utime(self._file)  # by descriptor: never another owner's file
                self.check()

    def _claim(self) -> bool:
        """Make the lease if there is none. False when someone was faster."""
        self.stage.mkdir()
        try:
            self._create(self.stage / "lease")
            self._link()
        except FileExistsError:
            return False
        except FileNotFoundError:  # our staging folder was swept away by an owner that came and went meanwhile
            if not self.folder.is_dir():
                raise
            return False
        if self.stage.is_dir():
            return True
        # An owner that came and went between our two steps swept our folder away; without it nothing can be written.
        seen = read(self.folder)
        if seen is not None and seen.token == self.token:
            (self.folder / "lease").unlink(missing_ok=True)
        return False

    def _link(self) -> None:
        """Put the lease in place with its content in it, or raise FileExistsError."""
        lease, draft = self.folder / "lease", self.stage / "lease"
        try:
            os.link(draft, lease)
        except FileExistsError:
            seen = read(self.folder)  # a network disk may have done it, lost its answer and tried again
            if seen is None or seen.token != self.token:
                raise
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL):
                raise
            os.close(self._file)
            self._file = NO_FILE  # the number may soon be that of another thread's file
            self._create(lease)  # no hard links here: then a kill before the next line leaves a lease of no one
        draft.unlink(missing_ok=True)

    def _take(self, seen: Seen) -> bool:
        """Take over from an owner known to be gone. True for exactly one of many takers."""
        fence = self.folder / f"{TRASH}{uuid.uuid4().hex}"
        self.stage.mkdir()
        try:
            self._create(self.stage / "lease")  # a faster taker may sweep our staging folder away at any moment
            os.rename(self.folder / f"{STAGE}{seen.token}", fence)  # the next owner sweeps it up
            # From here on only we may replace this lease: its owner can neither write nor release it.
            now = read(self.folder)
            if now is None or now.content != seen.content:
                return False
            os.rename(self.stage / "lease", self.folder / "lease")
        except FileNotFoundError:
            if not self.folder.is_dir():
                raise
            return False
        return True


def _salvage(folder: Path, seen: Seen) -> None:
    """Remove a lease whose staging folder is gone too: a taker died halfway, or the folder is a copy."""
    sweep(folder)  # stops any taker that is merely slow
    aside = folder / f"{TRASH}{uuid.uuid4().hex}"
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder / "lease", aside)
        if aside.read_bytes() != seen.content:  # someone else's, newer: put back unless there is one again
            with contextlib.suppress(OSError):
                os.link(aside, folder / "lease")
        aside.unlink()


def acquire(folder: Path, patience: float | None = None, beat: float = BEAT, grace: float = GRACE) -> Lease:
    """Become the owner of `folder`, or raise LeaseHeld.

    An owner on this machine that has died is replaced at once, any other after `grace` seconds of silence. Silence is
    watched for up to `patience` seconds here, or in earlier calls of this process; None watches until it is clear
    whether the owner lives: at once on this machine, a heartbeat or `grace` seconds elsewhere.
    """
    start = time.monotonic()
    first: tuple[int, int] | None = None
    while True:
        seen = read(folder)
        lease = Lease(folder, beat)
        if seen is None:
            won = lease._claim()
        else:
            first = first or seen.changed
            known, silent, limit = fate(seen), silence(folder, seen), max(grace, 5 * seen.beat)
            gone = known == "dead" or silent >= limit
            staged = bool(seen.token) and (folder / f"{STAGE}{seen.token}").is_dir()
            won = gone and staged and lease._take(seen)
            if gone and not staged and silent >= min(5.0, limit):  # a taker may be between its two steps
                _salvage(folder, seen)
                continue
        if won:
            sweep(folder, keep=lease.stage.name)
            lease._thread.start()
            return lease
        lease._drop()
        if seen is None or gone:
            time.sleep(min(0.05, beat / 4))
            continue
        settled = known == "running" or seen.changed != first
        if settled if patience is None else time.monotonic() - start >= patience:
            raise LeaseHeld(
                f"{folder} is being worked on by {seen}; if that process is gone, "
                f"it can be taken over after {limit:.0f} seconds without a sign of life"
            )
        time.sleep(min(0.5, beat / 4))
