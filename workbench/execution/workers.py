"""Worker processes that share the runs of one command. Each takes the next run that no other process owns."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.errors import InputError, Interrupted, one_line, plural
from workbench.execution import live
from workbench.progress import terminal
from workbench.spec.host import Host, threads_for_each, visible_cards
from workbench.store.atomic import read_sealed, sealed, write_new
from workbench.store.redact import redact_words
from workbench.store.run_directory import RunDir

log = logging.getLogger("workbench")


@dataclass(frozen=True)
class Assignment:
    """The input of every worker of a command, which is passed as one JSON file.

    `runs` are ids of runs in `store`, `record` is the name of the experiment's record there, `base` are the settings
    that all runs share, with the places of text and tasks on this machine, and `objectives` are the files of objectives
    that are in no package. `host` has the settings by which runs are carried out. Runs that failed before the time
    `since` are tried again. A worker ends when the process `parent` ends, unless that is 0.
    """

    store: Path
    record: str
    base: dict[str, Any]
    runs: tuple[str, ...]
    objectives: tuple[str, ...]
    host: Host
    since: str
    parent: int

    def write(self, path: Path) -> None:
        """Write the assignment to a file."""
        from pydantic import TypeAdapter

        write_new(path, sealed(TypeAdapter(Assignment).dump_python(self, mode="json")))

    @classmethod
    def read(cls, path: Path) -> Assignment:
        """Return the assignment in a file. Raises InputError if there is none, or it was changed."""
        from pydantic import TypeAdapter

        try:
            content, has_seal = read_sealed(path)
            if not has_seal:
                raise ValueError("it has no hash")
            return TypeAdapter(cls).validate_python(content)
        except (OSError, ValueError) as error:  # ValidationError is a ValueError
            raise InputError(
                f"{path} cannot be read as the assignment of a worker, which run and sweep write: {one_line(error)}"
            ) from None


def share(assignment: Assignment, workers: int) -> None:
    """Carry out an assignment in `workers` processes, and wait until all have ended.

    Raises OSError if one of them could not write to the disk, and Interrupted if one was stopped by a signal.
    """
    host = assignment.host
    host = replace(
        host, threads=host.threads or threads_for_each(workers * host.devices),
        command=tuple(redact_words(host.command or sys.argv)),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        path = Path(folder) / "assignment.json"
        replace(assignment, host=host).write(path)
        codes = _wait([RunDir(assignment.store / run_id) for run_id in assignment.runs], _start(path, host, workers))
    stop = next((code for code in codes if code in (74, 130, 143)), 0)
    if stop == 74:
        raise OSError(errno.EIO, "a worker could not write to the disk; its message above says what is missing")
    if stop:
        raise Interrupted(stop - 128)
    for code in (code for code in codes if code not in (0, 1)):
        log.warning("a worker ended early, with %s", f"signal {-code}" if code < 0 else f"exit code {code}")


def _start(assignment: Path, host: Host, workers: int) -> list[subprocess.Popen[str]]:
    """Start the processes. If this process can use several GPUs, each worker can use as many as its runs need."""
    cards = visible_cards() if host.device in ("auto", "cuda") else []
    # Several progress bars on one terminal would overwrite each other.
    errors = subprocess.PIPE if terminal() else None
    return [
        subprocess.Popen(
            [sys.executable, "-m", "workbench", "worker", str(assignment)],
            env=os.environ | ({"CUDA_VISIBLE_DEVICES": _share_of(cards, index, host.devices)} if cards else {}),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            encoding=sys.stderr.encoding if errors else "utf-8",  # as the worker's own standard error
            errors="replace",
        )
        for index in range(workers)
    ]


def _share_of(cards: Sequence[str], worker: int, each: int) -> str:
    """Return the GPUs of a worker, `each` of them, as a value for CUDA_VISIBLE_DEVICES; workers share if they must."""
    return ",".join(cards[(worker * each + index) % len(cards)] for index in range(each))


def _wait(runs: Sequence[RunDir], children: Sequence[subprocess.Popen[str]]) -> list[int]:
    """Show progress until all processes have ended, and return their exit codes. An exception here ends them.

    A worker that was stopped (SIGSTOP) is continued as soon as another has found all runs settled, since it then ends
    too; before that, the others take over the run that it had.
    """
    try:
        with live.watching(runs, [child.stderr for child in children if child.stderr]) as look:
            while any(child.poll() is None for child in children):
                time.sleep(live.REFRESH)
                look()
                if any(child.poll() == 0 for child in children) and (stopped := [*filter(_stopped, children)]):
                    count = plural(len(stopped), "worker")
                    log.warning("all runs are settled; continuing %s, stopped by a signal", count)
                    _signal(stopped, signal.SIGCONT)
        return [child.wait() for child in children]
    except BaseException:
        _signal(children, signal.SIGTERM, signal.SIGCONT)  # a process that was stopped gets no other signal
        for child in children:
            child.wait()
        raise


def _stopped(child: subprocess.Popen[str]) -> bool:
    """Return whether a process was stopped by a signal, and not continued."""
    if child.poll() is not None:
        return False
    return os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None


def _signal(children: Sequence[subprocess.Popen[str]], *numbers: signal.Signals) -> None:
    for child in children:
        for number in numbers:
            child.send_signal(number)
