"""Memory of this process: errors that mean that it ran out, its peak, and the limit on the address space."""

from __future__ import annotations

import contextlib
import errno
import resource
import sys
from pathlib import Path

from workbench.errors import InputError, message_of

FOR_TORCH = 3 << 30  # bytes of address space that torch takes before the first tensor, with the stacks of its threads
STACK = 8 << 20  # bytes of address space for the stack of each further thread, by default
FOR_TEXT = 700 << 20  # bytes of address space with which tokenizers can start its threads and encode a text
FOR_STATISTICS = 900 << 20  # bytes with which scipy's OpenBLAS finds its buffers; with fewer it tries for ever
_WORDS = (
    "out of memory", "can't allocate memory", "cannot allocate memory", "alloc_failed", "unable to allocate",
    "failed to map segment", "can't start new thread",
)  # fmt: skip


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


def check_address_space(needed: int = FOR_TORCH, what: str = "torch") -> None:
    """Raise InputError if the limit is below what a library needs, which would end or block the process otherwise."""
    limit = address_space()
    if limit is not None and limit < needed:
        raise InputError(
            f"the address space of this process is limited to {limit / 1e9:.1f} GB (ulimit -v), and {what} needs "
            f"{needed / 1e9:.1f} GB or more; raise this limit"
        )


def peak_memory(device: str) -> int:
    """Return the peak memory of this process in bytes.

    On a CUDA device this is allocated memory, otherwise resident main memory.
    """
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.max_memory_allocated(device))
    status = Path("/proc/self/status")
    if status.is_file():  # getrusage would include the peak of the parent process
        return 1024 * int(status.read_text(encoding="utf-8").partition("VmHWM:")[2].split()[0])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def forget_peak(device: str) -> None:
    """Let `peak_memory` count from now on, where the system permits it: on Linux and on CUDA devices."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text(
            "5", encoding="utf-8"
        )  # proc_pid_clear_refs(5): the peak becomes the present size
