"""A signal ends the work wherever it comes, also where what it raises gets lost."""

from __future__ import annotations

import os
import signal

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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
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
