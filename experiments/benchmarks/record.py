"""What every result says of where and with what it was measured."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from workbench.store.environment import environment

KEPT = ("command", "machine", "versions", "git", "threads", "started")


def here(device: str = "cpu", threads: int | None = None) -> dict[str, Any]:
    """The command without its folders, machine, versions and state of the code; `load`, of the minute before."""
    command = [Path(word).name if "/" in word else word for word in sys.argv]
    facts = environment(command, device=device, threads=threads)
    return {name: facts[name] for name in KEPT} | {"load": round(os.getloadavg()[0], 1)}
