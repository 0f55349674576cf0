"""What the entry point of the command line sets up before a command begins."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="torch brings GNU's OpenMP, which prints its settings, on Linux")
@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({}, "GOMP_SPINCOUNT = '0'"),
        ({"OMP_WAIT_POLICY": "active"}, "OMP_WAIT_POLICY = 'ACTIVE'"),
        ({"GOMP_SPINCOUNT": "77"}, "GOMP_SPINCOUNT = '77'"),
    ],
)
def test_threads_that_wait_sleep_unless_the_caller_chose_otherwise(given: dict[str, str], shown: str) -> None:
    free = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    done = subprocess.run(
        [sys.executable, "-m", "workbench", "doctor"], capture_output=True, text=True, check=True,
        env=free | {"OMP_DISPLAY_ENV": "verbose"} | given,
    )  # fmt: skip
    assert shown in done.stderr
