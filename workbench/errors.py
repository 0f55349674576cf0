"""Errors of this package, and the phrases that messages share.

The message of an `InputError` is one sentence: what is wrong, where, and how to fix it.
"""

from __future__ import annotations

import difflib
import errno
import logging
import os
import resource
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb

DAMAGE = logging.getLogger("workbench.damage")  # of damaged runs; a command that logs here ends with exit code 1


class InputError(ValueError):
    """An input of the user that cannot be used, such as an option, a file or a folder. The exit code is 2."""


class DamagedRun(InputError):
    """Files of one run that differ from what was written. This run is skipped, and the other runs continue.

    The exit code is 1.
    """


class Diverged(RuntimeError):
    """A loss or gradient that became NaN or infinite at `step`. It is a result of the run, not a crash."""

    def __init__(self, message: str, step: int | None = None) -> None:
        super().__init__(message)
        self.step = step


class ParentFailed(RuntimeError):
    """The failure of a parent run, from whose result another run was to start."""


class LeaseHeld(RuntimeError):
    """The error that another process holds the lease of a folder."""


class LeaseLost(RuntimeError):
    """The error that another process took a lease over, after which this process must not write any more."""


class RankLost(RuntimeError):
    """The end, or the silence, of one of the processes that together compute a run on several devices."""


class Interrupted(BaseException):
    """The interruption of a command by a signal, whose number is `signal`.

    This is not a KeyboardInterrupt, since the command-line library turns that into an error of its own.
    """

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.signal = signal


COMPARED = 1000  # names that are compared with a misspelt one
LISTED, LONGEST = 100, 80  # names in a sentence, and characters of each


def suggest(word: str, known: Iterable[str], lists: str = "") -> str:
    """Return `; did you mean 'x'?` with the known name nearest to `word`, or else the list of known names, if any.

    `lists` is a command that prints the names, which then stands in place of the list.
    """
    names = sorted(known)
    ends = [name for name in names if name.endswith(f".{word}")]
    near = ends or difflib.get_close_matches(word, names[:COMPARED], n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    if lists and names:
        return f"; {lists} prints all that there are"
    return f"; there are {listed(names)}" if names else "; there is none"


def listed(names: Sequence[str]) -> str:
    """Return names for a sentence, separated by commas; of very many the first ones and how many more there are."""
    rest = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return ", ".join(name[:LONGEST] for name in names[:LISTED]) + rest


def plural(count: int, noun: str) -> str:
    """Return a count with its noun, which takes an s unless the count is 1: `1 seed`, `0 seeds`, `1,200 seeds`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def remedy(path: Path, command: str = "the same command") -> str:
    """Return what to do about a damaged run in the folder `path`, as the end of a sentence."""
    verify = f"workbench verify {shlex.quote(str(path.parent))}"
    return f"move that folder away and give {command} again, which makes it anew ({verify} names every changed file)"


def one_line(error: BaseException) -> str:
    """Return the type and message of an error on one line, at most 200 characters of the message."""
    message = " ".join(message_of(error).split())
    return f"{type(error).__name__}: {message[:200]}" if message else type(error).__name__


def message_of(error: BaseException) -> str:
    """Return the message of an error; "" if its own `__str__` raises an error, or exits."""
    try:
        return str(error)
    except (KeyboardInterrupt, Interrupted):
        raise
    except BaseException:
        return ""


def encodable(text: str) -> bool:
    """Return whether the text can be encoded as UTF-8; an unpaired surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# ---- errors of code that the user named, and of memory ----

_WORDS = (
    "out of memory", "can't allocate memory", "cannot allocate memory", "alloc_failed", "unable to allocate",
    "failed to map segment", "can't start new thread",
)  # fmt: skip


@contextmanager
def blaming(file: str, doing: str = "", kind: str = "") -> Iterator[None]:
    """Turn exceptions of the user's code in `file` into an InputError: "KIND FILE, line N: DOING ValueError: TEXT".

    SystemExit is turned into one as well. Ctrl-C, signals, out-of-memory errors and, if `doing` is given, InputErrors
    are raised unchanged.
    """
    try:
        yield
    except (KeyboardInterrupt, Interrupted):
        raise
    except BaseException as error:
        if is_memory(error) or (doing and isinstance(error, InputError)):
            raise
        number = error.lineno if isinstance(error, SyntaxError) else None
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == os.path.abspath(file)]
        line = f", line {number or lines[-1]}" if number or lines else ""
        message = " ".join(filter(None, [doing, one_line(error)]))
        raise InputError(f"{kind} {file}{line}: {message}".strip()) from error


def is_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, on the device or the host.

    Most libraries have no exception class for this, so that the text of the message decides, or the error that it was
    raised from. A compiled module that cannot allocate may fail without saying why, which raises SystemError.
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    message = message_of(error).lower()
    if isinstance(error, SystemError) and "without exception set" in message:
        return address_space() is not None
    return any(word in message for word in _WORDS) or (error.__cause__ is not None and is_memory(error.__cause__))


def address_space() -> int | None:
    """Return the limit on the address space of this process in bytes (`ulimit -v`), or None if there is none."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit
