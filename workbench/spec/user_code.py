"""What a person's own code raises, as one sentence that names its file and line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import extract_tb

from workbench.errors import InputError, Interrupted, one_line
from workbench.memory import is_memory


@contextmanager
def blaming(file: str, doing: str = "", kind: str = "") -> Iterator[None]:
    """Turn whatever `file` raises inside into an InputError: "KIND FILE, line N: DOING ValueError: its message".

    SystemExit and its kin are no exception to that. Ctrl-C, signals, memory that ran out, and InputErrors that the code
    raises while it is `doing` something pass as they are.
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
        told = " ".join(filter(None, [doing, one_line(error)]))
        raise InputError(f"{kind} {file}{line}: {told}".strip()) from error
