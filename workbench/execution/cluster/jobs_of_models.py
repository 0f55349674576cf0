"""The models of `workbench evaluate` as jobs of a SLURM cluster: each job measures one, and writes its scores.

    STORE/jobs/evaluate-.../0.json 1.json ...

Scores are in the store as well, so a job that is queued again takes only what is missing.
"""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.errors import InputError
from workbench.execution.cluster import slurm
from workbench.execution.cluster.job_array import MOST, Submitted, Work, in_queue, last_words, new_folder, submit, wait
from workbench.spec.host import Host, Launch
from workbench.store.atomic import loads, read_bytes
from workbench.store.run_store import JOBS, RunStore

log = logging.getLogger("workbench")
LARGEST = 1 << 30  # bytes of the scores of a model


def options(
    scale: str | None, sets: Sequence[str], tasks: str | None, host: Host, root: Path, flops: float | None,
    allow_bin: bool,
) -> list[str]:  # fmt: skip
    """Return these settings as options of `workbench evaluate`."""
    given = {"--scale": scale, "--tasks": tasks, "--runs": root, "--flops": flops, "--device": host.device,
             "--precision": host.precision}  # fmt: skip
    words = [word for option, value in given.items() if value is not None for word in (option, str(value))]
    return words + [word for each in sets for word in ("--set", each)] + ["--allow-bin"] * allow_bin


def measure(
    names: Sequence[str], options: Sequence[str], root: Path, launch: Launch, at_once: int | None
) -> list[dict[str, Any]]:
    """Measure each model by a job, at most `at_once` at a time; return all scores, in the order of the models.

    `options` are those of `workbench evaluate`, and `root` is the run store. Jobs in the queue that an earlier command
    submitted for the same models and options are waited for instead. Raises InputError if SLURM refuses the jobs.
    """
    slurm.check()
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


def _work(
    folder: Path, names: Sequence[str], options: Sequence[str], parts: tuple[str, ...], at_once: int
) -> Work:  # fmt: skip
    words = shlex.join([sys.executable, "-m", "workbench", "evaluate", "--json", *options])
    command = f'{words} -- "${{models[SLURM_ARRAY_TASK_ID]}}" > {shlex.quote(str(folder))}/"$SLURM_ARRAY_TASK_ID".json'
    return Work(parts, command, len(names), at_once, f"models=({shlex.join(names)})")


def _rows(array: Submitted, number: int, name: str) -> list[dict[str, Any]]:
    """Return the scores that a job wrote; none, with a warning, if it did not end."""
    try:
        rows = loads(read_bytes(array.folder / f"{number}.json", LARGEST))
    except (OSError, ValueError):
        rows = None
    if not isinstance(rows, list):
        log.warning(
            "%s was not measured by the jobs %s of SLURM, which have ended; their logs are in %s, and the same command "
            "submits them again%s", name, array.job, array.folder, last_words(array.folder, f"*_{number}.log"),
        )  # fmt: skip
        return []
    return rows
