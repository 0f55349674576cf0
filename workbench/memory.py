"""Memory that ran out, in the words of whoever noticed, and the limit on addresses that a process was given."""

from __future__ import annotations

import errno
import resource

from workbench.errors import InputError

NEEDED = 3 << 30  # bytes of addresses that torch takes before a tensor is made, its threads' stacks included
_WORDS = (
    "out of memory", "can't allocate memory", "cannot allocate memory", "alloc_failed", "unable to allocate",
    "failed to map segment", "can't start new thread",
)  # fmt: skip


def is_memory(error: BaseException) -> bool:
    """Return whether memory ran out, the device's or the host's; most libraries have no type of their own for it."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    return any(word in str(error).lower() for word in _WORDS)


def address_space() -> int | None:
    """Return how many bytes of addresses this process may use (`ulimit -v`); None where there is no limit."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def check_address_space() -> None:
    """Raise InputError where torch could not even be loaded: it would end the process without a word."""
    limit = address_space()
    if limit is not None and limit < NEEDED:
        raise InputError(
            f"this process may use {limit / 1e9:.1f} GB of addresses (ulimit -v), and computing takes "
            f"{NEEDED / 1e9:.1f} GB or more; raise that limit"
        )
