"""Calls with a time limit to tokenizers that others made, whose regular expressions may take any time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from workbench.data.hugging_face.stand_in import refusing
from workbench.errors import InputError
from workbench.signals import interruptible

T = TypeVar("T")
LEAST = 30.0  # seconds of processor time that any call may take
PACE = 20_000  # characters for each further second; usual tokenizers encode millions


def in_time(work: Callable[[], T], characters: int, name: object, mute: bool = True) -> T:
    """Return the result of `work`, a call that encodes this number of characters with the tokenizer `name`.

    Signals interrupt the call. With `mute`, it writes nothing to standard error, so that a panic of its library gives
    one sentence. Raises InputError if the call fails or takes a hundred times the processor time of usual tokenizers.
    """
    limit = LEAST + characters / PACE
    with refusing(str(name), "holds a tokenizer that cannot encode these texts", mute):
        try:
            return interruptible(work, limit)
        except TimeoutError:
            raise InputError(
                f"{name}: its tokenizer took more than {limit:.0f} s of processor time for {characters:,} characters, "
                f"for which usual ones take less than a hundredth of that; choose another tokenizer"
            ) from None
