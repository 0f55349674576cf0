"""Worker processes that share the runs of one command, and the progress of runs.

Each worker takes the next run that no other process owns. Progress is read from the directories of runs, so that every
terminal shows the same and workers send nothing.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from workbench.errors import InputError, Interrupted, one_line, plural
from workbench.progress import clock, console, say, terminal
from workbench.spec.host import Host, threads_for_each, visible_cards
from workbench.store import validation
from workbench.store.atomic import read_object, sealed, write_new
from workbench.store.owner import read
from workbench.store.redact import redact_words
from workbench.store.run_directory import RunDir
from workbench.store.run_store import ExperimentRecord

log = logging.getLogger("workbench")


@dataclass(frozen=True)
class Assignment:
    """The input of every worker of a command, which is passed as one JSON file.

    `runs` are ids of runs in `store`, `record` is the experiment's record there, and `base` are the settings that all
    runs share, with the places of text and tasks on this machine. `files` are the files of objectives and encoders that
    are in no package, each with its name in a run. Runs that failed before the time `since` are tried again. A worker
    ends when the process `parent` ends, unless that is 0. `plans` are plans by run id, as plan.json holds them.
    """

    store: Path
    record: str
    base: dict[str, Any]
    runs: tuple[str, ...]
    files: tuple[tuple[str, str], ...]
    host: Host
    since: str
    parent: int
    plans: dict[str, dict[str, Any]] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write the assignment to a file."""
        from pydantic import TypeAdapter

        write_new(path, sealed(TypeAdapter(Assignment).dump_python(self, mode="json")))

    @classmethod
    def read(cls, path: Path) -> Assignment:
        """Return the assignment in a file. Raises InputError if there is none, or it was changed."""
        from pydantic import TypeAdapter

        try:
            return TypeAdapter(cls).validate_python(read_object(path, needs_seal=True))
        except (OSError, ValueError) as error:  # ValidationError is a ValueError
            raise InputError(
                f"{path} cannot be read as the assignment of a worker, which run and sweep write: {one_line(error)}"
            ) from None


def share(assignment: Assignment, workers: int) -> None:
    """Carry out an assignment in `workers` processes. Raises OSError if one could not write, or Interrupted."""
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
    errors = subprocess.PIPE if terminal() else None  # several progress bars on one terminal overwrite each other
    children = []
    for worker in range(workers):
        places = range(worker * host.devices, (worker + 1) * host.devices)  # workers share GPUs if there are too few
        own = {"CUDA_VISIBLE_DEVICES": ",".join(cards[place % len(cards)] for place in places)} if cards else {}
        children.append(
            subprocess.Popen(
                [sys.executable, "-m", "workbench", "worker", str(assignment)], env=os.environ | own,
                stdout=subprocess.DEVNULL, stderr=errors, errors="replace",
                encoding=sys.stderr.encoding if errors else "utf-8",  # as the worker's own standard error
            )
        )  # fmt: skip
    return children


def _wait(runs: Sequence[RunDir], children: Sequence[subprocess.Popen[str]]) -> list[int]:
    """Show progress until all processes have ended, and return their exit codes. An exception here ends them.

    A worker that was stopped (SIGSTOP) stays stopped while the others take over its run. Once one of them finds all
    runs settled, the stopped worker is continued, so that it can end.
    """
    try:
        with watching(runs, [child.stderr for child in children if child.stderr]) as look:
            while any(child.poll() is None for child in children):
                time.sleep(REFRESH)
                look()
                if any(child.poll() == 0 for child in children) and (stopped := [*filter(_stopped, children)]):
                    count = plural(len(stopped), "worker")
                    log.warning("all runs are settled; continuing %s, stopped by a signal", count)
                    for child in stopped:
                        child.send_signal(signal.SIGCONT)
        return [child.wait() for child in children]
    except BaseException:
        for child in children:
            child.send_signal(signal.SIGTERM)
            child.send_signal(signal.SIGCONT)  # a process that was stopped gets no other signal
        for child in children:
            child.wait()
        raise


def _stopped(child: subprocess.Popen[str]) -> bool:
    if child.poll() is not None:
        return False
    return os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None


# ---- the progress of runs ----

REFRESH = 1.0  # seconds
OF_TRAINING = ("worker", "step", "steps", "tokens_per_second", "loss", "seconds_left")  # facts of a run that trains
SETTLED = ("done", "failed", "diverged", "damaged")


def facts(run: RunDir, summary: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the summary of a run with step, steps, tokens/s, loss and seconds left, None unless it is running."""
    row = dict(run.summary() if summary is None else summary)
    row |= dict.fromkeys(OF_TRAINING)
    if row["state"] != "running":
        return row
    with contextlib.suppress(OSError, ValueError):  # a file that is missing or being written
        holder = read(run.path)
        row["worker"] = holder.owner.get("pid") if holder else None
        if run.trained:
            scores = len(validation.score_names(run.path, "scores"))
            row["note"] = f"measuring, {scores} scores so far, {row['note']}"
            return row
        plan = run.read_json("plan.json")
        row["steps"], newest = plan["steps"], last_row(run)
        if newest:
            speed = newest["tokens_per_second"]
            before = (plan.get("parent") or {}).get("tokens", 0)  # rows of a parent may be shorter
            tokens_per_step = float((plan["tokens"] - before) / (plan["steps"] - plan.get("first", 0)))
            left = (plan["steps"] - newest["step"]) * tokens_per_step / speed if speed else None
            row |= {"step": newest["step"], "loss": newest["loss"], "tokens_per_second": speed, "seconds_left": left}
    return row


def last_row(run: RunDir) -> dict[str, Any] | None:
    """Return the last row of metrics.jsonl, which is read from the end; None before the first row."""
    with open(run.file("metrics.jsonl"), "rb") as file:
        return validation.row(validation.last_line(file)[0])


def line(row: dict[str, Any]) -> str:
    """Return the progress of one run in a few words, to be shown after its state and name."""
    if row["step"] is None:
        return str(row["note"])
    left = f", about {clock(row['seconds_left'])} left" if row["seconds_left"] is not None else ""
    loss = f", loss {row['loss']:.3f}" if row["loss"] is not None else ""
    speed = f", {row['tokens_per_second']:,.0f} tokens/s" if row["tokens_per_second"] else ""
    return f"step {row['step']:,} of {row['steps']:,}{loss}{speed}{left}, {row['note']}"


def tally(states: Sequence[str]) -> str:
    """Return the counts of states, such as "5 of 12 runs are done, 2 running, 1 failed"."""
    counts = Counter(states)
    others = [f"{counts[state]} {state}" for state in ("running", "failed", "diverged", "damaged") if counts[state]]
    return ", ".join([f"{counts['done']} of {len(states)} runs are done", *others])


@dataclass(frozen=True)
class StudyProgress:
    """How far a study is: its runs in each state, and the seconds left, None if unknown."""

    record: ExperimentRecord
    states: Counter[str]
    seconds_left: float | None

    @property
    def total(self) -> int:
        """The number of runs."""
        return self.states.total()

    @property
    def trained(self) -> int:
        """The number of runs whose training is over."""
        return self.states["done"] + self.states["trained"]

    @property
    def state(self) -> str:
        """The state of the study in one word."""
        if self.record.damage or self.states["damaged"]:
            return "damaged"
        if self.states["running"]:
            return "running"
        if self.total and self.states["done"] == self.total:
            return "done"
        failed = self.states["failed"] + self.states["diverged"]
        return "failed" if failed and self.trained + failed == self.total else "unfinished"

    @property
    def text(self) -> str:
        """The progress in words: the runs in each state, and the time left if it is known."""
        words = [f"{self.trained} of {self.total} trained"]
        for state in ("running", "interrupted", "failed", "diverged", "damaged"):
            words += [f"{self.states[state]} {state}"] if self.states[state] else []
        waiting = self.states["new"] + self.states["missing"]
        words += [f"{waiting} not started"] if waiting else []
        words += [f"about {clock(self.seconds_left)} left"] if self.seconds_left is not None else []
        return ", ".join(words)


def study_progress(record: ExperimentRecord, rows: Mapping[str, Mapping[str, Any]]) -> StudyProgress:
    """Return how far a study is, by the rows of its runs; the time left is at the pace of the runs so far."""
    own = [rows.get(run_id) for run_id in record.run_ids]
    states = Counter(str(row["state"]) if row else "missing" for row in own)
    pace = [row.get("spent.seconds") for row in own if row and row.get("kind") == "pre-training"]
    spent = [float(seconds) for seconds in pace if isinstance(seconds, (int, float)) and seconds > 0]
    known = [float(row["seconds_left"]) for row in own if row and row.get("seconds_left") is not None]
    waiting = states["missing"] + states["new"] + states["interrupted"]
    left = None
    if states["running"] and (not waiting or spent):
        left = (sum(known) + (waiting * sum(spent) / len(spent) if waiting else 0.0)) / states["running"]
    return StudyProgress(record, states, left)


@contextmanager
def watching(runs: Sequence[RunDir], error_streams: Sequence[IO[str]]) -> Iterator[Callable[[], None]]:
    """Yield a function that shows the progress of these runs: in a live table on a terminal, elsewhere by lines.

    `error_streams` are the standard errors of the workers; the warnings in them are shown above the table.
    """
    rows: dict[str, dict[str, Any]] = {}

    def look() -> list[dict[str, Any]]:
        for run in runs:
            if rows.get(run.run_id, {}).get("state") != "done":  # a state that does not change
                try:
                    rows[run.run_id] = facts(run)
                except (InputError, OSError):  # a file changed meanwhile: the former facts are used
                    rows.setdefault(run.run_id, {"state": "new", "run_id": run.run_id})
        return list(rows.values())

    if not terminal():
        last = [""]

        def show_line() -> None:
            now = tally([row["state"] for row in look()]).partition(", ")[0]
            if now != last[0] and not now.startswith("0 "):
                say(f"workbench: {now}")
            last[0] = now

        yield show_line
        return

    from rich.live import Live

    screen, begun = console(), time.monotonic()

    def print_warnings(stream: IO[str]) -> None:
        for text in stream:
            if text.startswith("workbench: "):  # other lines are progress, which the table shows
                screen.print(text.rstrip(), markup=False, highlight=False)

    with Live(console=screen, auto_refresh=False) as shown:
        for stream in error_streams:
            threading.Thread(target=print_warnings, args=(stream,), daemon=True).start()
        first = [row["state"] for row in look()].count("done")

        def show() -> None:
            shown.update(_table(look(), first, time.monotonic() - begun), refresh=True)

        show()
        yield show
        show()


def _table(rows: Sequence[dict[str, Any]], first: int, seconds: float) -> Any:
    states = [row["state"] for row in rows]
    done = states.count("done") - first
    left = sum(state not in SETTLED for state in states)
    guess = f", about {clock(seconds / done * left)} left" if done and left else ""
    names = ("run", "worker", *NUMBERS, "state")
    table = grid(names, caption=f"{tally(states)}{guess}", caption_justify="left")
    for row in rows:
        if row["state"] not in ("running", "failed", "diverged", "damaged"):
            continue
        state = row["note"]
        if row["state"] == "running" and row["step"] is not None:
            state = "training"
        elif row["state"] == "running":
            state = state.partition(", by")[0] if "measuring" in state else "starting"
        style = None if row["state"] == "running" else "red"
        table.add_row(row["run_id"], str(row["worker"] or ""), *cells(row), state, style=style)
    return table


NUMBERS = ("step", "loss", "tokens/s", "left")  # columns


def grid(names: Sequence[str], **options: Any) -> Any:
    """Return an empty table of `rich` without lines, in whose last column text may be wrapped."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, **options)
    for name in names:
        right = name in ("worker", *NUMBERS)
        table.add_column(name, justify="right" if right else "left", no_wrap=name != names[-1])
    return table


def cells(row: Mapping[str, Any]) -> list[str]:
    """Return the columns NUMBERS of a run that trains, "" where a value is not known."""
    steps = f"{row['step']:,}/{row['steps']:,}" if row.get("step") is not None and row.get("steps") else ""
    loss, speed, left = row.get("loss"), row.get("tokens_per_second"), row.get("seconds_left")
    numbers = ["" if loss is None else f"{loss:.3f}", "" if speed is None else f"{speed:,.0f}"]
    return [steps, *numbers, "" if left is None else clock(left)]
