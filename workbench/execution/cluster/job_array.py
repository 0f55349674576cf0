"""An array of jobs of a SLURM cluster: its script, its folder, and waiting until all of its jobs have ended.

    HOME/NAME/job.sh submitted.json 12_0.log 12_1.log ..., and what its jobs read and write

HOME is the folder `jobs` of a run store, or of the cache for the slices of a text. Shortly before a job's time limit,
SLURM sends it SIGUSR1; its command saves and ends, and the job is queued again.
"""

from __future__ import annotations

import shlex
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import InputError, plural
from workbench.execution import live
from workbench.execution.cluster.slurm import first_words, queue_of, reason, reply, sentence
from workbench.progress import say
from workbench.spec.host import Launch
from workbench.store.atomic import read_sealed, sealed, write_new
from workbench.store.environment import JOB_LOG
from workbench.store.run_directory import now

TAIL = 1 << 16  # bytes at the end of the log of a job in which its last line is searched for
LOOK = 5.0  # seconds between two looks at the queue
MOST = 1000  # jobs of an array; clusters often limit it to 1,001

SCRIPT = """#!/bin/bash
{directives}
# Written by workbench. Before the time limit the command saves and ends, and this job is queued again.
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
    """An array of jobs: its number in SLURM, its folder, and the names of what it does: runs, models or a text."""

    job: str
    folder: Path
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Work:
    """What the jobs of an array do.

    `parts` name it, and two arrays of the same parts do the same. `command` is the shell command of each job, `setup`
    the lines of shell before it. At most `at_once` of the `jobs` are carried out at a time.
    """

    parts: tuple[str, ...]
    command: str
    jobs: int
    at_once: int = MOST
    setup: str = ""


def new_folder(home: Path, name: str) -> Path:
    """Return a new folder for an array of jobs."""
    stamp = now().translate({ord(":"): None}).partition("+")[0]
    folder = (home / f"{name}-{stamp}-{uuid.uuid4().hex[:6]}").absolute()
    folder.mkdir(parents=True)
    return folder


def submissions(home: Path) -> list[Submitted]:
    """Return all arrays that commands submitted with their folders in `home`, the newest first."""
    found = []
    for path in sorted(home.glob("*/submitted.json"), reverse=True):
        try:
            content, has_seal = read_sealed(path)
        except (OSError, ValueError):
            continue  # a file that is being written, or was damaged: its jobs are not recognised
        if has_seal:
            found.append(Submitted(content["job"], path.parent, tuple(content["runs"])))
    return found


def in_queue(home: Path, parts: Sequence[str], what: str) -> Submitted | None:
    """Return the newest array in the queue that does the same, or None. Raises InputError if that cannot be known."""
    same = [array for array in submissions(home) if set(array.parts) == set(parts)]
    try:
        queue = queue_of([array.job for array in same])
    except OSError as error:
        raise InputError(f"--launcher slurm: {error}; without it, no jobs are submitted") from None
    array = next((array for array in same if array.job in queue), None)
    if array is not None:
        say(f"workbench: the jobs {array.job} of SLURM {what} already; this command waits for them")
    return array


def queued(*homes: Path) -> list[str]:
    """Return a sentence on each array of jobs of these folders in the queue; none where SLURM is not there."""
    arrays = [array for home in homes for array in submissions(home)]
    if not arrays or not shutil.which("squeue"):
        return []
    try:
        queue = queue_of([array.job for array in arrays])
    except OSError as error:
        return [str(error)]
    return [sentence(array.job, queue[array.job]) for array in arrays if array.job in queue]


def submit(folder: Path, launch: Launch, work: Work) -> Submitted:
    """Submit an array of jobs, whose folder is removed if SLURM refuses it. Raises InputError."""
    (folder / "job.sh").write_text(script(folder, launch, work), encoding="utf-8")
    done = reply("sbatch", "--parsable", str(folder / "job.sh"))
    if done.returncode:
        shutil.rmtree(folder)
        raise InputError(f"--launcher slurm: sbatch refused the jobs: {reason(done)}")
    # `sbatch --parsable` prints a number, and the name of the cluster if there are several.
    numbers = [line.partition(";")[0].strip() for line in done.stdout.splitlines()]
    numbers = [number for number in numbers if number.isascii() and number.isdigit() and len(number) <= 18]
    if not numbers:
        raise InputError(
            f"--launcher slurm: sbatch printed no number of a job, but {first_words(done.stdout)!r}; see squeue --me "
            f"for jobs that were submitted nevertheless"
        )
    job = numbers[-1]
    write_new(folder / "submitted.json", sealed({"job": job, "runs": list(work.parts)}))
    say(f"workbench: submitted to SLURM as {job}, {plural(work.jobs, 'job')}; logs are in {folder}")
    return Submitted(job, folder, work.parts)


def script(folder: Path, launch: Launch, work: Work) -> str:
    """Return the script of each job of an array."""
    most = f"%{work.at_once}" if work.at_once < work.jobs else ""
    doubled = str(folder).replace("%", "%%")  # sbatch replaces %x and others in the name of a log
    given = {
        "job-name": "workbench", "array": f"0-{work.jobs - 1}{most}", "output": f"{doubled}/%A_%a.log",
        "open-mode": "append", "signal": f"B:USR1@{launch.seconds_before}", "partition": launch.partition,
        "time": launch.time, "gpus-per-node": launch.gpus, "cpus-per-task": launch.cpus, "mem": launch.memory,
        "constraint": launch.constraint, "account": launch.account, "qos": launch.qos,
    }  # fmt: skip
    words = [f"--{name}={value}" for name, value in given.items() if value is not None]
    words += ["--requeue", *shlex.split(launch.options or "")]
    lines = [f"#SBATCH {shlex.quote(word)}" for word in words]  # sbatch divides each at blanks outside of quotes
    return SCRIPT.format(
        directives="\n".join(lines), log_variable=JOB_LOG, folder=shlex.quote(str(folder)),
        setup="\n".join(filter(None, (launch.setup, work.setup))), command=work.command,
    )  # fmt: skip


def wait(array: Submitted, look: Callable[[], None]) -> None:
    """Call `look` every second until none of the jobs is in the queue, whose changes are shown.

    An exception here, such as a signal's, leaves the jobs in the queue.
    """
    said, looked = "", 0.0
    try:
        while True:
            if time.monotonic() - looked >= LOOK or not looked:
                looked = time.monotonic()
                try:
                    queue = queue_of([array.job])
                    if array.job not in queue:
                        break
                    state = sentence(array.job, queue[array.job])
                except OSError as error:
                    state = f"{error}; trying again"
                if state != said:
                    say(f"workbench: {state}")  # above the table, where there is one
                    said = state
            look()
            time.sleep(live.REFRESH)
        look()
    except BaseException:
        say(
            f"workbench: the jobs {array.job} of SLURM go on; scancel {array.job} ends them, and the same command waits"
        )
        raise


def last_words(folder: Path, logs_of: str = "*.log") -> str:
    """Return the last line of the newest log of a job, as the end of a sentence; "" if no job wrote anything."""
    logs = sorted(folder.glob(logs_of), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in logs:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            lines = file.read(TAIL).decode(errors="replace").strip().splitlines()
        if lines:
            return f"; {path.name} ends with: {lines[-1][:300]}"
    return ""
