"""The commands of SLURM: what they answer, and the states of jobs in its queue.

States are read with `squeue`, which needs no accounting database.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence

from workbench.errors import InputError

PATIENCE = 60.0  # seconds for a command of SLURM to answer
ENDED = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")


def check() -> None:
    """Raise InputError if the commands of SLURM are not there."""
    lacking = next((name for name in ("sbatch", "squeue", "scontrol") if not shutil.which(name)), None)
    if lacking:
        raise InputError(
            f"--launcher slurm: the command {lacking} is not found; give the command on a machine from which jobs are "
            f"submitted, or leave --launcher out"
        )


def queue_of(jobs: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Return state and reason of the jobs of each of these arrays that has any in the queue.

    Raises OSError if the queue cannot be read now.
    """
    if not jobs:
        return {}
    done = reply("squeue", "--noheader", "--array", "--jobs", ",".join(jobs), "--format", "%F|%T|%r")
    if done.returncode and "invalid job id" not in done.stderr.lower():  # SLURM forgets jobs minutes after their end
        raise OSError(f"the queue of SLURM cannot be read: {reason(done)}")
    queue: dict[str, list[tuple[str, str]]] = {}
    for fields in (line.strip().split("|", 2) for line in done.stdout.splitlines()):
        if len(fields) == 3 and fields[0] in jobs and fields[1] not in ENDED:  # other lines are of a login script
            queue.setdefault(fields[0], []).append((fields[1], fields[2]))
    return queue


def sentence(job: str, states: Sequence[tuple[str, str]]) -> str:
    """Return how many jobs of an array are in which state, and why the first one waits."""
    counts = Counter(state.lower() for state, _ in states)
    why = next((reason for state, reason in states if state == "PENDING" and reason not in ("None", "")), "")
    parts = [f"{count} {state}" for state, count in sorted(counts.items(), reverse=True)]
    return f"SLURM {job}: {', '.join(parts)}" + (f" ({why})" if why else "")


def reason(done: subprocess.CompletedProcess[str]) -> str:
    """Return why a command of SLURM failed, in its own words, or else by its exit code."""
    return first_words(done.stderr or done.stdout) or f"{done.args[0]} ended with exit code {done.returncode}"


def first_words(text: str) -> str:
    """Return the first 200 characters of what a command of SLURM wrote, on one line."""
    return " ".join(text.split())[:200]


def reply(*command: str) -> subprocess.CompletedProcess[str]:
    """Return what a command of SLURM answered; one that cannot be started or does not answer in time has failed."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, encoding="utf-8", errors="replace", timeout=PATIENCE, check=False,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except OSError as error:
        return subprocess.CompletedProcess(command, 1, "", f"{command[0]} cannot be started: {error.strerror}")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"{command[0]} did not answer within {PATIENCE:.0f} s")
