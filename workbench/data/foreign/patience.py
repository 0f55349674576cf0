"""Calls into a tokenizer that others made: its regular expressions may take any time, and its library may panic."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from workbench.data.foreign.view import refusing
from workbench.errors import InputError
from workbench.signals import interruptible

T = TypeVar("T")
LEAST, PACE = 30.0, 20_000  # seconds that a call may take, and characters a second beyond; those in use read millions


def in_time(work: Callable[[], T], characters: int, name: object, mute: bool = True) -> T:
    """Return what `work` makes of so many characters with the tokenizer `name`; signals are heeded meanwhile.

    With `mute` nothing is written to standard error meanwhile, so that a panic leaves one sentence there.
    Raises InputError where it fails or takes more than a hundred times as long as tokenizers do.
    """
    limit = LEAST + characters / PACE
    with refusing(str(name), "holds a tokenizer that cannot read these texts", mute):
        try:
            return interruptible(work, limit)
        except TimeoutError:
            raise InputError(
                f"{name}: its tokenizer took more than {limit:.0f} s for {characters:,} characters, which others read "
                f"in less than one; take another"
            ) from None
