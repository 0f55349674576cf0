"""A copy of the metrics in a tracker, kept by a process of its own. Whatever becomes of it, the run goes on.

Rows go through a bounded queue and a thread into a pipe; the process at its other end is `workbench.tracking.__main__`.
Nothing here waits for it but `close`, and that for four seconds at most.
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
PATIENCE = 4.0  # seconds that `close` waits in all
WAITING = 10_000  # batches of rows that may wait for a slow tracker; later ones are left out of the copy


class Mirror:
    """`log` rows and `close`. Neither raises; what goes wrong is one warning."""

    def log(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Does nothing: there is no tracker."""

    def close(self) -> None:
        """Does nothing: there is no tracker."""


class ProcessMirror(Mirror):
    """A mirror in a process of its own, which is started here and told `hello` first."""

    def __init__(self, hello: Mapping[str, Any], run: Path) -> None:
        self._run = run
        self._queue: queue.Queue[Any] = queue.Queue(WAITING)
        self._left_out = 0
        self._finished = self._stopped = False
        self._said: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        root = str(Path(workbench.__file__).parents[1])
        paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "workbench.tracking"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": paths},
                start_new_session=True,  # Ctrl-C is for the run; and the group can be killed as a whole
            )
        except OSError as error:
            self._warn(f"cannot be started ({error})")
            return
        self._queue.put(hello)
        self._threads = [
            threading.Thread(target=target, args=(self._process,), name="mirror", daemon=True)
            for target in (self._write, self._listen)
        ]
        for thread in self._threads:
            thread.start()

    def log(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Hand rows over without waiting."""
        if self._process is None or self._process.poll() is not None:
            return
        try:
            self._queue.put_nowait({"rows": list(rows)})
        except queue.Full:
            self._left_out += 1

    def close(self) -> None:
        """Let the tracker finish, for a few seconds."""
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
        assert process.stdin is not None
        # Broken pipe: the process is gone, and `_listen` says so.
        with contextlib.suppress(OSError, ValueError, TypeError), process.stdin as pipe:
            while (item := self._queue.get()) is not None:
                pipe.write((dumps(item) + "\n").encode())
                pipe.flush()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
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
        if problem not in self._said:
            self._said.add(problem)
            log.warning(
                "wandb copy of %s: %s; the run and its metrics.jsonl are not touched by this, and "
                "`python -m workbench.tracking %s` sends them again",
                self._run.name, problem, self._run,
            )  # fmt: skip


def mirror(track: str | None, run: Path, run_id: str, config: Mapping[str, Any] | None = None) -> Mirror:
    """A mirror of the run in folder `run`: `track` is None or "wandb". Raises InputError for any other tracker."""
    if track is None:
        return Mirror()
    if track not in TRACKERS:
        raise InputError(f"unknown tracker {track!r}{suggest(track, TRACKERS)}")
    return ProcessMirror({"folder": str(run.absolute()), "name": run_id, "config": config or {}}, run)
