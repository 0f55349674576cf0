"""Trackers: copies of runs in the tools that people already use, one file for each tool.

A tracker is a module with two functions, `available` and `open` (`Tracker`), and is found as other plug-ins are: a file
of this folder, an entry point of the group `workbench.trackers`, or a path to a file. It works in a process of its own
(`__main__`), which reads the run's folder; the process that trains says only that there are new rows (`Mirror`). So a
tracker that is slow, dead or full neither delays nor changes the run, and what it missed is sent again.

A copy is always made whole: after `open`, the tracker gets every row from the run's first one on, also if the run was
killed and resumed, and replaces whatever an earlier copy of the run has. So one run is one run in the tool, however
often it is copied, and rows that a resumed run computed again are there once.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import workbench
from workbench.errors import InputError, blaming, suggest
from workbench.registry import Plugs, file_of, is_path
from workbench.store.atomic import dumps, loads
from workbench.store.redact import redact
from workbench.store.run_directory import RunDir

Row = Mapping[str, float]


class Score(NamedTuple):
    """A number of a run's summary, such as `score/CoLA`; `step` is the point of training, None for its end."""

    name: str
    value: float
    step: int | None = None


@dataclass
class TrackedRun:
    """What a tracker is told about a run. `state`, `tags` and `notes` are read again before `finish`.

    `run_id` is the run's name, `study` the name of the study that it belongs to ("" if it is in none), and `job_type`
    "pre-training" or "published". `config` has the spec by dotted keys, with the fingerprint of the text as
    `data.fingerprint`, and the code, the packages and the hardware as `env.*`. `store` is the folder of the run store
    and `folder` the run's own; a tracker may keep files of its own in `folder / "mirrors"`. Rows up to step `reached`
    exist when the copy begins, and `stored` yields them. `started` is when the run was made, in s since 1970.
    """

    run_id: str
    folder: Path
    study: str = ""
    job_type: str = "pre-training"
    config: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()
    notes: str = ""
    state: str = "running"  # running, interrupted, done, failed or diverged
    reached: int = 0
    started: float = field(default_factory=time.time)
    stored: Callable[[], Iterable[Row]] = tuple
    say: Callable[[str], None] = lambda text: None  # warns the user of a problem with the copy

    @property
    def store(self) -> Path:
        """The folder of the run store."""
        return self.folder.parent


class Handle(Protocol):
    """The open copy of one run. Any error of its methods ends the copy, with a warning."""

    def log(self, rows: Sequence[Row]) -> None:
        """Add rows of metrics in order, the run's first one first; each has a whole number under "step".

        Undefined values are left out, and nested ones have names such as "flops/matmul".
        """

    def finish(self, scores: Sequence[Score], files: Mapping[str, Path]) -> None:
        """Add scores and files to the copy, and close it; `TrackedRun.state` says how the run ended.

        `files` are the folder "encoder" and the page "report" if they were asked for, else empty.
        """


class Tracker(Protocol):
    """The functions of a tracker's module. Packages are imported inside `open`, so that commands start fast."""

    def available(self) -> str | None:
        """Return None if copies can be made here, else why not and what to do, as a phrase."""

    def open(self, run: TrackedRun) -> Handle:
        """Begin the copy of a run, in place of any earlier copy of it."""


PARTS = ("available", "open")
PLUGS = Plugs("tracker", "--track", __name__, Path(__file__).parent, "workbench.trackers", PARTS)
listing = PLUGS.listing


def find(word: str, option: str = "--track") -> str:
    """Return the name of a tracker that is installed, or the whole path of its file. `option` is named in messages.

    Raises InputError for an unknown or faulty tracker, and for one whose package is not installed.
    """
    plugs = replace(PLUGS, option=option)
    known = [*plugs.built_in, *plugs.installed()]
    if word not in known and not is_path(word):
        raise InputError(f"{option} {word}: there is no such tracker{suggest(word, known)}")
    name, source = plugs.find(word)
    module = plugs.load(name, source)
    with blaming(file_of(module), "available() raised", "tracker"):
        reason = module.available()
    if reason:
        raise InputError(f"{option} {word}: {reason}")
    path = plugs.file(source)
    return str(path) if path else name


def installed(name: str) -> bool:
    """Return whether a known tracker can be used here; not if it is faulty."""
    try:
        return bool(find(name))
    except InputError:
        return False


def load(word: str) -> Tracker:
    """Return the module of a tracker. Raises InputError if there is none, or it cannot be loaded."""
    return cast(Tracker, PLUGS.load(*PLUGS.find(word)))


def missing(package: str, distribution: str = "") -> str | None:
    """Return None if a package is installed, else a phrase that says how to install it."""
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.origin:  # a mere folder of this name, such as wandb/ with logs, has no origin
        return None
    return f"the package {package} is not installed; pip install {distribution or package}"


def short(error: BaseException) -> str:
    """Return type and message of an error on one line, with secrets removed; the message alone of an InputError."""
    kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
    return redact(" ".join(f"{kind}{error}".split()))[:300]


def check(word: str) -> list[str]:
    """Send a made-up run to a tracker, given by its name or file, and return sentences on what was done.

    The run is sent twice, as if it had been interrupted and resumed, to the tracker's usual place. Raises InputError
    for the first call that breaks the contract.
    """
    find(word)
    tracker, done = load(word), list[str]()
    rows = [{"step": step, "seconds": step / 4, "loss": 1 / step, "flops/matmul": 1e9 * step} for step in range(1, 8)]
    scores = [Score("score/order", 50.0), Score("score/order", 40.0, 3), Score("untrained/order", 12.5)]
    file = file_of(tracker)  # type: ignore[arg-type]

    def call(what: str, function: Callable[..., Any], *given: Any) -> Any:
        with blaming(file, f"{what} raised", "tracker"):
            return function(*given)

    with tempfile.TemporaryDirectory(prefix="workbench-") as store:
        folder = Path(store) / "workbench-check-s0"
        (folder / "mirrors").mkdir(parents=True)
        (folder / "encoder").mkdir()
        (folder / "encoder" / "config.json").write_text("{}", encoding="utf-8")
        for begun, ends in ((0, "interrupted"), (4, "done")):
            run = TrackedRun(
                folder.name, folder, "workbench-check", tags=("checked",), notes='2026-01-01 a note, "quoted" and é',
                config={"optim.lr": 1e-3, "tying": None, "encoder.causal": True}, reached=begun,
                stored=lambda: rows[:4],
            )  # fmt: skip
            handle = call("open(run)", tracker.open, run)
            for method in ("log", "finish"):
                if not callable(getattr(handle, method, None)):
                    raise InputError(f"tracker {file}: open(run) returns {handle!r:.60}, which has no {method}()")
            for start in range(0, len(rows), 3):
                call("log(rows)", handle.log, rows[start : start + 3])
            run.state = ends
            call("finish(scores, files)", handle.finish, scores, {"encoder": folder / "encoder"} if begun else {})
            done.append(f"a copy of {len(rows)} rows and {len(scores)} scores of a run that is {ends}")
        handle = call("open(run)", tracker.open, TrackedRun(folder.name, folder, ""))
        call("finish(scores, files) without rows", handle.finish, [], {})
        done.append("a copy of a run without rows and scores")
    return done


# ----------------------------------------
# Copies of runs by separate processes (`workbench.trackers.__main__`), whose failure does not affect the runs.
#
# The process of a run only says that there are new rows in metrics.jsonl, by a byte in a pipe that it never waits for;
# so no row waits in memory, and a tracker that was slow for a while reads on where it was. Only `close` waits for the
# copy, for at most four seconds.

log = logging.getLogger("workbench")
PATIENCE = 4.0  # seconds that `close` waits in total


class Mirror:
    """Copy of a run by a process that is started here, to a tracker as `find` returns it.

    No method raises: a problem is logged as one warning.
    """

    def __init__(self, tracker: str, run: RunDir) -> None:
        self._run, self._tracker = run.path, tracker
        self._finished = self._stopped = False
        self._reported: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = _started()
            assert self._process.stdin is not None
            header = {"tracker": tracker, "runs": [str(run.path.absolute())], "live": True}
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
        [sys.executable, "-P", "-m", __name__],
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
