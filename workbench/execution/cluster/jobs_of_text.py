"""The slices of a large text as jobs of a SLURM cluster: an array of processes, each of which takes the next free one.

Each job is a `workbench encode-slices` (see `data.slices.encode_slices`), whose folder is CACHE/jobs/TEXT-....
"""

from __future__ import annotations

import shlex
import sys

from workbench.data.preprocessing import Plan
from workbench.data.streams import Advance
from workbench.errors import InputError, plural
from workbench.execution.cluster.job_array import MOST, Work, in_queue, last_words, new_folder, submit, wait
from workbench.spec.host import Launch
from workbench.store.run_store import JOBS

# The tokenizer's threads; without a number of cores, a job may use all that SLURM gives it.
THREADS = 'if [ -n "$SLURM_CPUS_PER_TASK" ]; then export RAYON_NUM_THREADS="$SLURM_CPUS_PER_TASK"; fi'


def encode(plan: Plan, workers: int, advance: Advance, launch: Launch) -> None:
    """Make the missing slices of a plan by at most `workers` jobs, and wait until they have ended.

    Jobs in the queue that an earlier command submitted for the same text are waited for instead. Raises InputError if
    SLURM refuses the jobs, or if slices are missing in the end.
    """
    left = [number for number in range(len(plan.slices)) if not plan.folder(number).is_dir()]
    for number in set(range(len(plan.slices))) - set(left):
        advance(plan.slices[number].size)
    if not left:
        return
    home, parts = plan.root / JOBS, (str(plan.path),)
    array = in_queue(home, parts, "prepare this text")
    if array is None:
        command = shlex.join([sys.executable, "-m", "workbench", "encode-slices", str(plan.path)])
        work = Work(parts, command, min(workers, len(left), MOST), setup=THREADS)
        array = submit(new_folder(home, plan.key), launch, work)

    def look() -> None:
        for number in [number for number in left if plan.folder(number).is_dir()]:
            left.remove(number)
            advance(plan.slices[number].size)

    wait(array, look)
    if left:
        raise InputError(
            f"the jobs {array.job} of SLURM have ended, and {plural(len(left), 'slice')} of the text are not there; "
            f"the logs are in {array.folder}, and the same command submits them again{last_words(array.folder)}"
        )
