"""Facts about the machine: the load by other processes, the fastest matrix product, and free memory."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from workbench.errors import InputError, one_line
from workbench.spec.host import WIDE, Host, cores, has_bf16
from workbench.store.atomic import cache_root, can_hold_files
from workbench.store.environment import code_version, cpu_name

BUSY = 0.1  # share of all cores that others may use without a note
STOLEN = 0.02  # share of time that the hypervisor may give to others without a note


@dataclass
class Quiet:
    """Seconds of processor time that other processes and virtual machines used during measurements."""

    elapsed: float = 0.0
    others: float = 0.0
    stolen: float = 0.0

    @contextmanager
    def watching(self, pid: int) -> Iterator[None]:
        """Record the processor time of all processes except `pid` while the context is open."""
        import psutil

        measured = psutil.Process(pid)
        start, before, ours_before = time.monotonic(), psutil.cpu_times(), sum(measured.cpu_times()[:2])
        yield
        after, ours = psutil.cpu_times(), sum(measured.cpu_times()[:2])  # in user and in system mode
        busy = sum(getattr(after, name) - getattr(before, name) for name in ("user", "nice", "system"))
        self.elapsed += time.monotonic() - start
        self.others += max(0.0, busy - (ours - ours_before))
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
    """Return the FLOP/s of the fastest square matrix product in the host's precision, timed for about `seconds`."""
    import torch

    from workbench import cpu

    cpu.prepare(host.threads, host.plain, host.device)
    cuda = host.device.startswith("cuda")
    dtype = torch.bfloat16 if host.precision == "bf16" else torch.float32
    best, times = 0.0, 10 if cuda else 1
    sizes = (4096, 8192, 16384) if cuda else (1024, 2048)
    for size in sizes:
        a = torch.ones(size, size, device=host.device, dtype=dtype)
        b = torch.ones(size, size, device=host.device, dtype=dtype)
        for _ in range(2):
            a @ b
        ends = time.perf_counter() + seconds / len(sizes)
        while time.perf_counter() < ends:
            start = time.perf_counter()
            for _ in range(times):
                product = a @ b
            product[0, 0].item()
            best = max(best, times * 2 * size**3 / (time.perf_counter() - start))
    return best


# ----------------------------------------
# Checks of this installation: versions, processor, kernels, GPUs, disk space, the Hugging Face hub and trackers.


NEEDED = ("torch", "transformers", "tokenizers", "datasets", "numpy", "pandas", "matplotlib", "optuna")
OPTIONAL = {
    "wandb": "--track wandb", "trackio": "--track trackio", "tensorboard": "--track tensorboard",
    "mlflow-skinny": "--track mlflow", "psycopg": "--storage postgresql://", "pytorch-optimizer": "optim.kind=lamb",
    "sentence-transformers": "tasks.embeddings=contrastive",
}  # fmt: skip
SPACE = 5 << 30  # bytes; with less free space, a night of runs may fill the disk
HUB = ("huggingface.co", 443)
PRODUCTS = {"": "without matrix products", "tiles": "with tile registers", "avx512": "with AVX-512 BF16"}
State = Literal["ok", "missing", "problem"]


@dataclass(frozen=True)
class Check:
    """The result of one check; "missing" means that commands are slower or lack an option, "problem" that they fail."""

    what: str
    state: State
    found: str


def checks() -> list[Check]:
    """Return the results of all checks. Nothing is trained; kernels may be compiled into the cache."""
    looks: tuple[Callable[[], Iterator[Check]], ...] = (_versions, _kernels, _cards, _disk, _services)
    return [check for look in looks for check in look()]


def _versions() -> Iterator[Check]:
    import workbench

    commit = (code_version() or {}).get("commit")
    yield Check("workbench", "ok", f"{workbench.__version__}{f', commit {commit[:12]}' if commit else ''}")
    yield Check("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for name in (*NEEDED, *OPTIONAL):
        try:
            yield Check(name, "ok", metadata.version(name))
        except metadata.PackageNotFoundError:
            if name in NEEDED:
                yield Check(name, "problem", "not installed; pip install -c constraints.txt .")
            else:
                yield Check(name, "missing", f"not installed; {OPTIONAL[name]} needs it")
    yield Check("processor", "ok", f"{cpu_name()}, {cores()} cores for this process")
    yield Check("memory", "ok", f"{free_memory() / 2**30:.1f} GiB free")


def _kernels() -> Iterator[Check]:
    import torch

    from workbench.cpu import compiled

    names = {"avx512_f": "AVX-512", "avx512_bf16": "AVX-512 BF16", "amx_bf16": "AMX BF16"}
    present = [name for flag, name in names.items() if torch.cpu.get_capabilities().get(flag)]
    parts = ", ".join(present) or "neither AVX-512 nor AMX"
    chosen = f"bf16 from a width of {WIDE} on" if has_bf16() else "fp32"
    yield Check("arithmetic", "ok", f"{parts}: --precision auto means {chosen} here")
    words = shlex.split(os.environ.get("CC", "cc"))
    try:
        done = subprocess.run([*words, "--version"], capture_output=True, text=True, timeout=10, check=True)
        yield Check("C compiler", "ok", done.stdout.splitlines()[0] if done.stdout else " ".join(words))
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        yield Check("C compiler", "missing", f"{one_line(error)}; install gcc or clang, or name one in CC")
    try:
        setting, available = compiled.setting(), compiled.available(torch.float32)
    except (InputError, OSError) as error:
        yield Check("kernels", "problem", str(error))
        return
    if setting == "off":
        yield Check("kernels", "missing", f"switched off by {compiled.SETTING}; steps take up to twice as long")
    elif not available:
        yield Check("kernels", "missing", "not compiled; steps take up to twice as long, and numbers differ")
    else:
        way = compiled.products(torch.bfloat16) if compiled.available(torch.bfloat16) else ""
        yield Check("kernels", "ok", f"compiled for this CPU, {PRODUCTS[way]}")


def _cards() -> Iterator[Check]:
    import torch

    if not torch.cuda.is_available():
        yield Check("GPU", "missing", "torch finds no GPU; training runs on the CPU")
        return
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        text = f"{card.name}, {card.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
        yield Check(f"GPU {index}", "ok", text)


def _disk() -> Iterator[Check]:
    folders = {"this folder": Path.cwd()}
    try:
        folders = {"cache": cache_root(), **folders}
    except InputError as error:
        yield Check("cache", "problem", str(error))
    for what, folder in folders.items():
        free = shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
        if can_hold_files(folder):
            yield Check(what, "ok" if free >= SPACE else "missing", f"{folder}: {free / 2**30:.1f} GiB free")
        else:
            yield Check(what, "problem", f"{folder}: no file can be written there")


def _services() -> Iterator[Check]:
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON"):
        yield Check("hub", "ok", "HF_HUB_OFFLINE is set: only files in the hub's cache are used")
    else:
        try:
            socket.create_connection(HUB, timeout=3).close()
            yield Check("hub", "ok", f"{HUB[0]} can be reached")
        except OSError as error:
            text = f"{HUB[0]} cannot be reached ({one_line(error)}); local corpora and tasks work"
            yield Check("hub", "missing", text)
    if mode := os.environ.get("WANDB_MODE"):
        yield Check("tracker", "ok", f"WANDB_MODE={mode}")
