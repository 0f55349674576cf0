"""Memory of a process: its peak, errors that mean that it ran out, and limits that torch cannot live with."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

from workbench import memory
from workbench.errors import InputError


def test_peak_memory_is_this_process_s() -> None:
    code = (
        "from workbench.memory import peak_memory; before = peak_memory('cpu'); x = b'x' * 2**28; "
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
    assert memory.is_memory(error) is expected


def test_an_address_space_too_small_for_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = memory.NEEDED
    monkeypatch.setattr(memory.resource, "getrlimit", lambda _: (limit, limit))
    memory.check_address_space()
    limit -= 1
    with pytest.raises(InputError, match=r"limited to 3\.2 GB \(ulimit -v\), and torch needs 3\.2 GB or more"):
        memory.check_address_space()
    limit = memory.resource.RLIM_INFINITY
    assert memory.address_space() is None
