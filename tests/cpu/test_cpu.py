"""Freed memory stays with a process for its next step, until it is released."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

CODE = """
import re
from pathlib import Path
import torch
from workbench import cpu
from workbench.process import release_memory

def used():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) >> 10  # MiB

cpu.prepare(1, False)
before = used()
blocks = [torch.ones(1 << 18) for _ in range(300)]
held = used()
del blocks
kept = used()
release_memory()
print(held - before, kept - before, used() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc, whose freed memory can be released")
def test_memory_is_kept_until_it_is_released() -> None:
    told = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True, timeout=120).stdout
    held, kept, released = map(int, told.split())
    assert held > 290 and kept > 250 and released < 50
