"""The runs of a command as jobs of a SLURM cluster: an array of workers, each of which takes the next free run.

    STORE/jobs/NAME/assignment.json job.sh submitted.json 12_0.log 12_1.log ...

Each job is a `workbench worker` (see `workers`). As on one machine, the lease of a run ensures that only one worker
trains it. Shortly before a job's time limit, SLURM sends it SIGUSR1; its worker saves and ends, and the job is queued
again. States of jobs are read with `squeue`, which needs no accounting database, and states of runs from their folders.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.errors import InputError, plural
from workbench.execution import live
from workbench.execution.workers import Assignment
from workbench.progress import say
from workbench.spec.launch import Launch
from workbench.store.atomic import read_sealed, sealed, write_new
from workbench.store.environment import JOB_LOG
from workbench.store.redact import redact_words
from workbench.store.run_directory import RunDir, now
from workbench.store.run_store import JOBS

log = logging.getLogger("workbench")
LOOK = 5.0  # seconds between two looks at the queue
PATIENCE = 60.0  # seconds for a command of SLURM to answer
ENDED = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")
# What `sbatch --parsable` prints: a number, and the cluster if there are several.
JOB = re.compile(r"(\d{1,18})(?:;.*)?")
MOST = 1000  # jobs of an array; clusters often limit it to 1,001

SCRIPT = """#!/bin/bash
{directives}
# Written by workbench. Before the time limit the worker saves its run and ends, and this job is queued again.
export {log_variable}={folder}/${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}.log
limit=no
trap 'limit=yes; kill -USR1 "$worker" 2>/dev/null' USR1
trap : TERM
{setup}
{command} &
worker=$!
code=0
while kill -0 "$worker" 2>/dev/null; do wait "$worker"; code=$?; done
if [ "$limit" = yes ] && [ "$code" = 143 ]; then
  scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
fi
exit "$code"
"""


@dataclass(frozen=True)
class Submitted:
    """An array of jobs: its number in SLURM, its folder, and the runs that it carries out."""

    job: str
    folder: Path
    runs: tuple[str, ...]


def share(assignment: Assignment, todo: Sequence[str], jobs: int) -> None:
    """Carry out an assignment, of which the runs `todo` are not done, by at most `jobs` jobs; wait until they end.

    Jobs that an earlier command submitted for the same runs are waited for instead. An exception here, such as a
    signal's, leaves the jobs in the queue. Raises InputError if SLURM refuses the jobs.
    """
    if not todo:
        return
    array = _in_queue(assignment) or _submit(assignment, min(jobs, len(todo), MOST))
    runs = [RunDir(assignment.store / run_id) for run_id in assignment.runs]
    try:
        _wait(array, runs)
    except BaseException:
        say(
            f"workbench: the jobs {array.job} of SLURM go on; scancel {array.job} ends them, and the same command waits"
        )
        raise
    left = [run for run in runs if run.run_id in todo and not run.trained and not run.damage]
    if left:
        log.warning(
            "the jobs %s of SLURM have ended, and %s not trained; their logs are in %s, and the same command submits "
            "them again%s", array.job, "1 run is" if len(left) == 1 else f"{len(left)} runs are", array.folder,
            _last_words(array.folder),
        )  # fmt: skip


def check() -> None:
    """Raise InputError if the commands of SLURM are not there."""
    lacking = next((name for name in ("sbatch", "squeue", "scontrol") if not shutil.which(name)), None)
    if lacking:
        raise InputError(
            f"--launcher slurm: the command {lacking} is not found; give the command on a machine from which jobs are "
            f"submitted, or leave --launcher out"
        )


def queued(store: Path) -> list[str]:
    """Return a sentence on each array of jobs of this store that is in the queue; none where SLURM is not there."""
    arrays = _submissions(store)
    if not arrays or not shutil.which("squeue"):
        return []
    try:
        queue = _queue([array.job for array in arrays])
    except OSError as error:
        return [str(error)]
    return [_sentence(array.job, queue[array.job]) for array in arrays if array.job in queue]


def _in_queue(assignment: Assignment) -> Submitted | None:
    """Return the newest array in the queue that carries out the same runs, or None. Raises InputError."""
    same = [array for array in _submissions(assignment.store) if set(array.runs) == set(assignment.runs)]
    try:
        queue = _queue([array.job for array in same])
    except OSError as error:
        raise InputError(f"--launcher slurm: {error}; without it, no jobs are submitted") from None
    array = next((array for array in same if array.job in queue), None)
    if array is not None:
        say(f"workbench: the jobs {array.job} of SLURM carry out these runs already; this command waits for them")
    return array


def _submissions(store: Path) -> list[Submitted]:
    """Return all arrays that commands submitted for this store, the newest first."""
    found = []
    for path in sorted((store / JOBS).glob("*/submitted.json"), reverse=True):
        try:
            content, has_seal = read_sealed(path)
        except (OSError, ValueError):
            continue  # a file that is being written, or was damaged: its jobs are not recognised
        if has_seal:
            found.append(Submitted(content["job"], path.parent, tuple(content["runs"])))
    return found


def _submit(assignment: Assignment, jobs: int) -> Submitted:
    """Submit an array of jobs. Raises InputError if SLURM refuses it."""
    launch = assignment.host.launch
    assert launch is not None
    stamp = now().translate({ord(":"): None}).partition("+")[0]
    folder = (assignment.store / JOBS / f"{assignment.record}-{stamp}-{uuid.uuid4().hex[:6]}").absolute()
    folder.mkdir(parents=True)
    words = tuple(redact_words(assignment.host.command or sys.argv))
    host = replace(assignment.host, launch=None, command=words, threads=assignment.host.threads or launch.cpus)
    store = assignment.store.absolute()
    replace(assignment, store=store, host=host, parent=0).write(folder / "assignment.json")
    (folder / "job.sh").write_text(script(folder, launch, jobs), encoding="utf-8")
    done = _reply("sbatch", "--parsable", str(folder / "job.sh"))
    if done.returncode:
        shutil.rmtree(folder)
        raise InputError(f"--launcher slurm: sbatch refused the jobs: {_reason(done)}")
    numbers = [match[1] for line in done.stdout.splitlines() if (match := JOB.fullmatch(line.strip()))]
    if not numbers:
        raise InputError(
            f"--launcher slurm: sbatch printed no number of a job, but {_one_line(done.stdout)!r}; see squeue --me for "
            f"jobs that were submitted nevertheless"
        )
    job = numbers[-1]
    write_new(folder / "submitted.json", sealed({"job": job, "runs": list(assignment.runs)}))
    say(f"workbench: submitted to SLURM as {job}, {plural(jobs, 'job')}; logs are in {folder}")
    return Submitted(job, folder, assignment.runs)


def script(folder: Path, launch: Launch, jobs: int) -> str:
    """Return the script of each job of an array."""
    given = {
        "job-name": "workbench", "array": f"0-{jobs - 1}", "output": f"{folder}/%A_%a.log", "open-mode": "append",
        "signal": f"B:USR1@{launch.seconds_before}", "partition": launch.partition, "time": launch.time,
        "gpus-per-node": launch.gpus, "cpus-per-task": launch.cpus, "mem": launch.memory,
        "constraint": launch.constraint, "account": launch.account, "qos": launch.qos,
    }  # fmt: skip
    lines = [f"#SBATCH --{name}={value}" for name, value in given.items() if value is not None]
    lines += ["#SBATCH --requeue", *(f"#SBATCH {word}" for word in shlex.split(launch.options or ""))]
    command = shlex.join([sys.executable, "-m", "workbench", "worker", str(folder / "assignment.json")])
    return SCRIPT.format(
        directives="\n".join(lines), log_variable=JOB_LOG, folder=shlex.quote(str(folder)), setup=launch.setup or "",
        command=command,
    )  # fmt: skip


def _wait(array: Submitted, runs: Sequence[RunDir]) -> None:
    """Show progress of runs and queue until none of the jobs is in the queue."""
    said, looked = "", 0.0
    with live.watching(runs, []) as look:
        while True:
            if time.monotonic() - looked >= LOOK or not looked:
                looked = time.monotonic()
                try:
                    queue = _queue([array.job])
                    if array.job not in queue:
                        break
                    sentence = _sentence(array.job, queue[array.job])
                except OSError as error:
                    sentence = f"{error}; trying again"
                if sentence != said:
                    say(f"workbench: {sentence}")  # above the table, where there is one
                    said = sentence
            look()
            time.sleep(live.REFRESH)
        look()


def _queue(jobs: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Return state and reason of the jobs of each of these arrays that has any in the queue.

    Raises OSError if the queue cannot be read now.
    """
    if not jobs:
        return {}
    done = _reply("squeue", "--noheader", "--array", "--jobs", ",".join(jobs), "--format", "%F|%T|%r")
    if done.returncode and "invalid job id" not in done.stderr.lower():  # SLURM forgets jobs minutes after their end
        raise OSError(f"the queue of SLURM cannot be read: {_reason(done)}")
    queue: dict[str, list[tuple[str, str]]] = {}
    for fields in (line.strip().split("|", 2) for line in done.stdout.splitlines()):
        if len(fields) == 3 and fields[0] in jobs and fields[1] not in ENDED:  # other lines are of a login script
            queue.setdefault(fields[0], []).append((fields[1], fields[2]))
    return queue


def _sentence(job: str, states: Sequence[tuple[str, str]]) -> str:
    """Return how many jobs of an array are in which state, and why the first one waits."""
    counts = Counter(state.lower() for state, _ in states)
    why = next((reason for state, reason in states if state == "PENDING" and reason not in ("None", "")), "")
    parts = [f"{count} {state}" for state, count in sorted(counts.items(), reverse=True)]
    return f"SLURM {job}: {', '.join(parts)}" + (f" ({why})" if why else "")


def _last_words(folder: Path) -> str:
    """Return the last line of the newest log of a job, as the end of a sentence; "" if no job wrote anything."""
    logs = sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in logs:
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if lines:
            return f"; {path.name} ends with: {lines[-1][:300]}"
    return ""


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """Return why a command of SLURM failed, in its own words, or else by its exit code."""
    return _one_line(done.stderr or done.stdout) or f"{done.args[0]} ended with exit code {done.returncode}"


def _one_line(text: str) -> str:
    """Return the first 200 characters of what a command of SLURM wrote, on one line."""
    return " ".join(text.split())[:200]


def _reply(*command: str) -> subprocess.CompletedProcess[str]:
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
