"""Signals that stop this process in good order, the end of its parent process, and its memory.

SIGUSR1, which SLURM can send before a time limit (`--signal=B:USR1@60`), is treated as SIGTERM. So is SIGHUP, which is
sent when a terminal closes, unless it is ignored, as under `nohup`. SIGQUIT ends the process at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from workbench.errors import InputError, Interrupted, address_space

log = logging.getLogger("workbench")
S = TypeVar("S")
T = TypeVar("T")
PR_SET_PDEATHSIG = 1  # see prctl(2)
M_ARENA_MAX = -8  # see mallopt(3)
REPEATS = 10.0  # seconds in which another SIGTERM means the same request to stop
NOTED: ContextVar[list[int] | None] = ContextVar(
    "noted", default=None
)  # signals that another thread notes for this one
_raised: list[tuple[int, float]] = []  # the signals that stop `interrupting`'s block, and their monotonic times in s
_inside: list[None] = []  # one element for each block of `interrupting` that is being carried out


@contextmanager
def interrupting() -> Iterator[None]:
    """Let SIGTERM, SIGUSR1 and SIGHUP raise Interrupted inside the block, so that everything cleans up as after Ctrl-C.

    SIGINT is handled even if it was ignored, as a shell does for a command in the background, because it is sent
    there only on purpose. No signal has an effect after the block, nor has another SIGTERM within REPEATS seconds,
    which a worker gets from its terminal and from its parent: it would interrupt the cleaning up.
    """
    over, report = False, sys.unraisablehook

    def stop(number: int, frame: object) -> None:
        repeated = bool(_raised) and number != signal.SIGINT and time.monotonic() - _raised[0][1] < REPEATS
        if not over and not repeated:
            _raised.append((number, time.monotonic()))
            _end(number)

    def hook(lost: sys.UnraisableHookArgs) -> None:
        """Report an exception that a destructor raised, except a signal's, which `heed` raises again."""
        if not (_raised and isinstance(lost.exc_value, Interrupted | KeyboardInterrupt)):
            report(lost)

    try:
        with _handled(stop):
            try:
                sys.unraisablehook = hook
                _inside.append(None)
                yield
            finally:
                over = True
                sys.unraisablehook = report
    finally:
        _inside.clear()  # a process has one such block, around its command
        _raised.clear()  # the code after the block is not to be stopped


def heed() -> None:
    """Raise the exception of an earlier signal again, since it may have been lost.

    Compiled code that calls Python can take any exception for an ordinary result (safetensors does), and Python itself
    drops exceptions raised in a destructor. Long work calls this function at every step.
    """
    if _raised:
        _end(_raised[0][0])


def _end(number: int) -> None:
    if number == signal.SIGINT:
        if threading.current_thread() is threading.main_thread():  # other threads cannot set handlers, nor get signals
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # another one would only disturb the cleaning up
        raise KeyboardInterrupt
    raise Interrupted(signal.SIGTERM)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Yield a list that contains the signal after one has arrived, for code that stops at a suitable place.

    A second Ctrl-C stops at once. A second SIGTERM does not, since a worker gets it from the terminal and from its
    parent. In a command, the signal stays noted after the block, so that `heed` raises its exception. A thread for
    which another one notes signals gets the same list, and Interrupted if one has arrived before.
    """
    received: list[int] = []
    heed()
    if (noted := NOTED.get()) is not None:
        if noted:
            raise Interrupted(noted[0])
        yield noted
        return

    def note(number: int, frame: object) -> None:
        if received and number == signal.SIGINT:
            _end(number)
        if not received:
            received.append(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
            log.warning("stopping after this step; a checkpoint will be written")

    with _handled(note):
        try:
            yield received
        finally:  # before the former handlers are back
            if _inside and received:
                _raised.append((received[0], time.monotonic()))


@contextmanager
def _handled(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Handle the signals that stop a command in good order inside the block; SIGHUP only if it is not ignored."""
    hung_up = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    before: dict[signal.Signals, Any] = {}
    try:
        for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, *hung_up):
            before[kind] = signal.signal(kind, handler)
    except ValueError:  # not in the main thread, whose code handles the signals
        yield
        return
    try:
        yield
    finally:
        for kind, old in before.items():
            signal.signal(kind, old)


def interruptible(work: Callable[[], T], seconds: float | None = None) -> T:
    """Return `work()`, computed in a thread, so that signals are handled while compiled code runs.

    Raises TimeoutError if the process uses more than `seconds` of processor time meanwhile; the thread then goes
    on.
    """
    result: Future[T] = Future()

    def carry_out() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    begun = time.process_time()
    threading.Thread(target=carry_out, daemon=True).start()
    if seconds is not None:
        while not wait([result], timeout=min(1.0, seconds)).done:
            if time.process_time() - begun > seconds:
                raise TimeoutError
    return result.result()


def in_threads(work: Callable[[S], T], items: Iterable[S], most: int) -> list[T]:
    """Return `work` of each item, in order, computed by up to `most` threads.

    After an error or a signal, no further item is begun, and those in progress are waited for. Raises the error of
    the first item that failed, or the exception of the signal.
    """
    if len(items := list(items)) <= 1:
        return list(map(work, items))
    with ThreadPoolExecutor(most) as pool:
        try:
            with _held_back():
                results = pool.map(work, items)
            return list(results)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def _held_back() -> Iterator[None]:
    """Let a signal that stops a command take effect at the end of the block.

    It is noted by a handler, since a signal that the main thread blocks is delivered through any other thread.
    """
    arrived: list[int] = []
    try:
        with _handled(lambda number, frame: arrived.append(number)):
            yield
    finally:
        if arrived:
            signal.raise_signal(arrived[0])


def end_with_parent(parent: int) -> None:
    """Let Linux send SIGTERM to this process when its parent process `parent` ends, unless that is 0."""
    if sys.platform != "linux" or not parent:
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:  # the parent has already ended
        raise Interrupted(signal.SIGTERM)


# ----------------------------------------
# Memory of this process: its peak, and what libraries need of its address space.


FOR_TORCH = 3 << 30  # bytes of address space that torch takes before the first tensor, with the stacks of its threads
STACK = 8 << 20  # bytes of address space for the stack of each further thread, by default
FOR_TEXT = 700 << 20  # bytes of address space that tokenizers needs to start its threads and encode a text
FOR_STATISTICS = 900 << 20  # bytes for the buffers of scipy's OpenBLAS; with fewer, its allocation loops for ever


def check_address_space(needed: int = FOR_TORCH, what: str = "torch") -> None:
    """Raise InputError if the limit is below what a library needs, which would end or block the process otherwise."""
    limit = address_space()
    if limit is not None and limit < needed:
        raise InputError(
            f"the address space of this process is limited to {limit / 1e9:.1f} GB (ulimit -v), and {what} needs "
            f"{needed / 1e9:.1f} GB or more; raise this limit"
        )


def peak_memory(device: str) -> int:
    """Return the peak memory of this process in bytes: allocated on a CUDA device, otherwise resident main memory."""
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
        # proc_pid_clear_refs(5): the peak becomes the present size
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def release_memory() -> None:
    """Return freed memory to the system, after work that needs much more than what follows it; glibc alone can."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(ctypes.c_size_t(0))


def share_memory() -> None:
    """Let each thread use memory that another thread has freed, which glibc does not allow by default."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_ARENA_MAX, 1)
