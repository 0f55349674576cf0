"""Options of the jobs of a cluster, which are set as `launch.*` and are not part of a spec."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

from workbench.errors import InputError, suggest

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
        if key == "options" and not _divided(str(value)):
            raise InputError(f"{where}: {KEY}{key}={value!r:.80} has a quotation mark that is not closed")
        result[key] = int(value) if pattern == COUNT else str(value)
    return result


def _divided(text: str) -> bool:
    """Return whether a text can be divided into words as a shell does."""
    try:
        shlex.split(text)
    except ValueError:
        return False
    return True
