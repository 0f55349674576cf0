"""What a person can put right: one sentence that says what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something a person wrote or pointed at cannot be used. The command line exits with 2."""


class DamagedRun(InputError):
    """Files of one run are not as they were written. That run is left alone; the others go on."""


class Diverged(RuntimeError):
    """A loss or gradient became NaN or infinite at `step`. A result of the run, not a crash of the program."""

    def __init__(self, message: str, step: int | None = None) -> None:
        super().__init__(message)
        self.step = step


class ParentFailed(RuntimeError):
    """The run that another one was to start from did not end well."""


class Interrupted(BaseException):
    """Stopped by a signal after a checkpoint was written; `signal` is its number.

    Not a KeyboardInterrupt, which the command line library would turn into an error of its own.
    """

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.signal = signal


def suggest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest of `known`, else the list of them."""
    names = sorted(known)
    ends = [name for name in names if name.endswith(f".{word}")]
    near = ends or difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(names)}"


def one_line(error: BaseException) -> str:
    """Return the type and message of an error that somebody else's code raised, on one line."""
    try:
        message = " ".join(str(error).split())
    except (KeyboardInterrupt, Interrupted):
        raise
    except BaseException:  # its own __str__ fails, or exits
        message = ""
    return f"{type(error).__name__}: {message[:200]}" if message else type(error).__name__


def encodable(text: str) -> bool:
    """Return whether the text can be written as UTF-8, which half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
