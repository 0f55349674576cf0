"""Process that copies runs to a tracker, apart from the process that trains: `python -m workbench.trackers`.

Its standard input begins with a line of JSON: the tracker and the folders of runs. With `live`, a line follows whenever
the one run has new rows, and the end of the input is the end of the run; else the runs are copied as they are. Problems
and results are written to standard output as lines of JSON.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from workbench import progress, trackers
from workbench.errors import InputError
from workbench.report.statistics.intervals import t_interval
from workbench.store.atomic import free, own_folder
from workbench.store.run_directory import RunDir
from workbench.store.run_store import RunStore
from workbench.trackers import Score, Tracker, _described, short

ORPHAN = 30.0  # seconds for finishing after the run's process has ended or closed the pipe
TAKEOVER = 40.0  # seconds for which the copy of a resumed run waits until the copy of the killed one has ended
PATIENCE = 2.0  # seconds for which a copy of what is stored waits for another copy of the same run
AT_ONCE = 500  # rows given to a tracker in one call
LOW = 1 << 16  # bytes; with less room on the disk, a copy may be incomplete


def main() -> None:
    """Copy what the first line of standard input names. Raises InputError if there is no such line."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # these signals are meant for the run, which then closes the pipe
    source, report = os.fdopen(os.dup(0), "rb"), os.dup(1)
    header: Any = None
    with contextlib.suppress(ValueError):
        header = None if source.isatty() else json.loads(source.readline() or "null")
    if not isinstance(header, dict) or not {"tracker", "runs", "live"} <= header.keys():
        raise InputError(
            "standard input does not name a tracker and runs, as `workbench run --track NAME` does for this process; "
            "to copy runs that are stored, give: workbench track STUDY --to NAME"
        )
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):  # child processes must neither keep the pipes open nor write into them
        os.dup2(null, standard)

    def tell(**message: Any) -> None:
        with contextlib.suppress(OSError):
            os.write(report, (json.dumps(message) + "\n").encode())

    tracker = trackers.load(header["tracker"])
    name = Path(header["tracker"]).stem
    runs = [RunDir(Path(folder)) for folder in header["runs"]]
    if header["live"]:
        live(tracker, name, runs[0], source, lambda problem: tell(problem=problem))
    else:
        for run in runs:
            tell(**stored(tracker, name, run, header, lambda note: tell(note=note)))
    tell(finished=True)
    os._exit(0)  # at a normal exit, some trackers wait for servers that never answer


def live(tracker: Tracker, name: str, run: RunDir, news: Iterable[bytes], say: Callable[[str], None]) -> None:
    """Copy a run while it is trained; `news` yields once whenever it has new rows, first when the copy may begin."""

    def until_the_end() -> Iterator[None]:
        yield
        for _ in arrivals:
            yield
        last = threading.Timer(ORPHAN, os._exit, (1,))
        last.daemon = True
        last.start()

    arrivals = iter(news)
    t_interval((0.0, 1.0))  # loads what intervals need, while nobody waits for the copy
    if next(arrivals, None) is None:
        return
    try:
        with _only_copy(run, name, TAKEOVER) as alone:
            if alone:
                copy(tracker, run, until_the_end(), say, live=True)
            else:
                say("another process still copies this run")
    except Exception as error:
        say(f"stopped early ({short(error)})")


def stored(
    tracker: Tracker, name: str, run: RunDir, header: Mapping[str, Any], note: Callable[[str], None]
) -> dict[str, Any]:
    """Copy a run as it is in the store, and return what there is to say: its name, and its rows or a problem."""
    study, files = header["study"], {}
    try:
        if damage := run.damage:
            raise InputError(f"it is damaged: {damage}")
        if header["artifacts"]:
            named = {"encoder": run.path / "encoder", "report": Path(header["report"] or os.devnull)}
            files = {key: path for key, path in named.items() if path.is_dir() or path.is_file()}
        with _only_copy(run, name, PATIENCE) as alone:
            if not alone:
                raise InputError("another process copies this run at the moment")
            arm = _arms(run.path.parent, study).get(run.run_id, []) if study else []
            rows, scores = copy(tracker, run, [], note, False, study, files, arm)
    except Exception as error:
        return {"run": run.run_id, "problem": short(error)}
    return {"run": run.run_id, "rows": rows, "scores": scores}


@functools.cache
def _arms(root: Path, study: str) -> dict[str, list[Score]]:
    """Return the scores of the arms of a study by run; the study is read once."""
    store = RunStore.existing(root)
    return _described.over_seeds(store, store.experiment(study))


def copy(
    tracker: Tracker,
    run: RunDir,
    news: Iterable[None],
    say: Callable[[str], None],
    live: bool,
    study: str | None = None,
    files: Mapping[str, Path] = MappingProxyType({}),
    more: Iterable[Score] = (),
) -> tuple[int, int]:
    """Copy a run to a tracker from its first row on, and return the numbers of rows and of scores.

    Rows are read each time that `news` yields, and once more at its end, which with `live` is the end of the run's
    process. Raises what the tracker raises.
    """
    tracked = _described.describe(run, study)
    tracked.say = say
    handle = tracker.open(tracked)
    rows, count = _described.Rows(run.path / "metrics.jsonl"), 0

    def send() -> int:
        sent = 0
        found = iter(rows.new())
        while some := list(islice(found, AT_ONCE)):
            handle.log(some)
            sent += len(some)
        return sent

    for _ in news:
        count += send()
    count += send()
    _described.renew(tracked)
    if tracked.state == "running" and (live or run.state != "running"):
        tracked.state = "interrupted"
    scores = [*_described.summary(run, tracked.study), *more]
    handle.finish(scores, files)
    if free(run.path) < LOW:
        say("the disk is full, so the copy may be incomplete")
    return count, len(scores)


@contextlib.contextmanager
def _only_copy(run: RunDir, name: str, patience: float) -> Iterator[bool]:
    """Yield whether this process is the only one that copies the run to the tracker, after waiting if need be.

    The copy of a run that was killed may still be finishing when the run is resumed.
    """
    folder = run.path / "mirrors"
    own_folder(folder)
    folder.mkdir(exist_ok=True)
    lock = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        end = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    yield False
                    return
                time.sleep(0.1)
                continue
            except OSError:
                pass  # a network disk without locks
            break
        yield True
    finally:
        os.close(lock)


if __name__ == "__main__":
    try:
        main()
    except (InputError, OSError) as error:
        progress.say(str(error))
        sys.exit(2)
