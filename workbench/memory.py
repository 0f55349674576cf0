"""Recognition of errors that mean that memory ran out, and the limit on the address space of this process."""

from __future__ import annotations

import errno
import resource

from workbench.errors import InputError, message_of

NEEDED = 3 << 30  # bytes of address space that torch takes before the first tensor, with the stacks of its threads
_WORDS = (
    "out of memory", "can't allocate memory", "cannot allocate memory", "alloc_failed", "unable to allocate",
    "failed to map segment", "can't start new thread",
)  # fmt: skip


def is_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, on the device or the host.

    Most libraries have no exception class for this, so that the text of the message decides.
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    message = message_of(error).lower()
    return any(word in message for word in _WORDS)


def address_space() -> int | None:
    """Return the limit on the address space of this process in bytes (`ulimit -v`), or None if there is none."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def check_address_space() -> None:
    """Raise InputError if torch cannot be loaded within the limit, since it would end the process without a message."""
    limit = address_space()
    if limit is not None and limit < NEEDED:
        raise InputError(
            f"the address space of this process is limited to {limit / 1e9:.1f} GB (ulimit -v), and torch needs "
            f"{NEEDED / 1e9:.1f} GB or more; raise this limit"
        )
