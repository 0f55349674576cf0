"""The standard streams of a command: writing to them never fails, and no text can steer the terminal.

A stream that is closed, a pipe without a reader and a full disk end no work: what cannot be written is dropped, and
`write_error` says so at the end. Characters that the encoding of a stream lacks are written as escapes, and so are
control characters, except for line ends and tabs.
"""

from __future__ import annotations

import errno
import io
import os
import select
import stat
import sys
from typing import Any

from workbench.progress import visible

GONE = (errno.EPIPE, errno.EBADF)  # errors of writing where nobody reads


class _Descriptor(io.FileIO):
    """A file descriptor whose `write` drops what cannot be written and keeps the first error that matters."""

    error: OSError | None = None

    def write(self, data: Any, /) -> int:
        while True:
            try:
                if (count := super().write(data)) is not None:
                    return count
                select.select([], [self], [])  # another process has set the pipe to return instead of waiting
            except OSError as error:
                # A terminal that was closed answers with EIO.
                hung_up = error.errno == errno.EIO and stat.S_ISCHR(os.fstat(self.fileno()).st_mode)
                if self.error is None and error.errno not in GONE and not hung_up:
                    self.error = error
                return memoryview(data).nbytes


class StandardStream(io.TextIOWrapper):
    """Text for a descriptor of the process, with control characters as escapes."""

    def __init__(self, descriptor: int, like: io.TextIOWrapper | None) -> None:
        self.descriptor = _Descriptor(descriptor, "w", closefd=False)
        super().__init__(
            io.BufferedWriter(self.descriptor), like.encoding if like else "utf-8", "backslashreplace", None,
            like.line_buffering if like else False, like.write_through if like else False,
        )  # fmt: skip

    def write(self, text: str, /) -> int:
        self.write_verbatim(visible(text))
        return len(text)

    def write_verbatim(self, text: str) -> int:
        """Write text whose control characters are meant for the terminal, such as a progress bar."""
        return super().write(text)


def guard() -> None:
    """Replace the standard streams of this process, unless other code has done so.

    Descriptors 0 to 2 that are closed are opened on the null device first. Otherwise the next file that is opened would
    get their numbers, and would receive what libraries and child processes write to standard output.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            if opened == number:
                os.set_inheritable(number, True)
            else:
                os.dup2(opened, number)
                os.close(opened)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__") and (stream is None or isinstance(stream, io.TextIOWrapper)):
            setattr(sys, name, StandardStream(number, stream))


def write_error() -> OSError | None:
    """Write what is buffered for standard output, and return the first error, unless there is no reader any more."""
    try:
        sys.stdout.flush()
    except OSError as error:  # of a stream that is not guarded
        return error
    return sys.stdout.descriptor.error if isinstance(sys.stdout, StandardStream) else None
