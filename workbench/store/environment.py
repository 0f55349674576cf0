"""Where and with what a run is made: an allow-list of facts, so that nothing private gets into a record."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import workbench
from workbench.spec.host import cores
from workbench.store.redact import redact_words

# Beside versions and machine: with equal ones a resumed run is identical.
EXACT = ("device", "precision", "threads", "micro_batch", "plain", "compile", "kernels", "python", "workbench")
PACKAGES = ("torch", "transformers", "tokenizers", "datasets", "numpy", "safetensors", "wandb")


def environment(
    argv: Sequence[str] | None = None, device: str = "cpu", precision: str = "fp32", threads: int | None = None
) -> dict[str, Any]:
    """Content of env.json. `argv` is the command line, of which passwords and keys are left out."""
    return {
        "python": platform.python_version(),
        "workbench": workbench.__version__,
        "versions": {name: version for name in PACKAGES if (version := _version(name))},
        "git": code_version(),
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "architecture": platform.machine(),
            "cpu": cpu_name(),
            "cores": cores(),
            "memory_bytes": _memory(),
            "gpu": _gpu(device),
        },
        "threads": threads or _threads(),
        "device": device,
        "precision": precision,
        "command": redact_words(list(sys.argv if argv is None else argv)),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What of two env.json decides the last digits of a run and is not the same, as key, from and to."""
    pairs: dict[str, tuple[Any, Any]] = {key: (before[key], now.get(key)) for key in EXACT if key in before}
    for part, known in (("versions", PACKAGES), ("machine", ("cpu", "gpu")), ("git", ("commit", "dirty"))):
        old, new = (dict(facts[part]) if isinstance(facts.get(part), dict) else {} for facts in (before, now))
        pairs |= {f"{part}.{key}": (old.get(key), new.get(key)) for key in known}
    return [{"key": key, "from": old, "to": new} for key, (old, new) in pairs.items() if old != new]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@cache
def code_version() -> dict[str, Any] | None:
    """What `_git` says of this package, asked once: a checkout may move on while a long command still runs old code."""
    return _git(Path(workbench.__file__).parent)


def _git(package: Path) -> dict[str, Any] | None:
    """Commit of the checkout that the code runs from, and whether its code was changed since; None outside of one."""
    commit = _ask("git", "-C", str(package), "rev-parse", "HEAD")
    # Only a repository that has our file in it: site-packages may lie within someone else's.
    if commit is None or _ask("git", "-C", str(package), "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    changes = _ask("git", "-C", str(package), "status", "--porcelain", "--", ".")
    return {"commit": commit, "dirty": bool(changes) if changes is not None else None}


def _ask(*command: str) -> str | None:
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, env=quiet, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def cpu_name() -> str:
    """The processor's model name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _gpu(device: str) -> dict[str, Any] | None:
    if not device.startswith("cuda"):
        return None
    import torch

    found = torch.cuda.get_device_properties(torch.device(device))
    return {
        "name": found.name,
        "memory_bytes": found.total_memory,
        "capability": f"{found.major}.{found.minor}",
        "cuda": torch.version.cuda,
    }


def _threads() -> int | None:
    torch = sys.modules.get("torch")
    return torch.get_num_threads() if torch is not None else None
