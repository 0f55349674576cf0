"""A process: a signal ends its work wherever it arrives, and it is known when memory has run out."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from workbench import errors, process
from workbench.errors import InputError, Interrupted
from workbench.process import heed, in_threads, interrupting, stop_signals


class Loses:
    """An object whose destructor receives a signal, so that Python drops the exception raised."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self.number)
        for _ in range(100):  # handlers run between the interpreter's instructions
            pass


@pytest.mark.parametrize(
    ("number", "raised"),
    [(signal.SIGTERM, Interrupted), (signal.SIGUSR1, Interrupted), (signal.SIGINT, KeyboardInterrupt)],
)
def test_a_lost_signal_is_raised_again_at_the_next_step(number: int, raised: type[BaseException]) -> None:
    continued = False
    with interrupting():
        heed()  # no signal has arrived yet
        thing = Loses(number)
        del thing
        continued = True
        with pytest.raises(raised):
            heed()
        with pytest.raises(raised), stop_signals():
            raise AssertionError("training must not begin")
    assert continued
    heed()  # outside of the block, the signal has no effect


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lost_in_a_destructor_prints_no_traceback(number: int) -> None:
    """Python's own hook writes a traceback for a lost exception; exceptions other than a signal's still reach it."""

    class Broken:
        def __del__(self) -> None:
            raise ArithmeticError("a fault of a destructor")

    shown = []
    before, sys.unraisablehook = sys.unraisablehook, lambda lost: shown.append(lost.exc_type)
    try:
        with interrupting():
            thing: object = Broken()
            del thing
            thing = Loses(number)
            del thing
        assert shown == [ArithmeticError]
        thing = Broken()
        del thing
        assert shown == [ArithmeticError] * 2, "the former hook is back"
    finally:
        sys.unraisablehook = before


def test_another_sigterm_does_not_interrupt_the_cleaning_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker gets the terminal's signal and then its parent's, which kept it from giving its lease back."""
    cleaned = []
    with pytest.raises(Interrupted), interrupting():
        try:
            with stop_signals() as stopped:
                os.kill(os.getpid(), signal.SIGTERM)
            raise Interrupted(stopped[0])
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0)
            cleaned.append(1)
    assert cleaned == [1]
    with pytest.raises(Interrupted), interrupting():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0)
            cleaned.append(2)
    assert cleaned == [1, 2]
    monkeypatch.setattr("workbench.process.REPEATS", 0.0)  # as if the first had arrived long before
    with interrupting():
        thing = Loses(signal.SIGTERM)
        del thing
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0)


def test_a_noted_signal_is_raised_later_in_a_command_alone() -> None:
    """Code that does not raise the exception itself is ended by the next `heed`; without a command nothing is noted."""
    with interrupting():
        with stop_signals():
            os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted):
            heed()
    with stop_signals():
        os.kill(os.getpid(), signal.SIGTERM)
    heed()


def test_a_signal_while_handlers_are_restored_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is already finished; an exception there would leave handlers that raise outside of the block."""
    before, real = signal.getsignal(signal.SIGTERM), signal.signal
    with interrupting():
        sent = []

        def slow(kind: int, handler: Any) -> Any:
            if not sent:
                sent.append(kind)
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0)
            return real(kind, handler)

        monkeypatch.setattr(signal, "signal", slow)
    assert sent and signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("entry", [["-m", "workbench"], ["-c", "from workbench.__main__ import main; main()"]])
def test_ctrl_c_while_modules_are_loaded_prints_no_traceback(entry: list[str], tmp_path: Path) -> None:
    """This `typer`, loaded before the modules that take long, stands for a user who is quick to press Ctrl-C."""
    sent = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nfor _ in range(100):\n    pass\n"
    (tmp_path / "typer.py").write_text(sent, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[1])])
    ended = subprocess.run(
        [sys.executable, *entry, "status"], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_results_of_threads_are_in_order() -> None:
    assert in_threads(lambda n: n * n, range(100), 4) == [n * n for n in range(100)]
    assert in_threads(str, [], 4) == []


def test_an_error_in_a_thread_ends_the_others_before_it_is_raised() -> None:
    begun: list[int] = []
    before = set(threading.enumerate())

    def work(number: int) -> None:
        begun.append(number)
        if number == 0:
            raise InputError("the first")
        time.sleep(0.05)

    with pytest.raises(InputError, match="the first"):
        in_threads(work, range(1000), 2)
    assert len(begun) < 500 and set(threading.enumerate()) <= before


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGTERM, Interrupted), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_while_threads_start_leaves_none_behind(
    number: int, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python notes a thread of a pool only after it has begun, and waits for those alone that it has noted."""
    start, over = threading.Thread.start, threading.Event()
    other = threading.Thread(target=over.wait)  # through which the system may deliver the signal as well
    other.start()
    before = set(threading.enumerate())

    def started(thread: threading.Thread) -> None:
        start(thread)
        os.kill(os.getpid(), number)
        for _ in range(100):  # handlers run between the interpreter's instructions
            pass

    def work(_: int) -> None:
        while True:
            time.sleep(0.01)
            heed()

    monkeypatch.setattr(threading.Thread, "start", started)
    try:
        with pytest.raises(raised), interrupting():
            in_threads(work, range(3), 2)
        assert set(threading.enumerate()) <= before
    finally:
        over.set()


# Memory


def test_peak_memory_is_this_process_s() -> None:
    code = (
        "from workbench.process import peak_memory; before = peak_memory('cpu'); x = b'x' * 2**28; "
        "print(peak_memory('cpu') - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 2**27 < int(done.stdout) < 2**29


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (OSError(errno.ENOMEM, "Cannot allocate"), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling"), True),
        (RuntimeError("can't start new thread"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (type("OutOfMemoryError", (Exception,), {})(), True),
    ],
)
def test_errors_that_mean_that_memory_ran_out_are_told_from_others(error: Exception, expected: bool) -> None:
    assert errors.is_memory(error) is expected


def test_an_error_raised_from_one_of_memory_is_one_of_memory() -> None:
    error = ImportError("Unable to import required dependency numpy.")
    error.__cause__ = ImportError("libm.so: failed to map segment from shared object")
    assert errors.is_memory(error)
    error.__cause__ = ImportError("No module named 'numpy'")
    assert not errors.is_memory(error)


def test_a_module_that_fails_without_a_reason_is_out_of_memory_only_below_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error, limit = SystemError("error return without exception set"), 3 << 28
    monkeypatch.setattr(errors.resource, "getrlimit", lambda _: (limit, limit))
    assert errors.is_memory(error) and not errors.is_memory(SystemError("bad argument to internal function"))
    limit = errors.resource.RLIM_INFINITY
    assert not errors.is_memory(error)


def test_an_address_space_too_small_for_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = process.FOR_TORCH
    monkeypatch.setattr(errors.resource, "getrlimit", lambda _: (limit, limit))
    process.check_address_space()
    limit -= 1
    with pytest.raises(InputError, match=r"limited to 3\.2 GB \(ulimit -v\), and torch needs 3\.2 GB or more"):
        process.check_address_space()
    limit = errors.resource.RLIM_INFINITY
    assert process.address_space() is None
