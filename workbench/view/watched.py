"""The rows of all runs of a store, for the pages: kept in memory, and renewed when a file of the run changes.

Ten thousand folders cannot all be read every second. A settled run changes only by files that are placed in its folder,
which changes the folder's time; so every look compares these times, reads again the runs whose folder has changed and
those with a lease, and compares all files of a few others in turn.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from workbench.errors import InputError, Interrupted, one_line
from workbench.execution import workers
from workbench.execution.workers import OF_TRAINING
from workbench.process import release_memory
from workbench.report.load import runs_table
from workbench.report.load.run_files import number
from workbench.report.load.runs_table import Index
from workbench.store.run_directory import RunDir
from workbench.store.run_store import EXPERIMENTS, ExperimentRecord, RunStore

if TYPE_CHECKING:
    from workbench.report.results import Results

Row = dict[str, Any]
log = logging.getLogger("workbench")

LEAST, MOST = 1.0, 1.5  # seconds between two looks, which is longer where a look takes long
IN_TURN = 20  # settled runs of which all files are compared at one look
YOUNG = 2 * 10**9  # nanoseconds for which the time of a folder is recent: another change may leave it as it was
RELISTED = 20  # looks between two listings of a store whose folder has not changed
AT_ONCE = 400  # runs read for the first time at one look
KEPT = 3  # studies whose results are kept in memory
REDRAWN = 2.0, 60.0  # curves of running runs wait so many seconds, or times as long as they took, to be redrawn
SHARED = (str, int, float)
READING = "reading"  # the state of a run that was not read yet


class Watched:
    """The runs and records of a store, as they were at the last look; `version` grows with every change."""

    def __init__(self, store: RunStore) -> None:
        self.store, self.version, self.complete = store, 0, False
        self.rows: dict[str, Row] = {}
        self.records: list[ExperimentRecord] = []
        self._names: dict[str, None] = {}  # of the runs in the store, in order
        self._times: dict[str, int] = {}  # run id -> modification time of its folder or its notes
        self._listed = self._looks = 0
        self._noted: set[str] = set()  # runs with a folder of notes, in which a change does not change the run's folder
        self._stamps: dict[str, str] = {}  # run id -> hash of its row, without values that change at every step
        self._record_times: Any = None
        self._index, self._unknown = Index(store.root, "runs", self._row_of), 0
        self._values: dict[tuple[type, Any], Any] = {}  # one copy of each text and number that rows share
        self._turn: list[str] = []
        self._results: dict[tuple[str, ...], tuple[Any, Results, float, float]] = {}  # with time and duration
        self._answers: dict[str, tuple[Any, str]] = {}
        self._lock, self._computing = threading.Lock(), threading.Lock()
        self.stopped = threading.Event()  # set when nothing is looked for any more
        self.wanted: dict[str, None] = {}  # records whose answer a page lacks, to be computed next
        for run_id, entry in self._index.known.items():
            entry["facts"] = self._shared(entry["facts"])
            self._place(run_id, entry["facts"])

    # -- looking

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Look for changes, and compute answers that pages lack, in threads of their own inside the block."""

        def until_stopped(work: Callable[[], None]) -> None:
            with contextlib.suppress(KeyboardInterrupt, Interrupted):  # which `heed` raises in every thread
                work()

        for each in (self._look_on, self._answer_on):
            threading.Thread(target=until_stopped, args=(each,), daemon=True).start()
        try:
            yield
        finally:
            self.stopped.set()

    def _look_on(self) -> None:
        while not self.stopped.is_set():
            begun = time.monotonic()
            try:
                self.look()
            except Exception as error:  # the next look may succeed, and without looks the pages would stand still
                log.warning("the store cannot be read at the moment: %s", one_line(error))
            took = time.monotonic() - begun
            self.stopped.wait(0.05 if not self.complete else min(MOST, max(LEAST, 40 * took)))

    def look(self) -> None:
        """Read again what has changed since the last look, and at the first ones some of the runs."""
        with self._lock:
            before = self.version
            self._list()
            present = self._changed()
            first = [run_id for run_id in present if run_id not in self._times]
            later = set(first[AT_ONCE:])
            for run_id in later:
                if run_id not in self.rows:
                    self._place(run_id, {"run_id": run_id, "state": READING, "note": ""})
            busy = [run_id for run_id, row in self.rows.items() if row["state"] == "running"]
            for run_id in dict.fromkeys([*(one for one in present if one not in later), *busy, *self._some()]):
                if run_id in self._names:
                    self._read(run_id)
                    self._times[run_id] = present.get(run_id, self._times.get(run_id, 0))
            self._read_records()
            if not later and not self.complete:
                self.complete = True
                self.version += 1
                if self._unknown > AT_ONCE:  # for a few runs, reading them again is faster than writing the index
                    self._index.keep()
                self._index.known = self._index.used
                self._compact()
                release_memory()
            elif later and self.version == before:
                self.version += 1

    def _list(self) -> None:
        """List the runs again if one may have been added or removed, and drop removed runs.

        Adding or removing a run changes the time of the store's folder. A change in the same instant as the last
        listing leaves that time as it was, so the runs are listed again while the time is recent. Some network disks
        report an old time, so the runs are also listed at every RELISTED-th look.
        """
        at, self._looks = os.stat(self.store.root).st_mtime_ns, self._looks + 1
        if at == self._listed and abs(time.time_ns() - at) > YOUNG and self._looks % RELISTED:
            return
        self._listed, names = at, sorted(entry.name for entry in self.store.folders())
        self._names = dict.fromkeys(names)
        for run_id in self.rows.keys() - self._names.keys():
            del self.rows[run_id]
            self._stamps.pop(run_id, None)
            self._times.pop(run_id, None)
            self.version += 1

    def _changed(self) -> dict[str, int]:
        """Return the runs whose folder or notes have changed since they were read, each with the new time."""
        changed = {}
        store = os.open(self.store.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in self._names:  # ten thousand at every look, so each costs one call
                try:
                    at = os.stat(name, dir_fd=store, follow_symlinks=False).st_mtime_ns
                    if name in self._noted:
                        at = max(at, os.stat(f"{name}/notes", dir_fd=store).st_mtime_ns)
                except OSError:  # removed meanwhile
                    continue
                if self._times.get(name) != at:
                    changed[name] = at
        finally:
            os.close(store)
        return changed

    def _some(self) -> list[str]:
        if not self.complete:
            return []
        self._turn = self._turn or list(self._names)
        some, self._turn = self._turn[:IN_TURN], self._turn[IN_TURN:]
        return some

    def _read(self, run_id: str) -> None:
        run = RunDir(self.store.root / run_id)
        try:
            row = self._index.facts(run)
            if (entry := self._index.used.get(run_id)) is not None and entry["facts"] == row:
                row = entry["facts"]  # the same object, so that it is in memory once
            if row["state"] == "running":
                now = workers.facts(run, {key: row[key] for key in ("run_id", "state", "note")})
                row = row | {key: now[key] for key in ("note", *OF_TRAINING)}
        except (InputError, OSError) as error:  # files that change meanwhile
            row = {"run_id": run_id, "state": "damaged" if os.path.lexists(run.path) else READING, "note": str(error)}
        (self._noted.add if (run.path / "notes").is_dir() else self._noted.discard)(run_id)
        self._place(run_id, row)

    def look_at(self, run_ids: Iterable[str]) -> None:
        """Read these runs again now, since a page has changed them."""
        with self._lock:
            for run_id in run_ids:
                self._read(run_id)

    def _row_of(self, run: RunDir) -> Row:
        self._unknown += 1
        return self._shared(runs_table.row_of(run))

    def _shared(self, row: Row) -> Row:
        """Return the row with keys and values that rows share in memory; None is left out after the first looks."""
        values = self._values
        return {
            sys.intern(key): values.setdefault((type(value), value), value) if type(value) in SHARED else value
            for key, value in row.items() if value is not None or not self.complete
        }  # fmt: skip

    def _compact(self) -> None:
        """Leave out what is None in the rows of the index, which take half as much memory then."""
        for run_id, entry in self._index.used.items():
            same = self.rows.get(run_id) == entry["facts"]
            entry["facts"] = {key: value for key, value in entry["facts"].items() if value is not None}
            if same:
                self.rows[run_id] = entry["facts"]

    def _place(self, run_id: str, row: Row) -> None:
        """Keep a row. The index may hold the same object, so it must never be changed."""
        if self.rows.get(run_id) == row:
            return
        self.rows[run_id] = row
        settled = repr([(key, value) for key, value in row.items() if key not in OF_TRAINING])
        self._stamps[run_id] = hashlib.sha256(settled.encode(errors="replace")).hexdigest()[:16]
        self.version += 1

    def _read_records(self) -> None:
        folder = self.store.root / EXPERIMENTS
        times: list[Any] = []
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            times = sorted((each.name, each.stat(follow_symlinks=False).st_mtime_ns) for each in entries)
        times = [each for each in times if each[0].endswith(".json")]
        if times != self._record_times:
            self.records = sorted(self.store.experiments(), key=lambda each: each.updated, reverse=True)
            self._record_times = times
            self.version += 1

    # -- studies

    def _key(self, record: ExperimentRecord) -> Any:
        """Return what results depend on, without what changes at every step of a run that trains."""
        return record.updated, tuple((run_id, self._stamps.get(run_id)) for run_id in record.run_ids)

    def results(self, record: ExperimentRecord, curves: bool = True) -> Results:
        """Return the results of a record, which need not be in the store, computed again only if a run has changed.

        With `curves`, they are also computed again while a run trains, at most a sixtieth of the time.
        """
        from workbench.report import data_files  # pandas is loaded only now
        from workbench.report.load import study_tables
        from workbench.report.results import ReportOptions

        key, name = self._key(record), (record.name, record.axis, *record.runs)
        busy = curves and any(self.rows.get(run_id, {}).get("state") == "running" for run_id in record.run_ids)
        with self._computing:
            kept, begun = self._results.pop(name, None), time.monotonic()
            late = kept is not None and begun - kept[2] > max(REDRAWN[0], REDRAWN[1] * kept[3])
            if kept is None or kept[0] != key or (busy and late):
                frames = study_tables.read_record(self.store, record, verify=False)
                notes = tuple(note for note in frames.notes if "--no-verify" not in note)
                results = data_files.results_of(replace(frames, notes=notes), {}, ReportOptions())
                release_memory()
                kept = key, results, begun, time.monotonic() - begun
            self._results[name] = kept
            while len(self._results) > KEPT:
                del self._results[next(iter(self._results))]
        return kept[1]

    def answer(self, record: ExperimentRecord) -> str:
        """Return the answer so far in the sentence of the report, "" if none is known yet.

        Once a run has changed, a newer answer is computed in the background, and until then the last one is returned.
        """
        from workbench.report import verdict_line

        known = self._answers.get(record.name)
        if known is not None and known[0] == self._key(record):
            return known[1]
        stated = verdict_line(record.verdict)
        settled = stated and workers.study_progress(record, self.rows).state == "done"
        if not settled and any(self.rows.get(run_id, {}).get("score") is not None for run_id in record.runs):
            self.wanted[record.name] = None
        return known[1] if known is not None else stated

    def _answer_on(self) -> None:
        from workbench.report import data_files, verdict_line  # noqa: F401, which takes seconds: before a page needs it

        while not self.stopped.wait(0.5):
            if not self.complete:
                continue
            for name in list(self.wanted):
                try:
                    record = self.store.experiment(name)
                    key, answer = self._key(record), verdict_line(record.verdict)
                    try:
                        answer = str(next(iter(self.results(record, curves=False).verdicts), ""))
                    finally:  # kept after a failure too, so that it is computed again only when a run has changed
                        self._answers[name] = key, answer
                except Exception as error:  # of files that change or are damaged; other studies still have an answer
                    log.warning("the answer of %s cannot be computed: %s", name, one_line(error))
                self.wanted.pop(name, None)
                self.version += 1


def each_once(texts: Iterable[str]) -> list[str]:
    """Return the names in texts that separate them by commas, each once."""
    return list(dict.fromkeys(one for text in texts for one in text.split(",") if one))


def numbers(rows: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    """Return the numbers that rows have under a key."""
    values = [number(row.get(key)) for row in rows]
    return [value for value in values if value == value]
