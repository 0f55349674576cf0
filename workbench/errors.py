"""Errors of this package, and the phrases that messages share.

The message of an `InputError` is one sentence: what is wrong, where, and how to fix it.
"""

from __future__ import annotations

import difflib
import logging
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

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


def suggest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` with the known name nearest to `word`, or else the list of known names, if any."""
    names = sorted(known)
    ends = [name for name in names if name.endswith(f".{word}")]
    near = ends or difflib.get_close_matches(word, names[:COMPARED], n=1, cutoff=0.5)
    if near:
        return f"; did you mean {near[0]!r}?"
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
