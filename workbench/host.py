"""How a run is carried out on this machine. Never part of what the run is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workbench.errors import InputError


@dataclass(frozen=True)
class Host:
    """`device` is "auto" or a torch device; `precision` "auto" is bf16 on CUDA and fp32 elsewhere.

    `micro_batch` rows are computed at once (all of them if None); metrics are written every `log_every` steps,
    one row a step; a checkpoint is written every `save_seconds` seconds, or every `save_every` steps if given.
    """

    device: str = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    compile: bool = False
    threads: int | None = None
    micro_batch: int | None = None
    log_every: int = 20
    save_seconds: float = 300.0
    save_every: int | None = None
    track: str | None = None

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

    def resolved_precision(self) -> Literal["fp32", "bf16"]:
        if self.precision != "auto":
            return self.precision
        return "bf16" if self.resolved_device().startswith("cuda") else "fp32"
