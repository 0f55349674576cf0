"""The store of all runs in a folder. There is no index, so that all facts about a run come from its own folder.

ROOT/store.json                 the format of this store
ROOT/<run id>/                  a run, see `run_directory`
ROOT/experiments/<name>.json    the record of an experiment, which lists its runs
ROOT/trash/                     removed runs, and a file for each with the time of the removal, see `manage`
ROOT/jobs/<name>/               the jobs of a cluster that commands submitted: their script, assignment and logs
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from workbench.errors import DamagedRun, InputError, LeaseHeld, LeaseLost, suggest
from workbench.process import in_threads
from workbench.spec.run_spec import RunSpec, digest, parse
from workbench.spec.stages import BoundRun
from workbench.store import atomic
from workbench.store.atomic import read_object
from workbench.store.lease import acquire
from workbench.store.redact import redact
from workbench.store.run_directory import RunDir, State, now
from workbench.store.validation import FORMAT, NAMING, check_fields, reason

__all__ = ["FORMAT", "ExperimentRecord", "LeaseHeld", "LeaseLost", "RunDir", "RunStore", "State"]

OPENED_AT_ONCE = 16  # new folders of runs
READ_AT_ONCE = 8  # runs
T = TypeVar("T")
EXPERIMENTS, JOBS, REMOVED = "experiments", "jobs", "trash"  # folders of a store that are not runs
# Fields that each row of these lists must have.
ROWS: dict[str, dict[str, Any]] = {
    "match": {"unit": str, "amount": (int, float), "convention": str, "given": str, "reference": str},
    "tuning": {"objective": str, "trial": int, "values": dict, "seeds": list, "run_ids": list},
    "contrasts": {"label": str, "a": dict, "b": dict, "runs_a": list, "runs_b": list, "seen": int},
    "measures": {"name": str, "digest": str, "statistic": str, "suite": str, "declared": str, "seen": int},
    "looks": {"seeds": int},
    "reported": {"at": str, "budget": dict, "seeds": list},
    "merged": {"cell": dict, "run": str},
}


@dataclass(frozen=True)
class ExperimentRecord:
    """The record of an experiment: its question and the runs that answer it.

    `untrained` are the runs of 0 steps, one for each seed; `base` and `tasks` are the spec and the settings of
    fine-tuning as plain data. `match` gives the unit in which all runs got the same amount (`study.Match`);
    `tuning` are the trials of a search. `contrasts` are the declared comparisons: arms as keys and values, their runs,
    when each was declared, and how many seeds of both arms were trained by then. `measures` are the tasks under their
    settings, when each was first named, and of how many seeds two arms had scores of any measure by then;
    `first_score` is the time of the first score of the runs. `design` is the plan of a command that adds seeds, with
    the numbers of seeds at which it tests; `looks` are the tests made, with their results. `reported` are the seeds of
    finished commands without such a plan, with their budget and the time of the report. `merged` are the cells that are
    the same model as another one, each with the run of that one. `text` describes the training text: words, tokens,
    documents, and the words of each source. `verdict` is that of the last report, as plain data, with the time of the
    report.

    A record that cannot be used has only `damage`, the reason and what to do.
    """

    name: str
    experiment: str = ""
    question: str = ""
    axis: str = "objective"
    base: dict[str, Any] = field(default_factory=dict)
    tasks: dict[str, Any] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)
    untrained: list[str] = field(default_factory=list)
    match: list[dict[str, Any]] = field(default_factory=list)
    tuning: list[dict[str, Any]] = field(default_factory=list)
    contrasts: list[dict[str, Any]] = field(default_factory=list)
    measures: list[dict[str, Any]] = field(default_factory=list)
    design: dict[str, Any] = field(default_factory=dict)
    looks: list[dict[str, Any]] = field(default_factory=list)
    reported: list[dict[str, Any]] = field(default_factory=list)
    merged: list[dict[str, Any]] = field(default_factory=list)
    text: dict[str, Any] = field(default_factory=dict)
    verdict: dict[str, Any] = field(default_factory=dict)
    first_score: str = ""
    command: str = ""
    updated: str = ""
    damage: str | None = None

    def dump(self) -> dict[str, Any]:
        """Return the content of the record's file, without its hash."""
        fields = dataclasses.asdict(self)
        del fields["damage"]
        return {"format": FORMAT, **fields}

    @property
    def run_ids(self) -> list[str]:
        """The names of the runs and of the untrained encoders, each once, in order."""
        return list(dict.fromkeys([*self.runs, *self.untrained]))

    def base_spec(self) -> RunSpec:
        """Return the settings that all runs of the experiment share. Raises InputError if they cannot be read."""
        return parse(self.base)


class RunStore:
    """The store of the runs in `root`, a folder that is created by default. Raises InputError if it is not a store."""

    def __init__(self, root: Path | str, create: bool = True) -> None:
        self.root, self._swept = _resolved(root), False
        mark, is_folder = self.root / "store.json", self.root.is_dir()
        if not is_folder and os.path.lexists(self.root):
            raise InputError(f"{self.root} is not a folder, so it cannot hold runs; choose another with --runs")
        if not is_folder and not create:
            raise InputError(f"there are no runs in {self.root}: no such folder; give their folder with --runs")
        if not create and not os.path.lexists(mark):
            raise InputError(f"{self.root} holds no runs (it has no store.json); choose another with --runs")
        try:
            if not is_folder:
                self.root.mkdir(parents=True, exist_ok=True)
            if not os.path.lexists(mark):
                atomic.write_atomic(mark, (atomic.dumps({"format": NAMING}) + "\n").encode())
            atomic.read_object(mark, format=NAMING)
        except (FileNotFoundError, NotADirectoryError, RecursionError, PermissionError) as error:
            if _no_permission(error, self.root):
                raise
            fault = "cannot hold runs" if is_folder else "cannot be created"
            raise InputError(f"{self.root} {fault}; choose another folder with --runs") from None
        except ValueError as error:
            raise InputError(
                f"{self.root} cannot be used as a store of runs: {error}; choose another folder with --runs"
            ) from None

    @classmethod
    def check(cls, root: Path | str) -> None:
        """Raise InputError or OSError if `root` is not a store and cannot become one; nothing is written."""
        path = _resolved(root)
        if os.path.lexists(path / "store.json") or not atomic.can_hold_files(path):
            cls(root)

    @classmethod
    def existing(cls, root: Path | str) -> RunStore:
        """Return the store at `root` for reading. Raises InputError if there is none; nothing is written."""
        return cls(root, create=False)

    # -- runs

    def open(self, bound: BoundRun) -> RunDir:
        """Return the folder of a run, new or existing. Raises InputError if it is damaged or has another spec."""
        run = RunDir(self.root / atomic.checked_name(bound.run_id, "the name of a run"))
        run.file("spec.json")
        if not os.path.lexists(run.path / "spec.json"):
            self._create(run, bound.spec)
        stored, given = run.spec().identity(), bound.spec.identity()
        if run.read_json("spec.json")["identity_sha"] != digest(given, 64) or stored != given:
            keys = _differing(stored, given) or ["its hash"]
            raise InputError(
                f"{run.path} contains a run that differs in {', '.join(keys[:5])}, so it cannot be continued; "
                f"move that folder away, or choose another one with --runs"
            )
        return run

    def open_all(self, bounds: Sequence[BoundRun]) -> list[RunDir]:
        """Return the folders of runs in order, opened by `open`; the folder of a damaged run is returned as it is.

        Each new folder waits for the disk several times; OPENED_AT_ONCE of them wait together. Raises as `open` for a
        run with another spec. A damaged run does not keep the others from being carried out, which name and skip it.
        """

        def opened(bound: BoundRun) -> RunDir:
            try:
                return self.open(bound)
            except DamagedRun:
                return RunDir(self.root / bound.run_id)

        first = list(map(opened, bounds[:1]))  # a store that cannot be written is found before threads begin
        return first + in_threads(opened, bounds[1:], OPENED_AT_ONCE)

    def _create(self, run: RunDir, spec: RunSpec) -> None:
        """Create the folder of a run together with its spec, in one step, unless another process has just done so."""
        if not self._swept:
            self._swept = True
            atomic.sweep_old(self.root)
        raw = spec.model_dump(mode="json")
        record = {
            "format": NAMING, "run_id": run.run_id, "identity_sha": digest(spec.identity(), 64),
            "spec_sha": digest(raw, 64), "spec": raw,
        }  # fmt: skip
        draft = atomic.draft_in(self.root)
        with atomic.disk_errors(run.path):
            try:
                draft.mkdir()
                atomic.write_new(draft / "spec.json", atomic.sealed(record), run.path / "spec.json")
                atomic.sync_folder(draft)
                atomic.place_first(draft, run.path)
            finally:
                shutil.rmtree(draft, ignore_errors=True)

    def runs(self) -> list[RunDir]:
        """Return all runs, sorted by name, including damaged ones, which have the reason in `damage`."""
        return [RunDir(self.root / name) for name in sorted(entry.name for entry in self.folders())]

    def folders(self) -> list[os.DirEntry[str]]:
        """Return the folder of each run, as the disk lists it; a link in the place of a folder counts as one."""
        with os.scandir(self.root) as entries:
            named = [each for each in entries if each.name[0] != "." and each.name not in (EXPERIMENTS, JOBS, REMOVED)]
            return [each for each in named if each.is_symlink() or each.is_dir(follow_symlinks=False)]

    def get(self, run_id: str) -> RunDir:
        """Return a run by its name. Raises InputError if there is none."""
        run = RunDir(self.root / atomic.checked_name(run_id, "the name of a run"))
        if run_id in (EXPERIMENTS, JOBS, REMOVED) or not os.path.lexists(run.path):
            names = [other.run_id for other in self.runs()]
            raise InputError(f"no run {run_id!r} in {self.root}{suggest(run_id, names) if names else ''}")
        return run

    def removal(self, run_id: str) -> str:
        """Return "removed on DATE" or "moved to FOLDER on DATE"; "" if the run's folder exists, or no note of it."""
        try:
            note = atomic.read_object(self.root / REMOVED / f"{run_id}.json", format=FORMAT)
        except (OSError, ValueError):
            return ""
        if os.path.lexists(self.root / run_id):
            return ""
        target = str(note.get("target") or "")
        return f"{f'moved to {target}' if target else 'removed'} on {str(note.get('at'))[:10]}"

    # -- experiments

    def extend_experiment(self, record: ExperimentRecord, updated: str | None = None) -> ExperimentRecord:
        """Write a record and return it, merged with an existing one of the same name.

        Runs that earlier commands listed stay listed. `updated` is the time of the update, by default now. Raises
        InputError if the existing record cannot be used.
        """
        folder = self.root / EXPERIMENTS
        atomic.own_folder(folder)
        folder.mkdir(exist_ok=True)
        path = folder / f"{atomic.checked_name(record.name, 'the name of an experiment')}.json"
        with acquire(folder, patience=20) as lease:
            merged = dataclasses.replace(record, command=redact(record.command), updated=updated or now())
            if os.path.lexists(path):
                before = self._record(path)
                if before.damage:
                    raise InputError(f"{path} {before.damage}, and give the same command again")
                merged = dataclasses.replace(
                    merged,
                    runs=_union(before.runs, record.runs),
                    untrained=_union(before.untrained, record.untrained),
                    tuning=_trials([*before.tuning, *record.tuning]),
                    contrasts=_contrasts([*before.contrasts, *record.contrasts]),
                    measures=_once([*before.measures, *record.measures], "name", "digest", "statistic"),
                    first_score=before.first_score or record.first_score,
                    design=before.design or record.design,
                    verdict=record.verdict or before.verdict,
                    looks=_once([*before.looks, *record.looks], "seeds"),
                    reported=_once([*before.reported, *record.reported], "budget", "seeds"),
                    merged=_once([*before.merged, *record.merged], "cell"),
                )
            atomic.write_atomic(path, atomic.sealed(merged.dump()), lease.stage, lease.check)
        return merged

    def experiments(self) -> list[ExperimentRecord]:
        """Return all records by name, including damaged ones. Raises InputError if their folder is a link or a file."""
        folder = self.root / EXPERIMENTS
        atomic.own_folder(folder)
        if not folder.is_dir():
            return []
        return [self._record(folder / name) for name in sorted(os.listdir(folder)) if name.endswith(".json")]

    def experiment(self, name: str) -> ExperimentRecord:
        """Return a record by its name. Raises InputError if there is none or it cannot be used."""
        path = self.root / EXPERIMENTS / f"{atomic.checked_name(name, 'the name of an experiment')}.json"
        if not os.path.lexists(path):
            names = [record.name for record in self.experiments()]
            raise InputError(f"no experiment {name!r} in {self.root}{suggest(name, names) if names else ''}")
        record = self._record(path)
        if record.damage:
            raise InputError(f"{path} {record.damage}")
        return record

    @staticmethod
    def _record(path: Path) -> ExperimentRecord:
        """Return the record in a file; it has only `damage` if the file cannot be used."""
        try:
            return _parsed_record(path)
        except PermissionError:
            fault = "cannot be read: you have no permission; change its permissions"
        except (OSError, ValueError) as error:
            fault = f"is damaged: {reason(error)}; move it away"
        return ExperimentRecord(path.name.removesuffix(".json"), damage=fault)


def of_each(work: Callable[[RunDir], T], runs: Iterable[RunDir]) -> list[T]:
    """Return `work` of each run, in order; several runs are read at the same time. Raises as `process.in_threads`."""
    return in_threads(work, runs, min(READ_AT_ONCE, os.cpu_count() or 1))


def _parsed_record(path: Path) -> ExperimentRecord:
    """Return the record in a file. Raises ValueError (of which InputError is one) if it is damaged, or OSError."""
    name = path.name.removesuffix(".json")
    raw = read_object(path, format=FORMAT, needs_seal=True)
    known = {f.name for f in dataclasses.fields(ExperimentRecord)} - {"damage"}
    blank = ExperimentRecord("")
    values = {key: raw.get(key, getattr(blank, key)) for key in known}
    check_fields(path.name, values, {key: type(getattr(blank, key)) for key in known - ROWS.keys()})
    for key, kinds in ROWS.items():
        for row in values[key] if isinstance(values[key], list) else [None]:
            named = row if isinstance(row, dict) else {}
            if not all(isinstance(v := named.get(k), kind) and not isinstance(v, bool) for k, kind in kinds.items()):
                raise ValueError(f"{path.name} has a row of {key!r} that cannot be used")
    if values["name"] != name:
        raise ValueError(f"{path.name} is the record of {ascii(values['name'])[:80]}")
    try:
        for run_id in (*values["runs"], *values["untrained"]):
            atomic.checked_name(run_id, "the name of a run")
    except InputError as error:
        raise ValueError(f"{path.name}: {error}") from None
    return ExperimentRecord(**values)


def _no_permission(error: BaseException, folder: Path) -> bool:
    """Return whether this user may not write where `folder` is or would be.

    The folders of the kernel take no files although they say that root may write there: /sys raises PermissionError,
    and /proc FileNotFoundError.
    """
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    return isinstance(error, PermissionError) and not os.access(existing, os.W_OK)


def check_outside(root: Path, out: Path, option: str) -> None:
    """Raise InputError, which names `option`, if `out` lies in the store at `root`, whose files belong to its runs."""
    place, store = os.path.realpath(out), os.path.realpath(root)
    if os.path.commonpath([place, store]) == store:
        raise InputError(
            f"{option} {str(out)[:200]} lies in the store {root}, whose files belong to its runs; name a place outside "
            f"of it"
        )


def _resolved(root: Path | str) -> Path:
    try:
        return atomic.user_path(root, "--runs").resolve()
    except RuntimeError:  # what pathlib makes of links that lead to one another
        raise InputError(f"--runs {root}: its symbolic links form a loop; name another folder") from None


def _union(before: Iterable[str], after: Iterable[str]) -> list[str]:
    return list(dict.fromkeys((*before, *after)))


def _trials(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each trial once, with its score if any row has it: two commands may carry out the same search."""
    by_key: dict[tuple[Any, ...], dict[str, Any]] = {}
    for trial in rows:
        key = (trial["objective"], trial["trial"], *trial["run_ids"])
        if key not in by_key or by_key[key].get("score") is None:
            by_key[key] = trial
    return list(by_key.values())


def _contrasts(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each contrast once, as it was declared first, with the runs of its arms from all rows."""
    by_arms: dict[str, dict[str, Any]] = {}
    for contrast in rows:
        key = atomic.dumps([contrast["a"], contrast["b"]])
        first = by_arms.setdefault(key, contrast)
        by_arms[key] = first | {side: _union(first[side], contrast[side]) for side in ("runs_a", "runs_b")}
    return list(by_arms.values())


def _once(rows: Iterable[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
    """Drop duplicate rows, comparing only these keys; the first of equal rows stays."""
    first: dict[str, dict[str, Any]] = {}
    for row in rows:
        first.setdefault(atomic.dumps([row.get(key) for key in keys]), row)
    return list(first.values())


def _differing(a: Any, b: Any, prefix: str = "") -> list[str]:
    if not (isinstance(a, Mapping) and isinstance(b, Mapping)):
        return [] if a == b else [prefix.rstrip(".")]
    return [each for key in sorted({*a, *b}) for each in _differing(a.get(key), b.get(key), f"{prefix}{key}.")]


def refuse_other_report(folder: Path, store: RunStore) -> None:
    """Raise InputError if the folder has a report on runs of another store, which a report without --out replaces."""
    trained: list[str] = []
    with contextlib.suppress(OSError, ValueError, csv.Error):  # there is no table, or it is no report's
        rows = csv.DictReader(io.StringIO((folder / "runs.csv").read_text(encoding="utf-8")))
        listed = [str(row["run_id"]) for row in rows if row.get("run_id") and row.get("arm")]
        trained = [run_id for run_id in listed if not run_id.startswith("untrained-")]
    if trained and not any((store.root / run_id).is_dir() for run_id in trained):
        raise InputError(
            f"{folder} holds a report on runs of another store, none of which is in {store.root}; give --out FOLDER "
            f"for this one, or move that report away"
        )
