"""How a run is carried out on this machine. Never part of what the run is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workbench.errors import InputError

WIDE = 64  # width of an encoder from which bf16 pays on a CPU


QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of the control group that a container or a scheduler puts its processes in


def cores() -> int:
    """Return how many cores this process may use: those it is bound to, and no more than its CPU quota grants."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = QUOTA.read_text().split()
        return max(1, min(bound, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no control groups, or "max": no quota
        return bound


def threads_for_each(workers: int) -> int:
    """Return the threads of each of so many processes: a share of the cores, or OMP_NUM_THREADS if that is less."""
    share, limit = max(1, cores() // workers), os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return max(1, min(share, int(limit))) if limit.isdecimal() else share


def visible_cards() -> list[str]:
    """Return the GPUs that this process sees, as values for CUDA_VISIBLE_DEVICES. Empty where there is none."""
    import torch

    count = torch.cuda.device_count()
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return names.split(",")[:count] if names is not None else [str(index) for index in range(count)]


@dataclass(frozen=True)
class Host:
    """`device` is "auto" or a torch device; `precision` "auto" is fp32 or bf16, see `resolved_precision`.

    `plain` leaves out every shortcut of ours: Hugging Face's forward pass, losses written out, fp32 unless asked.
    `micro_batch` rows are computed at once (all of them if None); metrics are written every `log_every` steps,
    one row a step; a checkpoint is written every `save_seconds` seconds, or every `save_every` steps if given.
    `command` is what the user typed, where that is another process's command line than this one's.
    """

    device: str = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    plain: bool = False
    compile: bool = False
    threads: int | None = None
    micro_batch: int | None = None
    log_every: int = 20
    save_seconds: float = 300.0
    save_every: int | None = None
    track: str | None = None
    command: tuple[str, ...] = ()

    def resolved_device(self) -> str:
        """The device by name. Raises InputError if one is asked for that is not there."""
        import torch

        if self.device == "auto":
            return "cuda" if torch.cuda.is_available() else "cpu"
        kind = self.device.partition(":")[0]
        if kind == "cuda" and not torch.cuda.is_available():
            raise InputError("--device cuda: this machine has no CUDA device that torch can use; leave --device out")
        if kind == "mps" and not torch.backends.mps.is_available():
            raise InputError("--device mps: torch finds no Metal device here; leave --device out")
        if kind not in ("cpu", "cuda", "mps"):
            raise InputError(f"--device {self.device!r} is not one of auto, cpu, cuda, cuda:N and mps")
        return self.device

    def rows_at_once(self, batch: int) -> int:
        """Return the rows of a micro-batch: as asked, else the whole batch; running out of memory halves them later.

        Raises InputError where they do not divide the batch.
        """
        rows = min(self.micro_batch or batch, batch)
        if batch % rows:
            raise InputError(f"--micro-batch {rows} does not divide batch.size={batch}; choose a divisor of it")
        return rows

    def resolved_precision(self, width: int = 0) -> Literal["fp32", "bf16"]:
        """What is computed in, for an encoder of this width. Weights, optimizer and sums are in fp32 in any case.

        Left open it is bf16 on CUDA, and on a CPU that multiplies bf16 in hardware from a width of WIDE on, for which
        it was measured (docs/log.md).
        """
        if self.precision != "auto":
            return self.precision
        if self.plain:
            return "fp32"
        device = self.resolved_device()
        return "bf16" if device.startswith("cuda") or (device == "cpu" and width >= WIDE and has_bf16()) else "fp32"


def has_bf16() -> bool:
    """Whether the CPU multiplies bf16 in hardware (AVX512-BF16, AMX), as far as torch can tell."""
    import torch

    found = torch.cpu.get_capabilities()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))
