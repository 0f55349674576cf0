"""Settings of how a run is carried out on this machine, which are not part of the run's identity."""

from __future__ import annotations

import os
import platform
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from workbench.errors import InputError, plural, suggest
from workbench.options import Computation

DEVICE = re.compile(r"cpu|mps|cuda(:[0-9]{1,4})?")
WIDE = 64  # the smallest width of an encoder that is computed faster in bf16 on a CPU

ISA_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")  # environment variables of torch

PARENT = "WORKBENCH_RANK_PARENT"  # environment variable of a process for another device: its parent's number


def cores(root: Path = Path("/")) -> int:
    """Return how many cores this process may use: by its CPU affinity and CPU quotas. `root` holds `proc` and `sys`."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in _control_groups(root):
        for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):  # of version 2 and 1
            try:
                quota, period = map(int, " ".join(map(Path.read_text, map(group.joinpath, names))).split())
            except (OSError, ValueError):  # no such files, or "max": no quota
                continue
            if quota > 0 and period > 0:  # -1: no quota
                bound = min(bound, quota // period)
    return max(1, bound)


def _control_groups(root: Path) -> Iterator[Path]:
    """Yield the folders of the control groups that limit the CPU of this process: its own, and the groups above it.

    Containers and schedulers set quotas in them, in version 1 and 2 (Linux, admin-guide/cgroup-v1, cgroup-v2.rst). A
    container may only see the part of their tree below the root of its mount.
    """
    try:
        groups = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
        mounts = (root / "proc/self/mountinfo").read_text("utf-8").splitlines()
    except (OSError, ValueError):  # there are none
        return
    own: dict[str, str] = {}
    for line in groups:
        _, names, path = line.split(":", 2)
        if not names or "cpu" in names.split(","):
            own["cgroup" if names else "cgroup2"] = path
    for line in mounts:
        mount = line.split(" ")
        kind, _, options, *_ = [*mount[mount.index("-") + 1 :], "", "", ""] if "-" in mount else ("", "", "")
        if kind not in own or (kind == "cgroup" and "cpu" not in options.split(",")):
            continue
        top, inner = root / mount[4].replace("\\040", " ").lstrip("/"), os.path.relpath(own[kind], mount[3])
        group = top if inner.startswith("..") else top / inner
        for each in (group, *group.parents):
            if each.is_relative_to(top):
                yield each


def threads_for_each(workers: int) -> int:
    """Return the threads of each of several processes: an equal share of the cores, but at most OMP_NUM_THREADS."""
    share, limit = max(1, cores() // workers), os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return max(1, min(share, int(limit))) if limit.isdecimal() else share


def visible_cards() -> list[str]:
    """Return the GPUs that are visible to this process, as values for CUDA_VISIBLE_DEVICES; empty if there are none."""
    import torch

    count = torch.cuda.device_count()
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return names.split(",")[:count] if names is not None else [str(index) for index in range(count)]


def set_by_launcher(name: str) -> str:
    """Return an environment variable that a launcher such as torchrun sets. Raises InputError if it is not set."""
    value = os.environ.get(name)
    if not value:
        raise InputError(
            f"the environment variable {name} is not set, as it is by `workbench run --devices N` and by torchrun for "
            f"each of their processes; start those instead"
        )
    return value


def number_by_launcher(name: str) -> int:
    """Return an environment variable that a launcher sets, as an integer. Raises InputError for any other value."""
    value = set_by_launcher(name)
    if not (value.isascii() and value.isdecimal() and len(value) < 10):
        raise InputError(
            f"the environment variable {name}={value[:80]!r} is not a whole number, as `workbench run --devices N` and "
            f"torchrun set it for each of their processes; start those instead"
        )
    return int(value)


def launched() -> int:
    """Return the number of processes of a command that `torchrun` started, or 1. Raises InputError."""
    return number_by_launcher("WORLD_SIZE") if {"TORCHELASTIC_RUN_ID", "WORLD_SIZE"} <= os.environ.keys() else 1


def follows() -> bool:
    """Return whether this process has a rank above 0 in a run of several processes. Raises InputError."""
    return (launched() > 1 or PARENT in os.environ) and number_by_launcher("RANK") > 0


@dataclass(frozen=True, kw_only=True)
class Host(Computation):
    """Settings of how a run is carried out: the options of `Computation`, and what a command adds to them.

    For `precision` "auto" see `resolved_precision`. `plain` switches off all optimisations of this package: it computes
    with Hugging Face's forward pass, losses from all logits, and fp32 if `precision` is "auto". Metrics are written
    every `log_every` steps, one row for each step; a checkpoint is written every `save_seconds` seconds, or every
    `save_every` steps if given. One run is computed on `devices` devices, by as many processes. `command` is the
    command line that the user typed, if this process was started by another one. `launch` are the options of jobs on a
    cluster, None if this machine computes. `places` say where the text and the models that a run goes on from are found
    here (`RunSpec.places`), as the spec of a run may name the places of another machine.
    """

    devices: int = 1
    log_every: int = 20
    save_seconds: float = 300.0
    command: tuple[str, ...] = ()
    launch: Launch | None = None
    places: Mapping[str, Any] = field(default_factory=dict)

    def resolved_device(self) -> str:
        """Return the name of the device. Raises InputError if the machine has no such device."""
        import torch

        if self.device == "auto":
            return "cuda" if torch.cuda.is_available() else "cpu"
        if not DEVICE.fullmatch(self.device):
            raise InputError(f"--device {self.device[:80]!r} is not one of auto, cpu, cuda, cuda:N and mps")
        kind, _, number = self.device.partition(":")
        if kind == "cuda" and not torch.cuda.is_available():
            raise InputError("--device cuda: this machine has no CUDA device that torch can use; leave --device out")
        if kind == "mps" and not torch.backends.mps.is_available():
            raise InputError("--device mps: torch finds no Metal device here; leave --device out")
        if number and int(number) >= (count := torch.cuda.device_count()):
            cards = plural(count, "CUDA device")
            raise InputError(f"--device {self.device}: this machine has {cards}, numbered from 0; name another")
        return self.device

    def rows_at_once(self, batch: int) -> int:
        """Return the number of rows in a micro-batch: `micro_batch`, or else each device's part of the batch.

        Training halves this number if memory runs out. Raises InputError if it does not divide the part of a device, or
        the devices cannot have equal parts.
        """
        if batch % self.devices:
            raise InputError(f"--devices {self.devices} does not divide batch.size={batch}; choose a divisor of it")
        part = batch // self.devices
        rows = min(self.micro_batch or part, part)
        if part % rows:
            each = f"the {part} rows of each device" if self.devices > 1 else f"batch.size={batch}"
            raise InputError(f"--micro-batch {rows} does not divide {each}; choose a divisor of it")
        return rows

    def resolved_precision(self, width: int = 0) -> Literal["fp32", "bf16"]:
        """Return the precision of computation for an encoder of this width.

        Weights, optimizer state and sums are in fp32 in both cases. "auto" is bf16 on CUDA, and on a CPU that
        multiplies bf16 in hardware if the width is at least WIDE, by measurement (docs/log.md); otherwise fp32.
        """
        if self.precision != "auto":
            return self.precision
        if self.plain:
            return "fp32"
        device = self.resolved_device()
        return "bf16" if device.startswith("cuda") or (device == "cpu" and width >= WIDE and has_bf16()) else "fp32"


def has_bf16() -> bool:
    """Return whether the CPU multiplies bf16 in hardware (AVX512-BF16 or AMX), according to torch."""
    import torch

    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def instructions() -> str:
    """Return the widest CPU instructions that torch uses, and limits: `amx, ONEDNN_MAX_CPU_ISA=AVX512_CORE`."""
    import torch

    capabilities = torch.cpu.get_capabilities()
    facts = [platform.machine()]
    for name, key in (("avx2", "avx2"), ("avx512", "avx512_f"), ("avx512-bf16", "avx512_bf16"), ("amx", "amx_bf16")):
        if capabilities.get(key):
            facts = [name]
    for name in ISA_LIMITS:
        facts += [f"{name}={value}"] if (value := os.environ.get(name)) else []
    return ", ".join(facts)


# ----------------------------------------
# Options of the jobs of a cluster, which are set as `launch.*` and are not part of a spec.


KEY = "launch."
WORD, LINE, COUNT = r"[^\s\x00-\x1f\x7f]{1,200}", r"[^\x00-\x1f\x7f]{1,2000}", r"[1-9][0-9]{0,4}"
HOUR, SIXTIETH = r"([01]?[0-9]|2[0-3])", r"[0-5]?[0-9]"
# Minutes, minutes:seconds or hours:minutes:seconds, or days-hours, to which minutes and seconds may be added.
TIME = rf"[0-9]{{1,6}}(:{SIXTIETH}){{0,2}}|[0-9]{{1,4}}-{HOUR}(:{SIXTIETH}){{0,2}}"
MEMORY = r"[0-9]{1,9}[KM]?|[0-9]{1,6}G|[0-9]{1,3}T"
# What the value of each option looks like, and an example for messages.
OPTIONS = {
    "partition": (WORD, "gpu"), "time": (TIME, "04:00:00"), "gpus": (COUNT, "1"),
    "cpus": (COUNT, "4"), "memory": (MEMORY, "16G"), "constraint": (WORD, "a100"), "account": (WORD, "nlp"),
    "qos": (WORD, "normal"), "options": (LINE, "--exclude=node7 --nice"), "setup": (LINE, "module load cuda"),
    "seconds_before": (COUNT, "120"), "profile": (LINE, "cluster.toml"),
}  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """Options of SLURM's array of jobs (https://slurm.schedmd.com/sbatch.html); options that are None are left out."""

    partition: str | None = None  #: as sbatch takes it
    time: str | None = None  #: limit of one job
    gpus: int | None = None  #: GPUs of one job
    cpus: int | None = None  #: cores of one job
    memory: str | None = None  #: memory of one job
    constraint: str | None = None  #: as sbatch takes it
    account: str | None = None  #: as sbatch takes it
    qos: str | None = None  #: as sbatch takes it
    options: str | None = None  #: any further options of sbatch, separated by blanks
    setup: str | None = None  #: a line of shell that each job runs first
    seconds_before: int = 120  #: seconds before its limit at which a job saves, ends and is queued again


def seconds(time: str) -> int:
    """Return the seconds of a time limit, which is written as sbatch takes it; 0 is no limit."""
    days, dash, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    return 86400 * int(days or 0) + sum(unit * part for unit, part in zip(units, parts, strict=False))


def checked(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Return values of options in their types. Raises InputError for an unknown option or an unsuitable value."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        if key not in OPTIONS:
            known = [KEY + name for name in OPTIONS]
            raise InputError(f"unknown key {KEY + key!r} in {where}{suggest(KEY + key, known)}")
        pattern, example = OPTIONS[key]
        if isinstance(value, bool) or not isinstance(value, str | int) or not re.fullmatch(pattern, str(value)):
            raise InputError(f"{where}: {KEY}{key}={value!r:.80} cannot be used; a usable value is {example!r}")
        if key == "options":
            try:
                shlex.split(str(value))
            except ValueError:
                raise InputError(f"{where}: {KEY}{key}={value!r:.80} has a quotation mark that is not closed") from None
        result[key] = int(value) if pattern == COUNT else str(value)
    return result
