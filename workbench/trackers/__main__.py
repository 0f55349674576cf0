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
import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from workbench import progress, trackers
from workbench.errors import InputError
from workbench.report.load import runs_table
from workbench.report.load.arm_names import kind_of, start_of
from workbench.report.load.run_files import flatten, number, optional, part, points_of, scores_of
from workbench.report.statistics.intervals import t_interval
from workbench.store import manage, validation
from workbench.store.atomic import LONGEST_LINE, open_regular, own_folder
from workbench.store.run_directory import RunDir
from workbench.store.run_store import ExperimentRecord, RunStore
from workbench.trackers import Row, Score, TrackedRun, Tracker, short

# ----------------------------------------
# What a tracker is told about a run, read from the run's folder: settings, environment, rows, scores and notes.

PRIVATE = ("command", "run_id", "places", "job", "changes", "format")  # of env.json: places and host names
EXACT = 1 << 53  # whole numbers above are rounded by most tools, and refused by some


class Rows:
    """The rows of a metrics.jsonl that grows: each call of `new` yields the whole lines that were added.

    The file stays open, so that rows of another process that resumes the run, in a new file, are not mixed with these.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Any = None

    def new(self) -> Iterator[Row]:
        """Yield the rows that were added since the last call. Raises InputError for a damaged line."""
        if self._file is None:
            try:
                self._file = open_regular(self._path)
            except FileNotFoundError:
                return
        while True:
            place = self._file.tell()
            line = self._file.readline(LONGEST_LINE)
            if not line.endswith(b"\n"):
                self._file.seek(place)
                return
            row = validation.row(line)
            if row is None:
                raise InputError("metrics.jsonl is damaged; workbench verify says where")
            yield plain(row)


def plain(row: Mapping[str, Any]) -> Row:
    """Return {"flops/paper": 1.0} for {"flops": {"paper": 1.0}}, without what is undefined or not a number."""
    flat: dict[str, float] = {}
    for key, value in row.items():
        inner = {f"{key}/{name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
        for name, each in inner.items():
            if isinstance(each, int | float) and not isinstance(each, bool) and math.isfinite(each):
                flat[name] = float(each) if abs(each) > EXACT else each
    return flat


def describe(run: RunDir, study: str | None = None) -> TrackedRun:
    """Return the description of a run; without a `study`, it belongs to the latest record that lists it.

    Raises InputError or OSError if the run cannot be read.
    """
    spec = part(run.read_json("spec.json"), "spec")
    env = {key: value for key, value in optional(run.path / "env.json").items() if key not in PRIVATE}
    path = run.path / "metrics.jsonl"
    reached = 0
    with contextlib.suppress(OSError, ValueError), open_regular(path) as file:
        reached = (validation.row(validation.last_line(file)[0]) or {"step": 0})["step"]
    tracked = TrackedRun(
        run.run_id, run.path, study if study is not None else study_of(run), kind_of(spec),
        flatten(spec) | flatten({"env": env}), reached=reached, started=(run.path / "spec.json").stat().st_mtime,
    )  # fmt: skip
    tracked.stored = lambda: Rows(path).new()
    renew(tracked)
    return tracked


def renew(tracked: TrackedRun) -> None:
    """Read state, tags and notes of a run again."""
    run = RunDir(tracked.folder)
    written = manage.notes_of(run)
    tracked.tags = written.tags
    tracked.notes = "\n".join(f"{note['at'][:16]} {note['text']}" for note in written.notes)
    error = None if run.trained else run.error()
    tracked.state = "done" if run.trained else str(error["kind"]) if error else "running"


def study_of(run: RunDir) -> str:
    """Return the name of the record of a run's store that lists the run and was updated last, "" if none does."""
    records = [record for record in RunStore.existing(run.path.parent).experiments() if not record.damage]
    return max(((each.updated, each.name) for each in records if run.run_id in each.run_ids), default=("", ""))[1]


# ---- scores ----


def summary(run: RunDir, study: str) -> list[Score]:
    """Return the scores of a run, at its end and at points of training, and the scores of its untrained encoder.

    `score/TASK` is the mean over fine-tuning seeds, with `/seed N` for each of several seeds, and `/low` and `/high`,
    the 95 % interval of the mean; `score/SUITE` and `score` are means over tasks, as in `workbench runs`.
    """
    found = _means(run, "score") + _of_seeds(run, "score")
    for point, scores, _ in points_of(run.path):
        values: dict[str, list[float]] = {}
        for score in scores:
            values.setdefault(score["task"], []).append(score["value"])
        step = number(point.get("steps"))
        if not math.isnan(step):
            found += [Score(f"score/{task}", math.fsum(each) / len(each), int(step)) for task, each in values.items()]
    baseline = untrained(run, study)
    if baseline is not None:
        means = [mean for mean in _means(baseline, "untrained") if mean.name != "untrained"]
        found += means + _of_seeds(baseline, "untrained")
    done = optional(run.path / "done.json")
    spent = [Score(f"spent/{key}", value) for key in ("steps", "tokens", "seconds")
             if not math.isnan(value := number(done.get(key)))]  # fmt: skip
    return [each for each in [*found, *spent] if math.isfinite(each.value)]


def _means(run: RunDir, prefix: str) -> list[Score]:
    """Return the mean scores of a run at its end, with names that begin with `prefix`: of tasks, suites and in all."""
    means = [(key, value) for key, value in runs_table.scores(run).items() if isinstance(value, int | float)]
    return [Score("/".join([prefix, *key.split(".", 1)[1:]]), value) for key, value in means]


def _of_seeds(run: RunDir, prefix: str) -> list[Score]:
    """Return the scores of the seeds of fine-tuning, and the limits of their means, for tasks with several seeds."""
    values: dict[str, dict[str, float]] = {}
    for score, _ in scores_of(run.path):
        if score and math.isfinite(score["value"]):
            seeds = values.setdefault(score["task"], {})
            seed = f"seed {score['seed']}"  # under other settings of the task, the seed is there twice
            seeds[seed if seed not in seeds else f"{seed} {score['digest']}"] = score["value"]
    found = []
    for task, seeds in values.items():
        if len(seeds) > 1:
            found += [Score(f"{prefix}/{task}/{seed}", value) for seed, value in seeds.items()]
            found += _interval(f"{prefix}/{task}", list(seeds.values()))
    return found


def _interval(name: str, values: Sequence[float]) -> list[Score]:
    estimate = t_interval(values)
    ends = {"low": estimate.low, "high": estimate.high}
    return [Score(f"{name}/{end}", value) for end, value in ends.items() if value is not None]


def untrained(run: RunDir, study: str) -> RunDir | None:
    """Return the untrained encoder with the initial weights of a run: same seed, sizes and data; None without one."""
    store = RunStore.existing(run.path.parent)
    record = store.experiment(study) if study else None
    if record is None or run.run_id in record.untrained:
        return None
    own = _start(run)
    seed = f"-s{run.run_id.rpartition('-s')[2].partition('-')[0]}-"  # names of runs contain their seed
    candidates = [store.root / name for name in record.untrained if seed in name]
    return next((RunDir(path) for path in candidates if path.is_dir() and _start(RunDir(path)) == own), None)


def _start(run: RunDir) -> tuple[Any, ...]:
    spec = flatten(part(optional(run.path / "spec.json"), "spec"))
    return start_of(spec.get("seed"), spec)


def over_seeds(store: RunStore, record: ExperimentRecord) -> dict[str, list[Score]]:
    """Return by run the scores of its arm over pre-training seeds: `arm/TASK/mean`, `/low`, `/high` and `/seeds`.

    Runs are of one arm if they differ in the seed alone. Arms of which one seed has a score are left out.
    """
    arms: dict[str, list[RunDir]] = {}
    for run_id in record.runs:
        run = RunDir(store.root / run_id)
        with contextlib.suppress(InputError):  # a run that is missing or damaged
            arms.setdefault(run.spec().arm, []).append(run)
    found: dict[str, list[Score]] = {}
    for runs in arms.values():
        values: dict[str, list[float]] = {}
        for run in runs:
            for each in _means(run, "arm"):
                values.setdefault(each.name, []).append(each.value)
        scores = []
        for name, each_seed in values.items():
            if len(each_seed) > 1:
                mean = math.fsum(each_seed) / len(each_seed)
                scores += [Score(f"{name}/mean", mean), Score(f"{name}/seeds", len(each_seed))]
                scores += _interval(name, each_seed)
        found |= {run.run_id: scores for run in runs}
    return found


# ----------------------------------------
# The process.

ORPHAN = 30.0  # seconds for finishing after the run's process has ended or closed the pipe
TAKEOVER = 40.0  # seconds for which the copy of a resumed run waits until the copy of the killed one has ended
PATIENCE = 2.0  # seconds for which a copy of what is stored waits for another copy of the same run
AT_ONCE = 500  # rows given to a tracker in one call
LOW = 1 << 16  # bytes; with less room on the disk, a copy may be incomplete


def main() -> None:
    """Copy the runs that the first line of standard input names to a tracker. Raises InputError without that line."""
    for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(kind, signal.SIG_IGN)  # these signals are meant for the run, which then closes the pipe
    source, report = os.fdopen(os.dup(0), "rb"), os.dup(1)
    header: Any = None
    with contextlib.suppress(ValueError):
        header = None if source.isatty() else json.loads(source.readline() or "null")
    if not isinstance(header, dict) or not {"tracker", "runs", "live"} <= header.keys():
        raise InputError(
            "this program is started by `workbench run --track NAME`, with a tracker and runs on standard input; to "
            "copy stored runs, give: workbench track STUDY --to NAME"
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
    return over_seeds(store, store.experiment(study))


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
    tracked = describe(run, study)
    tracked.say = say
    handle = tracker.open(tracked)
    rows, count = Rows(run.path / "metrics.jsonl"), 0

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
    renew(tracked)
    if tracked.state == "running" and (live or run.state != "running"):
        tracked.state = "interrupted"
    scores = [*summary(run, tracked.study), *more]
    handle.finish(scores, files)
    if shutil.disk_usage(run.path).free < LOW:
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
