"""Copies of runs by separate processes (`workbench.trackers.__main__`), whose failure does not affect the runs.

The process of a run only says that there are new rows in metrics.jsonl, by a byte in a pipe that it never waits for; so
no row waits in memory, and a tracker that was slow for a while reads on where it was. Only `close` waits for the copy,
for at most four seconds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import workbench
from workbench import trackers
from workbench.store.atomic import dumps, loads
from workbench.store.run_directory import RunDir

log = logging.getLogger("workbench")
PATIENCE = 4.0  # seconds that `close` waits in total


class Mirror:
    """Copy of the run in folder `run` by a process that is started here, or no copy if there is no `tracker`.

    No method raises: a problem is logged as one warning.
    """

    def __init__(self, tracker: str, run: Path) -> None:
        self._run, self._tracker = run, tracker
        self._finished = self._stopped = False
        self._reported: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        if not tracker:
            return
        try:
            self._process = _started()
            assert self._process.stdin is not None
            header = {"tracker": tracker, "runs": [str(run.absolute())], "live": True}
            os.write(self._process.stdin.fileno(), f"{dumps(header)}\n".encode())
            os.set_blocking(self._process.stdin.fileno(), False)
        except OSError as error:
            self._warn(f"cannot be started ({error})")
            if self._process is not None:
                _kill(self._process)
            self._process = None
            return
        self._listener = threading.Thread(target=self._listen, args=(self._process,), name="mirror", daemon=True)
        self._listener.start()

    def news(self) -> None:
        """Tell the copy that there are new rows. This never waits: a full pipe holds the same message already."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # also of a process that has ended, which `_listen` reports
                os.write(self._process.stdin.fileno(), b"\n")

    def close(self) -> None:
        """Wait a few seconds for the process to finish, then stop it."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close()  # type: ignore[union-attr]
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._warn(f"had not finished after {PATIENCE:g} seconds and was stopped")
            self._stopped = True
            _kill(process)
        self._listener.join(0.2)
        self._process = None

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Log the problems that the process reports, and its unexpected end."""
        for message in _messages(process):
            self._finished |= message.get("finished") is True
            if problem := message.get("problem"):
                self._warn(str(problem))
        if not self._finished and not self._stopped:
            self._warn("ended unexpectedly")

    def _warn(self, problem: str) -> None:
        if problem not in self._reported:
            self._reported.add(problem)
            log.warning(
                "%s copy of %s: %s; the run and its metrics.jsonl are unaffected, and `workbench track %s --runs %s "
                "--to %s` copies it again",
                Path(self._tracker).stem, self._run.name, problem, self._run.name, shlex.quote(str(self._run.parent)),
                shlex.quote(self._tracker),
            )  # fmt: skip


def mirror(tracker: Path | str | None, run: RunDir) -> Mirror:
    """Return a copy of a run by a tracker as `trackers.find` names it; None stands for no copy."""
    return Mirror(str(tracker or ""), run.path)


def copies(
    tracker: str, runs: Sequence[RunDir], study: str | None = None, artifacts: bool = False, report: Path | None = None
) -> Iterator[dict[str, Any]]:
    """Copy stored runs in one process, and yield a message for each: counts of rows and scores, or a problem.

    General notes are messages too. If the process ends early, the runs that it has not copied have a problem.
    """
    header = {
        "tracker": tracker, "runs": [str(run.path.absolute()) for run in runs], "live": False, "study": study,
        "artifacts": artifacts, "report": str(report.absolute()) if report else None,
    }  # fmt: skip
    process, settled, notes = _started(), set[str](), set[str]()
    try:
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # type: ignore[union-attr]
            pipe.write(f"{dumps(header)}\n".encode())
        for message in _messages(process):
            if "run" in message:
                settled.add(message["run"])
                yield message
            elif "note" in message and message["note"] not in notes:
                notes.add(message["note"])
                yield message
        for run in runs:
            if run.run_id not in settled:
                yield {"run": run.run_id, "problem": "the process that copies it ended unexpectedly"}
    finally:
        _kill(process)


def _started() -> subprocess.Popen[bytes]:
    root = str(Path(workbench.__file__).parents[1])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", trackers.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,  # Ctrl-C reaches the run alone; the process is killed with its children
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.5)


def _messages(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    with process.stdout as pipe:
        for line in pipe:
            with contextlib.suppress(ValueError):
                message = loads(line)
                if isinstance(message, dict):
                    yield message
