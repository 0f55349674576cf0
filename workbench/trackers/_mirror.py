"""Copy of a run's metrics in a tracker, made by a separate process whose failure does not affect the run.

Rows go through a bounded queue and a thread into a pipe; the process at its other end is
`workbench.trackers.__main__`. Only `close` waits for it, for at most four seconds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import workbench
from workbench.errors import InputError, suggest
from workbench.store.atomic import dumps, loads

log = logging.getLogger("workbench")
TRACKERS = ("wandb",)
PATIENCE = 4.0  # seconds that `close` waits in total
WAITING = 10_000  # batches of rows that may wait for a slow tracker; later ones are left out of the copy


class Mirror:
    """Copy of a run's metrics; this one does nothing. No method raises: a problem is logged as one warning."""

    def log(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Copy rows; here, do nothing, because there is no tracker."""

    def close(self) -> None:
        """Finish the copy; here, do nothing, because there is no tracker."""


class ProcessMirror(Mirror):
    """Copy by a separate process, which is started here and first receives `hello`, a description of the run."""

    def __init__(self, header: Mapping[str, Any], run: Path) -> None:
        self._run = run
        self._queue: queue.Queue[Any] = queue.Queue(WAITING)
        self._left_out = 0
        self._finished = self._stopped = False
        self._reported: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        root = str(Path(workbench.__file__).parents[1])
        paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "workbench.trackers"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": paths},
                start_new_session=True,  # Ctrl-C reaches the run alone; the process is killed with its children
            )
        except OSError as error:
            self._warn(f"cannot be started ({error})")
            return
        self._queue.put(header)
        self._threads = [
            threading.Thread(target=target, args=(self._process,), name="mirror", daemon=True)
            for target in (self._write, self._listen)
        ]
        for thread in self._threads:
            thread.start()

    def log(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Put rows into the queue without waiting; rows that find it full are left out of the copy."""
        if self._process is None or self._process.poll() is not None:
            return
        try:
            self._queue.put_nowait({"rows": list(rows)})
        except queue.Full:
            self._left_out += 1

    def close(self) -> None:
        """Wait a few seconds for the process to finish, then stop it."""
        process = self._process
        if process is None:
            return
        end = time.monotonic() + PATIENCE
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=PATIENCE / 2)
        try:
            process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._warn(f"had not finished after {PATIENCE:g} seconds and was stopped")
            self._stopped = True
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
        for thread in self._threads:
            thread.join(0.2)
        if self._left_out:
            self._warn(f"was too slow, and {self._left_out} batches of rows were left out")
        self._process = None

    def _write(self, process: subprocess.Popen[bytes]) -> None:
        """Write the queue's items into the pipe until the end of the queue."""
        assert process.stdin is not None
        # A broken pipe means that the process has ended, which `_listen` reports.
        with contextlib.suppress(OSError, ValueError, TypeError), process.stdin as pipe:
            while (item := self._queue.get()) is not None:
                pipe.write((dumps(item) + "\n").encode())
                pipe.flush()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Log the problems that the process reports, and its unexpected end."""
        assert process.stdout is not None
        with process.stdout as pipe:
            for line in pipe:
                with contextlib.suppress(ValueError, AttributeError):
                    message = loads(line)
                    self._finished |= message.get("finished") is True
                    if problem := message.get("problem"):
                        self._warn(str(problem))
        if not self._finished and not self._stopped:
            self._warn("ended unexpectedly")

    def _warn(self, problem: str) -> None:
        """Log a problem once."""
        if problem not in self._reported:
            self._reported.add(problem)
            log.warning(
                "wandb copy of %s: %s; the run and its metrics.jsonl are unaffected, and "
                "`python -m workbench.trackers %s` sends the metrics again",
                self._run.name, problem, self._run,
            )  # fmt: skip


def mirror(track: str | None, run: Path, run_id: str, config: Mapping[str, Any] | None = None) -> Mirror:
    """Return a copy of the run in folder `run` by the tracker `track`; None stands for no copy.

    Raises InputError for a tracker other than "wandb".
    """
    if track is None:
        return Mirror()
    if track not in TRACKERS:
        raise InputError(f"unknown tracker {track!r}{suggest(track, TRACKERS)}")
    return ProcessMirror({"folder": str(run.absolute()), "name": run_id, "config": config or {}}, run)
