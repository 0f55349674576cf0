"""Errors in code that a user wrote, reported as one sentence with file and line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import extract_tb

from workbench.errors import InputError, Interrupted, one_line
from workbench.memory import is_memory


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
