"""The runs of a command as jobs of a SLURM cluster: an array of workers, each of which takes the next free run.

Each job is a `workbench worker` (see `workers`). As on one machine, the lease of a run ensures that only one worker
trains it. States of runs are read from their folders.
"""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace

from workbench.execution import live
from workbench.execution.cluster.job_array import (
    MOST,
    Submitted,
    Work,
    in_queue,
    last_words,
    new_folder,
    submit,
    wait,
)
from workbench.execution.workers import Assignment
from workbench.store.redact import redact_words
from workbench.store.run_directory import RunDir
from workbench.store.run_store import JOBS

log = logging.getLogger("workbench")


def share(assignment: Assignment, todo: Sequence[str], jobs: int) -> None:
    """Carry out an assignment, of which the runs `todo` are not done, by at most `jobs` jobs; wait until they end.

    Jobs that an earlier command submitted for the same runs are waited for instead. An exception here, such as a
    signal's, leaves the jobs in the queue. Raises InputError if SLURM refuses the jobs.
    """
    if not todo:
        return
    array = in_queue(assignment.store / JOBS, assignment.runs, "carry out these runs")
    array = array or _submit(assignment, min(jobs, len(todo), MOST))
    runs = [RunDir(assignment.store / run_id) for run_id in assignment.runs]
    with live.watching(runs, []) as look:
        wait(array, look)
    left = [run for run in runs if run.run_id in todo and not run.trained and not run.damage]
    if left:
        log.warning(
            "the jobs %s of SLURM have ended, and %s not trained; their logs are in %s, and the same command submits "
            "them again%s", array.job, "1 run is" if len(left) == 1 else f"{len(left)} runs are", array.folder,
            last_words(array.folder),
        )  # fmt: skip


def _submit(assignment: Assignment, jobs: int) -> Submitted:
    """Submit an array of jobs. Raises InputError if SLURM refuses it."""
    launch = assignment.host.launch
    assert launch is not None
    folder = new_folder(assignment.store / JOBS, assignment.record)
    words = tuple(redact_words(assignment.host.command or sys.argv))
    host = replace(assignment.host, launch=None, command=words, threads=assignment.host.threads or launch.cpus)
    store = assignment.store.absolute()
    replace(assignment, store=store, host=host, parent=0).write(folder / "assignment.json")
    command = shlex.join([sys.executable, "-m", "workbench", "worker", str(folder / "assignment.json")])
    return submit(folder, launch, Work(assignment.runs, command, jobs))
