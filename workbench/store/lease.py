"""Leases, by which a folder has one owner at a time: exclusive creation, a heartbeat, and takeover from dead processes.

A lease is the file `lease` with its owner's token, and a staging folder `.tmp-TOKEN` beside it. The owner writes files
there and renames them to their places. A process that takes over first renames the staging folder of the old owner: a
late rename by the old owner then fails, however long that process was paused after its last check. If several processes
try to take over, this rename succeeds for exactly one of them. File locks, which some network disks lack, are not used.
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

from workbench.errors import LeaseHeld, LeaseLost
from workbench.store.atomic import STAGE, TRASH, disk_errors, dumps, sweep, write_all
from workbench.store.owner import BEAT, GRACE, Seen, fate, machine, process, read, silence

NO_FILE = -1  # in place of a file descriptor
HANGING = 5.0  # seconds for which `release` waits for a heartbeat that is blocked by the disk


class Lease(contextlib.AbstractContextManager["Lease"]):
    """A lease held by this process, made by `acquire`; `check` is called before every rename to a final place."""

    def __init__(self, folder: Path, beat: float = BEAT) -> None:
        self.folder, self.beat = folder, beat
        self.token = uuid.uuid4().hex
        self.stage = folder / f"{STAGE}{self.token}"
        self.lost = False
        self._file = NO_FILE
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)

    def check(self) -> None:
        """Raise LeaseLost unless this process still owns the folder; this takes one small read."""
        if not self.lost:
            seen = read(self.folder)
            self.lost = seen is None or seen.token != self.token or not self.stage.is_dir()
        if self.lost:
            taken = "taken over by another process while this one was paused"
            how = taken if self.folder.is_dir() else "moved or removed"
            raise LeaseLost(f"{self.folder} was {how}; nothing more is written")

    def carry(self, target: Path) -> None:
        """Rename the folder, with the lease in it, to `target`; the heartbeat ends. Raises LeaseLost or OSError."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=HANGING)
        self.check()
        with disk_errors(target):
            os.rename(self.folder, target)
        self.folder, self.stage = target, target / self.stage.name

    def release(self, *error: object) -> None:
        """Release the lease. Nothing happens if it is already lost."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=HANGING)
        # The rename goes into this lease's staging folder: after a takeover that folder does not exist, so the rename
        # fails and the new owner's lease stays.
        with contextlib.suppress(LeaseLost, OSError):
            self.check()
            os.rename(self.folder / "lease", self.stage / "lease")
        self._drop()

    __exit__ = release

    def _drop(self) -> None:
        """Remove the staging folder and close the file."""
        self.lost = True
        shutil.rmtree(self.stage, ignore_errors=True)
        if self._file != NO_FILE:
            os.close(self._file)
            self._file = NO_FILE

    def _create(self, path: Path) -> None:
        """Write a new lease file and keep it open. Raises FileExistsError if there is one, or OSError."""
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
        data = dumps(content).encode()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            with disk_errors(path, len(data)):
                write_all(self._file, data)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def _live(self) -> None:
        """Touch the lease file every `beat` seconds, until the lease is lost or released."""
        while not self.lost and not self._stop.wait(self.beat):
            with contextlib.suppress(OSError, LeaseLost):
                os.utime(self._file)  # by descriptor, so that it is never another owner's file
                self.check()

    def _claim(self) -> bool:
        """Make the lease if there is none. Return False if another process was faster."""
        self.stage.mkdir()
        try:
            self._create(draft := self.stage / "lease")
            try:
                os.link(draft, self.folder / "lease")
            except FileExistsError:
                seen = read(self.folder)  # a network disk may have made the link, lost its reply and tried again
                if seen is None or seen.token != self.token:
                    return False
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL):
                    raise
                os.close(self._file)
                self._file = NO_FILE  # another thread may soon open a file with the same number
                # a disk without hard links: a kill before the next line leaves a lease without owner
                self._create(self.folder / "lease")
            draft.unlink(missing_ok=True)
        except FileExistsError:
            return False
        except FileNotFoundError:  # the staging folder was swept by an owner that acquired and released in between
            if not self.folder.is_dir():
                raise
            return False
        if self.stage.is_dir():
            return True
        # An owner that acquired and released in between swept the staging folder, without which nothing can be written.
        seen = read(self.folder)
        if seen is not None and seen.token == self.token:
            (self.folder / "lease").unlink(missing_ok=True)
        return False

    def _take(self, seen: Seen) -> bool:
        """Take over from an owner that is known to have ended. Return True for exactly one of several processes."""
        fence = self.folder / f"{TRASH}{uuid.uuid4().hex}"
        self.stage.mkdir()
        try:
            self._create(self.stage / "lease")  # a faster process may sweep this staging folder at any moment
            os.rename(self.folder / f"{STAGE}{seen.token}", fence)  # the next owner removes it
            # From here on only this process may replace the lease: its old owner can neither write nor release it.
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
    """Remove a lease without a staging folder: a process died while taking over, or the folder is a copy."""
    sweep(folder)  # stops a process that is still taking over, but slowly
    aside = folder / f"{TRASH}{uuid.uuid4().hex}"
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder / "lease", aside)
        if aside.read_bytes() != seen.content:  # a newer lease of another process: put back unless there is one again
            with contextlib.suppress(OSError):
                os.link(aside, folder / "lease")
        aside.unlink()


def acquire(folder: Path, patience: float | None = None, beat: float = BEAT, grace: float = GRACE) -> Lease:
    """Become the owner of `folder`, or raise LeaseHeld.

    An owner on this machine whose process has ended is replaced at once, any other after `grace` seconds without a
    heartbeat. The heartbeat is watched for up to `patience` seconds, in addition to earlier calls in this process. With
    `patience` None it is watched until it is clear whether the owner is running: at once on this machine, otherwise
    until the next heartbeat, or for `grace` seconds.
    """
    start = time.monotonic()
    first: tuple[int, int] | None = None
    while True:
        seen = read(folder)
        lease = Lease(folder, beat)
        try:
            with disk_errors(folder / "lease"):
                if seen is None:
                    won = lease._claim()
                else:
                    first = first or seen.changed
                    known, silent, limit = fate(seen), silence(folder, seen), max(grace, 5 * seen.beat)
                    gone = known == "dead" or silent >= limit
                    staged = bool(seen.token) and (folder / f"{STAGE}{seen.token}").is_dir()
                    won = gone and staged and lease._take(seen)
                    if gone and not staged and silent >= min(5.0, limit):  # another process may be inside `_take`
                        _salvage(folder, seen)
                        continue
        except BaseException:
            lease.release()  # the disk failed, or a signal arrived: nothing of this lease stays behind
            raise
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
                f"{folder} is in use by {seen}; if that process has ended, "
                f"it can be taken over after {limit:.0f} seconds without a heartbeat"
            )
        time.sleep(min(0.5, beat / 4))
