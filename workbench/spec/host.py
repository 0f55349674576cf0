"""How a run is carried out on this machine. Never part of what the run is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from workbench.errors import InputError

WIDE = 64  # width of an encoder from which bf16 pays on a CPU


def cores() -> int:
    """Cores this process may use, which a cluster's scheduler may have made fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
        return "bf16" if device.startswith("cuda") or (device == "cpu" and width >= WIDE and _has_bf16()) else "fp32"


def _has_bf16() -> bool:
    """Whether the CPU multiplies bf16 in hardware (AVX512-BF16, AMX), as far as torch can tell."""
    import torch

    found = torch.cpu.get_capabilities()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))
