"""The refusal of what others made: one InputError, whose message can be printed anywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.errors import InputError

LONGEST = 400  # characters of a message, with the path of a temporary folder in it


def refusal(folder: Path, attempt: Callable[[], object]) -> str:
    """Return the message with which `attempt` refuses something in a folder: a line of ASCII that names the folder."""
    with pytest.raises(InputError) as caught:
        attempt()
    message = str(caught.value)
    assert str(folder) in message and message.isprintable() and message.isascii() and len(message) < LONGEST
    return message


def refused_sentence(attempt: Callable[[], object]) -> str:
    """Return the message with which `attempt` refuses its input: one line that can be encoded as UTF-8."""
    with pytest.raises(InputError) as caught:
        attempt()
    said = str(caught.value)
    assert "\n" not in said and len(said) < 700
    said.encode()  # what cannot be written to a terminal was escaped
    return said
