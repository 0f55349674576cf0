"""The machine and the software that a run is made with: a fixed list of facts, so that records hold nothing private."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any

import workbench
from workbench.spec.host import cores
from workbench.store.redact import redact_words

# A resumed run is identical to an uninterrupted one if these are equal, together with versions and machine.
EXACT = ("device", "precision", "threads", "micro_batch", "devices", "shard", "plain", "compile", "kernels",
         "instructions", "python", "workbench")  # fmt: skip
JOB_LOG = "WORKBENCH_JOB_LOG"  # environment variable: the log of the job in which this process runs
WAYS = {"tiles": "amx", "avx512": "avx512-bf16"}  # kernels of env.json -> their name in a kind of arithmetic
SWITCH = ", then "  # between two kinds of arithmetic of one run
MAKERS = ("AMD", "Intel", "Apple")  # of CPUs; models of one maker count as one processor
PACKAGES = ("torch", "transformers", "tokenizers", "datasets", "numpy", "safetensors", "wandb")


def environment(
    argv: Sequence[str] | None = None, device: str = "cpu", precision: str = "fp32", threads: int | None = None
) -> dict[str, Any]:
    """Return the content of env.json; `argv` is the command line, from which passwords and keys are removed."""
    torch, versions = sys.modules.get("torch"), {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "python": platform.python_version(),
        "workbench": workbench.__version__,
        "versions": versions,
        "git": code_version(),
        "machine": {
            "system": f"{platform.system()} {platform.release()}",
            "architecture": platform.machine(),
            "cpu": cpu_name(),
            "cores": cores(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "gpu": _gpu(device) if device.startswith("cuda") else None,
        },
        **(_job() if "SLURM_JOB_ID" in os.environ else {}),
        "threads": threads or (torch.get_num_threads() if torch is not None else None),
        "device": device,
        "precision": precision,
        "command": redact_words(list(sys.argv if argv is None else argv)),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the differences of two env.json that can change the last digits of results, as key, from and to."""
    pairs: dict[str, tuple[Any, Any]] = {key: (before[key], now.get(key)) for key in EXACT if key in before}
    for part, known in (("versions", PACKAGES), ("machine", ("cpu", "gpu")), ("git", ("commit", "dirty"))):
        old, new = (dict(facts[part]) if isinstance(facts.get(part), dict) else {} for facts in (before, now))
        pairs |= {f"{part}.{key}": (old.get(key), new.get(key)) for key in known}
    return [{"key": key, "from": old, "to": new} for key, (old, new) in pairs.items() if old != new]


def arithmetic(facts: Mapping[str, Any]) -> str:
    """Return the kind of arithmetic of an env.json: precision, kernels and processor, as in `bf16 / amx / Intel`.

    Two runs of one seed differ in their last digits, and by the end of training in their scores, if their kinds differ.
    Within a kind they may do so too: threads, micro-batches and versions change the order of sums alone. Parts that are
    not recorded are left out.
    """
    machine, kernels = facts.get("machine") or {}, facts.get("kernels") or ""
    gpu, cpu = machine.get("gpu"), machine.get("cpu") or ""
    way = "plain" if facts.get("plain") else "torch.compile" if facts.get("compile") else WAYS.get(kernels, kernels)
    processor = gpu["name"] if gpu else next(filter(cpu.__contains__, MAKERS), cpu)
    return " / ".join(filter(None, (facts.get("precision"), way, processor)))


def kinds_of_arithmetic(facts: Mapping[str, Any]) -> list[str]:
    """Return a run's kinds of arithmetic in order of training, by undoing the `changes` in env.json."""
    before, kinds = dict(facts), [arithmetic(facts)]
    for _, together in groupby(reversed(facts.get("changes", [])), key=lambda change: change["at"]):
        for change in together:
            part, _, key = change["key"].rpartition(".")
            before |= {part: {**(before.get(part) or {}), key: change["from"]}} if part else {key: change["from"]}
        kinds += [kind] if (kind := arithmetic(before)) != kinds[-1] else []
    return kinds[::-1]


@cache
def code_version() -> dict[str, Any] | None:
    """Return the commit of the package's checkout and whether its code differs from it; None outside of a checkout.

    It is read once in a process, since the checkout may change.
    """
    git = ("git", "-C", os.path.dirname(workbench.__file__))
    commit = _output(*git, "rev-parse", "HEAD")
    # The repository must contain the package's files: site-packages may lie inside a repository of another project.
    if commit is None or _output(*git, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    changes = _output(*git, "status", "--porcelain", "--", ".")
    return {"commit": commit, "dirty": bool(changes) if changes is not None else None}


def _output(*command: str) -> str | None:
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, env=quiet, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def cpu_name() -> str:
    """Return the model name of the processor."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _gpu(device: str) -> dict[str, Any]:
    import torch

    properties = torch.cuda.get_device_properties(torch.device(device))
    capability = f"{properties.major}.{properties.minor}"
    facts = {"name": properties.name, "memory_bytes": properties.total_memory}
    return facts | {"capability": capability, "cuda": torch.version.cuda}


def _job() -> dict[str, Any]:
    """Return the number, the node and the log of the SLURM job of this process, as an entry of env.json."""
    job = os.environ["SLURM_JOB_ID"]
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    name = f"{array}_{task}" if array and task else job
    return {"job": {"slurm": name, "node": platform.node(), "log": os.environ.get(JOB_LOG)}}
