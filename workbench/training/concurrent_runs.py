"""Several runs of one process at the same time, each in a thread and, on a GPU, in a CUDA stream of its own.

A step of a small encoder does not fill a GPU, and kernels of several processes take turns on it, but those of several
streams do not. Much of what a step uses is there once in a process, however: torch's random generators, the number of
threads, buffers of compiled kernels. So threads take turns (`Turns`), and whatever a run sets and uses lies within one
of its turns. It hands its turn on after each step, and while it waits for the GPU; a recorded step is launched within
a turn and computed after it, together with those of other runs. On a CPU the runs compute one after another, in turn.

A recorded step draws from a generator of its own (`own_generator`), as the GPU reads its seed when it computes. So each
run has the bits that it has alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context

import torch

from workbench.errors import Interrupted
from workbench.process import NOTED, stop_signals

LOOK = 0.5  # seconds between looks at threads that compute
PATIENCE = 30.0  # seconds for which threads may clean up after a second Ctrl-C


class Turns:
    """The turn to compute, which one of `count` threads has at a time; they get it in the order in which they ask."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._idle = 0  # threads that have nothing to do until others have finished a run; changed within turns
        self._taken = False
        self._waiting = deque[threading.Lock]()
        self._lock = threading.Lock()

    def take(self) -> None:
        """Wait for the turn."""
        gate = threading.Lock()
        gate.acquire()
        with self._lock:
            if self._taken:
                self._waiting.append(gate)
            else:
                self._taken = True
                gate.release()
        gate.acquire()

    def leave(self) -> None:
        """Give the turn to the thread that has waited longest, if there is one."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False

    def hand_on(self) -> None:
        """Let every thread that waits by now have a turn before the next one of this thread."""
        if self._waiting:
            with self.left():
                pass

    @contextlib.contextmanager
    def left(self) -> Iterator[None]:
        """Leave the turn to others in the block, which computes nothing."""
        self.leave()
        try:
            yield
        finally:
            self.take()

    def await_device(self, device: torch.device) -> None:
        """Let other threads compute until the GPU has done the work of this one; a CPU has always done it."""
        if device.type == "cuda":
            with self.left():
                torch.cuda.current_stream(device).synchronize()

    def idle(self, seconds: float) -> bool:
        """Let other threads compute for some seconds; return whether one of them still trains a run."""
        self._idle += 1
        if self._idle < self.count:
            with self.left():
                threading.Event().wait(seconds)
        busy = self._idle < self.count
        self._idle -= 1
        return busy

    def end(self) -> None:
        """Leave the turns for good."""
        self.count -= 1
        self.leave()


TURNS: ContextVar[Turns | None] = ContextVar("turns", default=None)  # of this thread, None if it computes alone


def in_streams(work: Callable[[], None], count: int, device: str, look: Callable[[], None] = lambda: None) -> None:
    """Carry out `work` in `count` threads, which take turns and have a stream each if the device is a GPU.

    `look` is called twice a second. A signal is passed on to all threads (`stop_signals`), whose runs are saved;
    after a second Ctrl-C they end at once. When all have ended, an error of one of them is raised, or Interrupted.
    """
    turns, errors = Turns(count), list[BaseException]()

    def carry_out() -> None:
        turns.take()
        try:
            with own_stream(torch.device(device)):
                work()
        except BaseException as error:
            errors.append(error)
        finally:
            turns.end()

    with stop_signals() as stopped:
        noted, taking = NOTED.set(stopped), TURNS.set(turns)
        contexts = [copy_context() for _ in range(count)]
        NOTED.reset(noted)
        TURNS.reset(taking)
        threads = [threading.Thread(target=each.run, args=(carry_out,), daemon=True) for each in contexts]
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                for thread in threads:
                    thread.join(LOOK / count)
                look()
        except BaseException:
            begun = [thread for thread in threads if thread.is_alive()]
            for thread in begun:
                number, stop = ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(number, stop)
            for thread in begun:
                thread.join(PATIENCE)
            raise
    for error in errors:
        if not isinstance(error, KeyboardInterrupt | Interrupted):
            raise error
    if stopped:
        raise Interrupted(stopped[0])
    if errors:
        raise errors[0]


def own_stream(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Return a context in which a GPU works in a stream other than the default one, which cannot be recorded.

    A thread of `in_streams` keeps its stream: of those that torch hands out, every 33rd is the first again.
    """
    if device.type != "cuda" or torch.cuda.current_stream(device) != torch.cuda.default_stream(device):
        return contextlib.nullcontext()
    return torch.cuda.stream(torch.cuda.Stream(device))


@contextlib.contextmanager
def own_generator(device: torch.device) -> Iterator[torch.Generator | None]:
    """Let a step that is recorded in the block draw from a generator of its own, which is yielded.

    A run that computes alone draws from the one of the device, and gets None.
    """
    if TURNS.get() is None:
        yield None
        return
    shared = torch.cuda.default_generators[device.index or 0]
    state, own = shared.graphsafe_get_state(), torch.Generator(device)
    shared.graphsafe_set_state(own.graphsafe_get_state())
    try:
        yield own
    finally:
        shared.graphsafe_set_state(state)
