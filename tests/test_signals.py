"""A signal ends the work wherever it comes, also where what it raises gets lost."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import pytest

from workbench.errors import Interrupted
from workbench.signals import heed, interrupting, stop_signals


class Loses:
    """Python drops what is raised in a destructor, as compiled code may anywhere."""

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
def test_a_signal_that_got_lost_is_heeded_at_the_next_step(number: int, raised: type[BaseException]) -> None:
    went_on = False
    with interrupting():
        heed()  # nothing has come yet
        thing = Loses(number)
        del thing
        went_on = True
        with pytest.raises(raised):
            heed()
        with pytest.raises(raised), stop_signals():
            raise AssertionError("training must not begin")
    assert went_on
    heed()  # outside of it, what came is over


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_a_destructor_loses_prints_no_traceback(number: int) -> None:
    """Python's own hook writes "Exception ignored in" with a traceback; what others lose is still shown."""

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


def test_a_signal_while_handlers_are_put_back_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is over by then; raised there, it would leave handlers that raise outside of every handler of errors."""
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
