"""Memory of a process: its peak, errors that mean that it ran out, and limits that torch cannot live with."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

from workbench import process
from workbench.errors import InputError


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
    assert process.is_memory(error) is expected


def test_an_error_raised_from_one_of_memory_is_one_of_memory() -> None:
    error = ImportError("Unable to import required dependency numpy.")
    error.__cause__ = ImportError("libm.so: failed to map segment from shared object")
    assert process.is_memory(error)
    error.__cause__ = ImportError("No module named 'numpy'")
    assert not process.is_memory(error)


def test_a_module_that_fails_without_a_reason_is_out_of_memory_only_below_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error, limit = SystemError("error return without exception set"), 3 << 28
    monkeypatch.setattr(process.resource, "getrlimit", lambda _: (limit, limit))
    assert process.is_memory(error) and not process.is_memory(SystemError("bad argument to internal function"))
    limit = process.resource.RLIM_INFINITY
    assert not process.is_memory(error)


def test_an_address_space_too_small_for_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = process.FOR_TORCH
    monkeypatch.setattr(process.resource, "getrlimit", lambda _: (limit, limit))
    process.check_address_space()
    limit -= 1
    with pytest.raises(InputError, match=r"limited to 3\.2 GB \(ulimit -v\), and torch needs 3\.2 GB or more"):
        process.check_address_space()
    limit = process.resource.RLIM_INFINITY
    assert process.address_space() is None
