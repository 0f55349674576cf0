"""Log of a run: one JSON object a line, appended in whole lines, and cut back to a step when the run is resumed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from workbench.errors import InputError
from workbench.store.atomic import LONGEST_LINE, disk_errors, draft_in, dumps, loads, place, write_all
from workbench.store.lease import Lease

BLOCK, COPIED = 1 << 13, 1 << 24  # bytes in which a line end is searched for first, and that are copied at once


class Metrics:
    """Writer that appends to the log at `path`. With `owner`, nothing is written after the lease was lost.

    The first write, or `rewind`, copies the rows that are kept to a new file and puts it in place of the old one. A
    former owner that was paused and still has the old file open then writes into a file that nobody reads.
    """

    def __init__(self, path: Path, owner: Lease | None = None) -> None:
        self.path, self.owner = path, owner
        self._file = -1
        self._sha, self._bytes = hashlib.sha256(), 0  # of all rows in the file

    def content(self) -> dict[str, Any]:
        """Return the size and the SHA-256 of all rows so far."""
        return {"bytes": self._bytes, "sha256": self._sha.hexdigest()}

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows as whole lines in one write; NaN and infinity become null.

        From here on the rows survive the end of this process, and after `sync` also a failure of the machine.
        Raises OSError if the rows cannot all be written, and InputError if one is longer than readers take; then none
        of them is.
        """
        lines = [dumps(row).encode() + b"\n" for row in rows]
        if (longest := max(map(len, lines), default=0)) > LONGEST_LINE:
            raise InputError(
                f"{self.path}: a row of metrics has {longest:,} bytes, and {LONGEST_LINE:,} are allowed; let the "
                f"objective return fewer metrics, or shorter names"
            )
        data = b"".join(lines)
        if self._file < 0:
            self.rewind(sys.maxsize)
        if self.owner is not None:
            self.owner.check()
        before = os.fstat(self._file).st_size
        try:
            with disk_errors(self.path, len(data)):
                write_all(self._file, data)
            self._count(data)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, before)
            raise

    def rewind(self, step: int) -> int:
        """Open the file without rows past `step` and without a torn end; return the last step kept, 0 without rows."""
        self.close()
        self._sha, self._bytes = hashlib.sha256(), 0
        draft = draft_in(self.owner.stage if self.owner else self.path.parent)
        try:
            self._file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
            last = self._copy(step)
            place(draft, self.path, self.owner.check if self.owner is not None else None)
        except BaseException as error:
            self.close()
            draft.unlink(missing_ok=True)
            if isinstance(error, FileNotFoundError) and self.owner is not None:
                self.owner.check()
            raise
        return last

    def sync(self) -> None:
        """Wait until all rows are on disk; called before a checkpoint, so that no checkpoint is newer than its rows."""
        if self._file >= 0:
            with disk_errors(self.path):
                os.fsync(self._file)

    def close(self) -> None:
        """Close the file; the next `append` opens it again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    __del__ = close

    def _count(self, data: bytes) -> None:
        self._sha.update(data)
        self._bytes += len(data)

    def _copy(self, step: int) -> int:
        """Copy the rows up to `step` to the new file and return the last step."""
        try:
            old = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        try:
            end, last = _cut(old, os.fstat(old).st_size, step)
            with disk_errors(self.path, end):
                for start in range(0, end, COPIED):
                    part = os.pread(old, min(COPIED, end - start), start)
                    write_all(self._file, part)
                    self._count(part)
                os.fsync(self._file)
            return last
        finally:
            os.close(old)


def _cut(log: int, size: int, step: int) -> tuple[int, int]:
    """Return where the last row up to `step` ends in an open log, and its step; 0 and 0 if there is none.

    The log is read from its end, because all rows that are dropped are there.
    """
    end = _line_start(log, size)
    while end:
        start = _line_start(log, end - 1)
        try:
            row = loads(os.pread(log, min(end - start, LONGEST_LINE), start))
            if row["step"] <= step:
                return end, int(row["step"])
        except (ValueError, TypeError, KeyError):
            pass  # a power cut may leave a line that is not a row
        end = start
    return 0, 0


def _line_start(log: int, end: int) -> int:
    """Return the place after the last line end before `end`; 0 if there is none."""
    size = BLOCK
    while end:
        start, size = max(0, end - size), min(2 * size, LONGEST_LINE)
        found = os.pread(log, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
