"""SLURM: its queue, the options and scripts of its jobs, and what they compute: runs, models or slices of a text.

States are read with `squeue`, which needs no accounting database. The files of an array of jobs are in a folder:

    HOME/jobs/NAME-.../job.sh submitted.json *.log    HOME is a run store, or the cache for slices of a text

An array of `workbench worker` carries out runs, as on one machine: each takes the next free run, and the lease of a run
ensures that only one worker trains it. `workbench evaluate` in each job measures one model and writes its scores beside
the script. `workbench encode-slices` makes slices of a text (`data.slices.encode_slices`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import InputError, one_line, plural
from workbench.execution import workers
from workbench.execution.workers import Assignment
from workbench.options import Settings
from workbench.progress import say
from workbench.spec.host import KEY, Launch, checked, seconds
from workbench.store.atomic import loads, read_bytes, read_object, sealed, user_path, write_new
from workbench.store.environment import JOB_LOG
from workbench.store.redact import redact_words
from workbench.store.run_directory import RunDir, now
from workbench.store.run_store import JOBS, RunStore

if TYPE_CHECKING:
    from workbench.data.preprocessing import Plan
    from workbench.data.streams import Advance

log = logging.getLogger("workbench")
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
    """Return state and reason of the jobs of these arrays in the queue. Raises OSError if it cannot be read."""
    if not jobs:
        return {}
    done = reply("squeue", "--noheader", "--array", "--jobs", ",".join(jobs), "--format", "%F|%T|%r")
    if done.returncode and "invalid job id" not in done.stderr.lower():  # SLURM forgets jobs minutes after their end
        raise OSError(f"the queue of SLURM cannot be read: {_said(done)}")
    queue: dict[str, list[tuple[str, str]]] = {}
    for fields in (line.strip().split("|", 2) for line in done.stdout.splitlines()):
        if len(fields) == 3 and fields[0] in jobs and fields[1] not in ENDED:  # other lines are of a login script
            queue.setdefault(fields[0], []).append((fields[1], fields[2]))
    return queue


def sentence(job: str, states: Sequence[tuple[str, str]]) -> str:
    """Return how many jobs of an array are in which state, and why the first one waits."""
    counts = Counter(state.lower() for state, _ in states)
    why = next((why for state, why in states if state == "PENDING" and why not in ("None", "")), "")
    parts = [f"{count} {state}" for state, count in sorted(counts.items(), reverse=True)]
    return f"SLURM {job}: {', '.join(parts)}" + (f" ({why})" if why else "")


def _said(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a command of SLURM wrote, at most 200 characters on one line, or else its exit code."""
    text = " ".join((done.stderr or done.stdout).split())[:200]
    return text or f"{done.args[0]} ended with exit code {done.returncode}"


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


# ---- the options of jobs ----

LARGEST_PROFILE = 1 << 20  # bytes


def job_options(launcher: str, settings: Settings | None) -> Launch | None:
    """Return the options of jobs among the settings of --set, None for the launcher `local`.

    `launch.profile` names a TOML file with such options, over which those of --set take precedence. Raises InputError.
    """
    given: dict[str, Any] = {}
    for key, value in (settings or {}).items():
        if key.startswith(KEY):
            given[key.removeprefix(KEY)] = value
            if launcher == "local":
                raise InputError(
                    f"--set {key}={value} is an option of a cluster's jobs; add --launcher slurm, or leave it out"
                )
    if launcher == "local":
        return None
    given = checked(given, "--set")
    name = given.pop("profile", None)
    launch = Launch(**((checked(_toml(name), f"--set launch.profile={name}") if name else {}) | given))
    if launch.time is not None and 0 < seconds(launch.time) <= launch.seconds_before:
        raise InputError(
            f"launch.time={launch.time} is not longer than launch.seconds_before={launch.seconds_before}, so each job "
            f"would end as it begins; give it more time"
        )
    return launch


def _toml(name: str) -> dict[str, Any]:
    path = user_path(name, "--set launch.profile")
    try:
        content = read_bytes(path.resolve(), LARGEST_PROFILE)
    except OSError as error:
        raise InputError(f"--set launch.profile={name}: {error.strerror}") from None
    except (ValueError, RuntimeError) as error:  # resolve raises the second for links in a circle
        raise InputError(f"--set launch.profile={name}: it {error}; name a file of TOML") from None
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise InputError(f"--set launch.profile={name} is not TOML: {one_line(error)}") from None


# ---- arrays of jobs ----

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
    """What the jobs of an array do: at most `at_once` of the `jobs` at a time carry out the command, after `setup`.

    `parts` name the work, and two arrays of the same parts do the same.
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
            content = read_object(path, needs_seal=True)
        except (OSError, ValueError):
            continue  # a file that is being written, or was damaged: its jobs are not recognised
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
        raise InputError(f"--launcher slurm: sbatch refused the jobs: {_said(done)}")
    # `sbatch --parsable` prints a number, and the name of the cluster if there are several.
    numbers = [line.partition(";")[0].strip() for line in done.stdout.splitlines()]
    numbers = [number for number in numbers if number.isascii() and number.isdigit() and len(number) <= 18]
    if not numbers:
        raise InputError(
            f"--launcher slurm: sbatch printed no number of a job, but {' '.join(done.stdout.split())[:200]!r}; see "
            f"squeue --me for jobs that were submitted nevertheless"
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
    """Call `look` every second until no job is in the queue; an exception leaves the jobs in the queue."""
    said, next_look = "", 0.0
    try:
        while True:
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + LOOK
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
            time.sleep(workers.REFRESH)
        look()
    except BaseException:
        say(
            f"workbench: the jobs {array.job} of SLURM go on; scancel {array.job} ends them, and the same command waits"
        )
        raise


def last_words(folder: Path, logs_of: str = "*.log") -> str:
    """Return the last line of the newest log of a job, as the end of a sentence; "" if no job wrote anything."""
    for path in sorted(folder.glob(logs_of), key=lambda path: path.stat().st_mtime, reverse=True):
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            lines = file.read(TAIL).decode(errors="replace").strip().splitlines()
        if lines:
            return f"; {path.name} ends with: {lines[-1][:300]}"
    return ""


# ---- runs of a study ----


def share_runs(assignment: Assignment, todo: Sequence[str], jobs: int) -> None:
    """Carry out the runs `todo` of an assignment by at most `jobs` jobs. Raises InputError."""
    if not todo:
        return
    array = in_queue(assignment.store / JOBS, assignment.runs, "carry out these runs")
    array = array or _submit_runs(assignment, min(jobs, len(todo), MOST))
    runs = [RunDir(assignment.store / run_id) for run_id in assignment.runs]
    with workers.watching(runs, []) as look:
        wait(array, look)
    left = [run for run in runs if run.run_id in todo and not run.trained and not run.damage]
    if left:
        log.warning(
            "the jobs %s of SLURM have ended, and %s %s not trained; their logs are in %s, and the same command "
            "submits them again%s", array.job, plural(len(left), "run"), "is" if len(left) == 1 else "are",
            array.folder, last_words(array.folder),
        )  # fmt: skip


def _submit_runs(assignment: Assignment, jobs: int) -> Submitted:
    launch = assignment.host.launch
    assert launch is not None
    folder = new_folder(assignment.store / JOBS, assignment.record)
    words = tuple(redact_words(assignment.host.command or sys.argv))
    host = replace(assignment.host, launch=None, command=words, threads=assignment.host.threads or launch.cpus)
    store = assignment.store.absolute()
    replace(assignment, store=store, host=host, parent=0).write(folder / "assignment.json")
    command = shlex.join([sys.executable, "-m", "workbench", "worker", str(folder / "assignment.json")])
    return submit(folder, launch, Work(assignment.runs, command, jobs))


# ---- models of `workbench evaluate` ----

LARGEST_SCORES = 1 << 30  # bytes of the scores of a model


def measure_models(
    names: Sequence[str], options: Sequence[str], root: Path, launch: Launch, at_once: int | None
) -> list[dict[str, Any]]:
    """Measure each model by a job with these options, at most `at_once` at a time; return all scores.

    Raises InputError.
    """
    check()
    if len(names) > MOST:
        raise InputError(
            f"--launcher slurm: an array has at most {MOST:,} jobs, and {len(names):,} models are named; "
            "give several commands"
        )
    home = RunStore(root).root / JOBS
    parts = tuple(shlex.join([name, *options]) for name in names)
    array = in_queue(home, parts, "measure these models")
    if array is None:
        folder = new_folder(home, "evaluate")
        array = submit(folder, launch, _work(folder, names, options, parts, at_once or MOST))
    wait(array, lambda: None)
    return [row for part, name in zip(parts, names, strict=True) for row in _rows(array, array.parts.index(part), name)]


def _work(folder: Path, names: Sequence[str], options: Sequence[str], parts: tuple[str, ...], at_once: int) -> Work:
    words = shlex.join([sys.executable, "-m", "workbench", "evaluate", "--json", *options])
    command = f'{words} -- "${{models[SLURM_ARRAY_TASK_ID]}}" > {shlex.quote(str(folder))}/"$SLURM_ARRAY_TASK_ID".json'
    return Work(parts, command, len(names), at_once, f"models=({shlex.join(names)})")


def _rows(array: Submitted, number: int, name: str) -> list[dict[str, Any]]:
    with contextlib.suppress(OSError, ValueError):
        if isinstance(rows := loads(read_bytes(array.folder / f"{number}.json", LARGEST_SCORES)), list):
            return rows
    log.warning(
        "%s was not measured by the jobs %s of SLURM, which have ended; their logs are in %s, and the same command "
        "submits them again%s", name, array.job, array.folder, last_words(array.folder, f"*_{number}.log"),
    )  # fmt: skip
    return []


# ---- slices of a text ----

# The tokenizer's threads; without a number of cores, a job may use all that SLURM gives it.
THREADS = 'if [ -n "$SLURM_CPUS_PER_TASK" ]; then export RAYON_NUM_THREADS="$SLURM_CPUS_PER_TASK"; fi'


def encode_text(plan: Plan, workers: int, advance: Advance, launch: Launch) -> None:
    """Make the missing slices of a plan by at most `workers` jobs. Raises InputError if slices are still missing."""
    from workbench.data.sources import size_of

    left = list(range(len(plan.slices)))

    def look() -> None:
        for number in [number for number in left if plan.folder(number).is_dir()]:
            left.remove(number)
            advance(size_of(plan.slices[number]))

    look()
    if not left:
        return
    home, parts = plan.root / JOBS, (str(plan.path),)
    array = in_queue(home, parts, "prepare this text")
    if array is None:
        command = shlex.join([sys.executable, "-m", "workbench", "encode-slices", str(plan.path)])
        work = Work(parts, command, min(workers, len(left), MOST), setup=THREADS)
        array = submit(new_folder(home, plan.key), launch, work)
    wait(array, look)
    if left:
        raise InputError(
            f"the jobs {array.job} of SLURM have ended, and {plural(len(left), 'slice')} of the text are not there; "
            f"the logs are in {array.folder}, and the same command submits them again{last_words(array.folder)}"
        )
