"""What else the machine is doing, what it could do at most, and how much memory is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench.spec.host import Host

BUSY = 0.1  # cores that others may use, as a share of all, before we say so
STOLEN = 0.02  # share of time that the hypervisor may give to others


class Quiet:
    """How much of the processors others used while we measured."""

    def __init__(self) -> None:
        self.elapsed = self.others = self.stolen = 0.0

    @contextmanager
    def watching(self, pid: int) -> Iterator[None]:
        """Count what all processes but `pid` use inside."""
        import psutil

        ours = psutil.Process(pid)
        start, before, mine = time.monotonic(), psutil.cpu_times(), _used(ours)
        yield
        after = psutil.cpu_times()
        busy = sum(getattr(after, name) - getattr(before, name) for name in ("user", "nice", "system"))
        self.elapsed += time.monotonic() - start
        self.others += max(0.0, busy - (_used(ours) - mine))
        self.stolen += getattr(after, "steal", 0.0) - getattr(before, "steal", 0.0)

    def notes(self) -> list[str]:
        """One sentence for each thing that disturbed the measurement."""
        import psutil

        if not self.elapsed:
            return []
        cores = psutil.cpu_count() or 1
        found = []
        if self.others > BUSY * cores * self.elapsed:
            found.append(f"not quiet: other processes used {self.others / self.elapsed:.1f} of {cores} cores")
        if self.stolen > STOLEN * cores * self.elapsed:
            found.append(f"not quiet: {self.stolen / self.elapsed / cores:.0%} of the time went to other machines")
        return found


def _used(process: object) -> float:
    times = process.cpu_times()  # type: ignore[attr-defined]
    return float(times.user + times.system)


def free_memory() -> int:
    """Bytes of main memory that a new process may use."""
    import psutil

    return int(psutil.virtual_memory().available)


def available_memory(host: Host) -> int:
    """Bytes that a step may use on the host's device."""
    if not host.device.startswith("cuda"):
        return free_memory()
    import torch

    return int(torch.cuda.mem_get_info(torch.device(host.device))[0])


def peak_memory(device: str) -> int:
    """Bytes at this process's peak: allocated on a CUDA device, resident in main memory otherwise."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.max_memory_allocated(device))
    status = Path("/proc/self/status")
    if status.is_file():  # getrusage would count what the parent had at its peak as well
        return 1024 * int(status.read_text().partition("VmHWM:")[2].split()[0])
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def ceiling(host: Host, seconds: float = 0.5) -> float:
    """FLOP/s of the fastest square matrix product in the host's precision, of a few sizes, for about `seconds`."""
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
