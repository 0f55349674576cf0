"""Facts about the machine: the load by other processes, the fastest matrix product, and free memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from workbench.spec.host import Host

BUSY = 0.1  # share of all cores that others may use without a note
STOLEN = 0.02  # share of time that the hypervisor may give to others without a note


class Quiet:
    """A record of the processor time that others used during measurements."""

    def __init__(self) -> None:
        self.elapsed = self.others = self.stolen = 0.0

    @contextmanager
    def watching(self, pid: int) -> Iterator[None]:
        """Record the processor time of all processes except `pid` while the context is open."""
        import psutil

        measured = psutil.Process(pid)
        start, before, ours_before = time.monotonic(), psutil.cpu_times(), _used(measured)
        yield
        after = psutil.cpu_times()
        busy = sum(getattr(after, name) - getattr(before, name) for name in ("user", "nice", "system"))
        self.elapsed += time.monotonic() - start
        self.others += max(0.0, busy - (_used(measured) - ours_before))
        self.stolen += getattr(after, "steal", 0.0) - getattr(before, "steal", 0.0)

    def notes(self) -> list[str]:
        """Return a sentence for each kind of disturbance of the measurements."""
        import psutil

        if not self.elapsed:
            return []
        cores = psutil.cpu_count() or 1
        sentences = []
        if self.others > BUSY * cores * self.elapsed:
            sentences.append(f"not idle: other processes used {self.others / self.elapsed:.1f} of {cores} cores")
        if self.stolen > STOLEN * cores * self.elapsed:
            sentences.append(f"not idle: {self.stolen / self.elapsed / cores:.0%} of the time went to other machines")
        return sentences


def _used(process: object) -> float:
    """Return the processor seconds that a process has used."""
    times = process.cpu_times()  # type: ignore[attr-defined]
    return float(times.user + times.system)


def free_memory() -> int:
    """Return the bytes of main memory that a new process may use."""
    import psutil

    return int(psutil.virtual_memory().available)


def available_memory(host: Host) -> int:
    """Return the bytes that a step may use on the host's device."""
    if not host.device.startswith("cuda"):
        return free_memory()
    import torch

    return int(torch.cuda.mem_get_info(torch.device(host.device))[0])


def ceiling(host: Host, seconds: float = 0.5) -> float:
    """Return the FLOP/s of the fastest square matrix product in the host's precision.

    A few sizes are measured, for about `seconds` in all.
    """
    import torch

    from workbench import cpu

    cpu.prepare(host.threads, host.plain, host.device)
    cuda = host.device.startswith("cuda")
    dtype = torch.bfloat16 if host.precision == "bf16" else torch.float32
    best = 0.0
    sizes = (4096, 8192, 16384) if cuda else (1024, 2048)
    for size in sizes:
        a = torch.ones(size, size, device=host.device, dtype=dtype)
        b = torch.ones(size, size, device=host.device, dtype=dtype)
        for _ in range(2):
            a @ b
        ends = time.perf_counter() + seconds / len(sizes)
        while time.perf_counter() < ends:
            start = time.perf_counter()
            for _ in range(10 if cuda else 1):
                product = a @ b
            product[0, 0].item()
            best = max(best, (10 if cuda else 1) * 2 * size**3 / (time.perf_counter() - start))
    return best
