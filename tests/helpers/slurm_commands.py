"""Commands with --launcher slurm, which run beside a test, and what they have said."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drills.small import environment
from helpers import slurm

LIMIT = 400.0


def begun(given: list[str], folder: Path, cache: Path, cluster: dict[str, str]) -> subprocess.Popen[str]:
    with (folder / "said").open("a") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "workbench", *given, "--launcher", "slurm"], cwd=folder,
            env=environment(cache) | cluster, stderr=said, stdout=subprocess.DEVNULL, text=True,
        )  # fmt: skip


def wait_for(found: Callable[[], Any], process: subprocess.Popen[str], folder: Path) -> Any:
    until = time.monotonic() + LIMIT
    while not (value := found()):
        assert process.poll() is None and time.monotonic() < until, (folder / "said").read_text()
        time.sleep(0.1)
    return value


def submitted(folder: Path) -> str:
    match = re.search(r"submitted to SLURM as (\d+)", (folder / "said").read_text())
    return match[1] if match else ""


def asked(cluster: dict[str, str], *command: str) -> str:
    return slurm.asked({**os.environ, **cluster}, *command)
