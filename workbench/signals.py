"""Stopping when asked, and not outliving who asked: signals of this process, and the death of its parent.

SIGUSR1 is what SLURM sends ahead of a time limit, where it is told to (`--signal=B:USR1@60`); it counts as SIGTERM. So
does SIGHUP, the end of a terminal, unless it is ignored, as `nohup` has it. SIGQUIT ends the process at once.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from workbench.errors import Interrupted

log = logging.getLogger("workbench")
T = TypeVar("T")
PR_SET_PDEATHSIG = 1  # of prctl(2)
_raised: list[int] = []  # the signals that `interrupting` raised for


@contextmanager
def interrupting() -> Iterator[None]:
    """SIGTERM and SIGUSR1 raise Interrupted wherever they come, so that everything cleans up as after Ctrl-C.

    SIGINT is handled even where it was ignored, as a shell does in the background: whoever sends it there
    means it. A signal that comes after the block, while the former handlers are put back, has no effect.
    """
    over = False

    def stop(number: int, frame: object) -> None:
        if not over:
            _raised.append(number)
            _end(number)

    try:
        with _handled(stop, *_kinds()), _without_traceback():
            try:
                yield
            finally:
                over = True
    finally:
        _raised.clear()  # whoever goes on in this process is not meant


@contextmanager
def _without_traceback() -> Iterator[None]:
    """Keep Python from printing the exception of a signal that a destructor raised; `heed` raises it again."""
    before = sys.unraisablehook

    def hook(lost: sys.UnraisableHookArgs) -> None:
        if not (_raised and isinstance(lost.exc_value, Interrupted | KeyboardInterrupt)):
            before(lost)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def heed() -> None:
    """End now if a signal should have ended us before: what it raised can get lost.

    Compiled code takes any exception of the Python it calls for an answer (safetensors does, for one), and Python
    itself drops those raised in a destructor. Long work asks here at every step.
    """
    if _raised:
        _end(_raised[0])


def _end(number: int) -> None:
    if number == signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # further ones would only disturb what it began
        raise KeyboardInterrupt
    raise Interrupted(signal.SIGTERM)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """A list that holds the signal once one has come, to be looked at when it suits. A second Ctrl-C stops at once.

    Only Ctrl-C: a worker is told to stop by the terminal and then again, with SIGTERM, by its parent.
    """
    seen: list[int] = []
    heed()

    def note(number: int, frame: object) -> None:
        if seen and number == signal.SIGINT:
            _end(number)
        if not seen:
            seen.append(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
            log.warning("stopping after this step; a checkpoint will be written")

    with _handled(note, *_kinds()):
        yield seen


def _kinds() -> list[signal.Signals]:
    """Return the signals that stop a command in good order; SIGHUP is not one where it is ignored."""
    hung_up = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, *hung_up]


@contextmanager
def _handled(handler: Callable[[int, Any], None], *kinds: signal.Signals) -> Iterator[None]:
    try:
        before = {kind: signal.signal(kind, handler) for kind in kinds}
    except ValueError:  # not in the main thread: whoever runs us handles signals
        yield
        return
    try:
        yield
    finally:
        for kind, old in before.items():
            signal.signal(kind, old)


def interruptible(work: Callable[[], T], seconds: float | None = None) -> T:
    """Return `work()`, done in a thread, so that a signal need not wait until compiled code comes back to Python.

    Raises TimeoutError where that takes longer than `seconds`; the thread is then left to itself.
    """
    result: Future[T] = Future()

    def carry_out() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=carry_out, daemon=True).start()
    return result.result(seconds)


def end_with_parent(parent: int) -> None:
    """Ask the kernel for SIGTERM when process `parent`, which started this one, ends in whatever way. Linux only."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:  # it was faster
        raise Interrupted(signal.SIGTERM)
