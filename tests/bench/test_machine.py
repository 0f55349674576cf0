"""Facts about the machine: who else uses it, and how fast it multiplies."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from workbench.bench import machine
from workbench.spec.host import Host


def test_a_busy_machine_is_said() -> None:
    quiet = machine.Quiet()
    assert quiet.notes() == []
    quiet.elapsed, quiet.others = 10.0, 0.01
    assert quiet.notes() == []
    quiet.others, quiet.stolen = 1e4, 1e4
    assert ["other processes" in quiet.notes()[0], "other machines" in quiet.notes()[1]] == [True, True]


def test_processor_time_of_the_process_itself_is_not_that_of_others() -> None:
    """Watched from outside, the same work counts."""
    inside, outside = machine.Quiet(), machine.Quiet()
    with subprocess.Popen(["sleep", "600"]) as idle:
        with inside.watching(os.getpid()), outside.watching(idle.pid):
            until = time.process_time() + 0.4
            while time.process_time() < until:
                pass
        idle.kill()
    assert inside.elapsed >= 0.4 and outside.elapsed >= 0.4
    if outside.others == 0:
        pytest.skip("this system does not tell the processor time of all processes")
    assert outside.others - inside.others > 0.2


def test_the_ceiling_is_that_of_the_largest_product_in_the_time_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two times size^3 operations; the clock goes on by 0.1 s whenever it is read."""
    clock = iter(range(10**6))
    monkeypatch.setattr(machine.time, "perf_counter", lambda: next(clock) / 10)
    assert machine.ceiling(Host(device="cpu", precision="fp32", threads=1), 0.5) == pytest.approx(2 * 2048**3 / 0.1)


def test_memory_of_a_cpu_is_what_is_free_in_the_machine() -> None:
    import psutil

    found = machine.available_memory(Host(device="cpu"))
    assert 0 < found <= psutil.virtual_memory().total
