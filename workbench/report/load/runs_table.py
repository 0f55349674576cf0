"""The runs of a store as a table: filtered, sorted, compared in pairs, and found by name, as are experiment records.

Rows are dictionaries, so that no table library is loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import operator
import os
import re
import statistics as plain
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench import __version__
from workbench.errors import InputError, plural, suggest
from workbench.report.load.arm_names import PUBLISHED, UNTRAINED, budget_of, code_of, kind_of
from workbench.report.load.run_files import FINISHED, NO_RECORDS, Records, flatten, number, optional, part, scores_of
from workbench.spec.scoring import mean_score, place_of
from workbench.store import manage
from workbench.store.atomic import read_object, sealed, write_atomic
from workbench.store.owner import disk_time
from workbench.store.run_directory import RunDir, damaged
from workbench.store.run_store import ExperimentRecord, RunStore

log = logging.getLogger("workbench")
Row = dict[str, Any]

COLUMNS = ("run_id", "kind", "state", "objective", "seed", "budget", "spent.steps", "score")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "!=": operator.ne, "<=": operator.le, ">=": operator.ge, "=": operator.eq, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_CONDITION = re.compile(r"\s*([\w.-]+)\s*(!=|<=|>=|=|<|>)\s*(.*?)\s*", re.S)


def rows(store: RunStore) -> list[Row]:
    """Return a row for each run: its state, the fields of its spec by dotted key, its spending and its mean scores."""
    index = Index(store.root, "runs", row_of)
    facts = [index.facts(run) for run in store.runs()]
    index.keep()
    return facts


def states(store: RunStore) -> list[tuple[RunDir, Row]]:
    """Return each run with its name, state, note, path, kind, tags and seconds, for `workbench status`."""

    def status(run: RunDir) -> Row:
        state, note, records = run.examine()
        written, spec = manage.notes_of(run), part(optional(run.path / "spec.json", records), "spec")
        return {
            "run_id": run.run_id, "state": state, "note": note, "path": str(run.path),
            "kind": kind_of(spec) if spec else None, "tags": list(written.tags), "archived": written.archived,
            "spent.seconds": optional(run.path / "done.json", records).get("seconds"),
        }  # fmt: skip

    index = Index(store.root, "status", status)
    facts = [(run, index.facts(run) | {"path": str(run.path)}) for run in store.runs()]
    index.keep()
    return facts


def row_of(run: RunDir) -> Row:
    """Return the row of one run. Files that cannot be read are left out; `state` and `note` give the reason."""
    state, note, records = run.examine()
    written = manage.notes_of(run)
    row: Row = {
        "run_id": run.run_id, "state": state, "note": note, "tags": ", ".join(written.tags), "notes": written.text,
        "archived": written.archived,
    }  # fmt: skip
    if state == "damaged":
        return row
    spec = part(optional(run.path / "spec.json", records), "spec")
    done, env = optional(run.path / "done.json", records), optional(run.path / "env.json", records)
    row |= {"kind": kind_of(spec)}
    settings = flatten(spec) if spec else {}
    if row["kind"] == PUBLISHED:  # its spec has defaults elsewhere, which say nothing
        settings = flatten({key: spec[key] for key in ("published", "seed", "budget") if key in spec})
    row |= settings | {"budget": budget_of(part(spec, "budget"))[0], "code": code_of(env)}
    if row["kind"] in (UNTRAINED, PUBLISHED):  # every spec names an objective, and here it is not used
        row["objective"] = row["kind"]
    row |= {f"spent.{k}": done.get(k) for k in ("steps", "tokens", "seconds")}
    row |= {f"flops.{k}": v for k, v in part(done, "flops").items()}
    row |= {f"final.{k}": v for k, v in part(done, "final").items()}
    return row | scores(run, records)


def whole_row(run: RunDir) -> Row:
    """Return the row of one run. Raises InputError if the run is damaged, since its row then lacks most values."""
    row = row_of(run)
    if row["state"] == "damaged":
        raise damaged(run.path, row["note"])
    return row


def scores(run: RunDir, records: Records = NO_RECORDS) -> Row:
    """Return `score.TASK` (mean over fine-tuning seeds), `score.SUITE` (mean over its tasks), and `score` of a run.

    `suites` are the names of the suites.
    """
    values_of: dict[str, dict[str, list[float]]] = {}
    for score, _ in scores_of(run.path, records):
        if score and score["value"] == score["value"]:
            values_of.setdefault(score["suite"], {}).setdefault(score["task"], []).append(score["value"])
    suites = sorted(values_of, key=place_of)
    row: Row = {"suites": ", ".join(suites)}
    for suite in suites:
        means = {task: plain.fmean(values) for task, values in values_of[suite].items()}
        mean = mean_score(suite, means)[1]
        row |= {f"score.{task}": value for task, value in means.items()} | {f"score.{suite}": mean}
        row.setdefault("score", mean)
    return row


def filtered(all_rows: Sequence[Row], where: Iterable[str], sort: str | None) -> list[Row]:
    """Return the rows that meet every condition (`objective=rtd`, `seed<3`, `score>60`), sorted by a key.

    `sort` may begin with "-" to put the largest value first; rows without the key come last in both cases. Raises
    InputError for a condition of another form, and for a key that no run has.
    """
    selected = list(all_rows)
    for text in where:
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise InputError(f"--where {text!r} is not of the form key=value; the signs are =, !=, <, <=, > and >=")
        key, sign, value = match.groups()
        _known(key, all_rows, "--where")
        _comparable(text, value, [row.get(key) for row in all_rows])
        selected = [  # a condition on tags is a condition on a single tag
            row for row in selected
            if _meets(
                value if key == "tags" and value in (row.get("tags") or "").split(", ") else row.get(key), sign, value
            )
        ]  # fmt: skip
    if sort:
        key = sort.removeprefix("-")
        _known(key, all_rows, "--sort")

        def rank(row: Row) -> tuple[int, float, str]:
            size = number(row[key])  # numbers come before other values
            return (0, size, "") if size == size else (1, 0.0, str(row[key]))

        with_value = [row for row in selected if row.get(key) is not None]
        with_value.sort(key=rank, reverse=sort.startswith("-"))
        selected = with_value + [row for row in selected if row.get(key) is None]
    return selected


def with_columns(all_rows: Sequence[Row], selected: Sequence[Row], columns: str | None) -> list[Row]:
    """Return the rows of `selected` with these columns only, separated by commas; "all" stands for every column.

    Without `columns`, these are COLUMNS, in which the score is the mean of a run's first suite, the mean of every suite
    that a run has, and tags and notes if there are any.

    Raises InputError for a column that no run has.
    """
    if columns == "all":
        names = list(dict.fromkeys(key for row in selected for key in row))
    else:
        suites = {suite for row in selected for suite in row.get("suites", "").split(", ") if suite}
        of_suites = [f"score.{suite}" for suite in sorted(suites, key=place_of)]
        written = [key for key in ("tags", "notes") if any(row.get(key) for row in selected)]
        usual = [*COLUMNS, *of_suites, *written]
        names = [name.strip() for name in columns.split(",")] if columns else usual
        for name in names if columns else ():
            _known(name, all_rows, "--columns")
    return [{name: row.get(name) for name in names} for row in selected]


def _known(key: str, all_rows: Sequence[Row], option: str) -> None:
    names = set().union(*all_rows)
    if names and key not in names:
        raise InputError(
            f"{option} {key}: no run has this key{suggest(key, names, lists='workbench runs --columns all')}"
        )


def _comparable(text: str, value: str, values: Sequence[Any]) -> None:
    """Raise InputError for a condition that no run can meet: with a second sign, or a word instead of a number."""
    if value[:1] in ("<", ">", "=", "!"):
        raise InputError(f"--where {text!r} is not of the form key=value; the signs are =, !=, <, <=, > and >=")
    numbers = [isinstance(each, (int, float)) and not isinstance(each, bool) for each in values if each is not None]
    try:
        is_number = math.isfinite(float(value))
    except ValueError:
        is_number = value.lower() == "none"
    if numbers and all(numbers) and not is_number:
        raise InputError(f"--where {text!r} compares numbers with {value!r}, which is not a number")


def _meets(value: Any, sign: str, text: str) -> bool:
    """Return whether a value meets a condition.

    Two numbers are compared as numbers, anything else as text. None, NaN, True and False have no order: only `=` and
    `!=` can hold for them.
    """
    if value is None or isinstance(value, bool) or value != value:
        return _COMPARE[sign](str(value).lower(), text.lower()) if sign in ("=", "!=") else False
    try:
        return _COMPARE[sign](float(value), float(text))
    except (TypeError, ValueError):
        return _COMPARE[sign](str(value), text)


def differences(a: Row, b: Row) -> tuple[list[Row], list[Row]]:
    """Return what differs between two runs by key: in their specs, then in their results with b - a of numbers."""
    prefixes = ("spent.", "flops.", "final.", "score")
    keys = [key for key in dict.fromkeys((*a, *b)) if key not in ("run_id", "note", "budget", "suites")]
    differing = [key for key in keys if a.get(key) != b.get(key)]
    results = [key for key in differing if key.startswith(prefixes) or key in ("state", "code")]
    spec = [{"key": key, "a": a.get(key), "b": b.get(key)} for key in differing if key not in results]
    gaps = {key: number(b.get(key)) - number(a.get(key)) for key in results}
    return spec, [
        {"key": key, "a": a.get(key), "b": b.get(key), "b - a": gap if gap == gap else None}
        for key, gap in gaps.items()
    ]


def find_run(store: RunStore, word: str) -> RunDir:
    """Return the run of this name, or the only run whose name contains it. Raises InputError for none or several."""
    runs = store.runs()
    exact = [run for run in runs if run.run_id == word]
    near = exact or [run for run in runs if word and word in run.run_id]
    if len(near) > 1:
        names = ", ".join(run.run_id for run in near[:3])
        raise InputError(f"{word!r} is part of the names of {len(near)} runs ({names} ...); give a longer part")
    if near:
        return near[0]
    every = [run.run_id for run in runs]
    raise InputError(f"no run {word!r} in {store.root}{suggest(word, every) if every else ''}")


def differences_text(a: Row, b: Row, table: Callable[[Sequence[Mapping[str, Any]]], str]) -> str:
    """Return both lists of `differences` as text. `table` formats rows as aligned columns."""
    spec, results = differences(a, b)
    lines = [f"a  {a['run_id']}", f"b  {b['run_id']}", ""]
    lines += ["Specs:", table(spec)] if spec else ["Their specs are the same."]
    lines += ["", "Results:", table(results)] if results else ["", "Their results are the same."]
    if any(row["key"].startswith("score") for row in results):
        lines += ["", "A single run of each gives no interval; `workbench report` compares over seeds."]
    return "\n".join(lines)


def find_record(store: RunStore, word: str) -> str:
    """Return the name of a record, given that name or the name of its experiment.

    If an experiment has several records, this is the finished record that was updated last, or else the record that
    was updated last. A warning names the record, and each of the others. Raises InputError if there is none.
    """
    everything = store.experiments()
    for record in everything:
        if record.damage and (record.name == word or record.name.startswith(f"{word}-")):
            raise InputError(f"{store.root / 'experiments' / record.name}.json {record.damage}")
    records = [record for record in everything if not record.damage]
    if any(record.name == word for record in records):
        return word
    of_experiment = [record for record in records if record.experiment == word]
    if len(of_experiment) == 1:
        log.warning("%s is read from the record %s, the only one of this experiment", word, of_experiment[0].name)
        return of_experiment[0].name
    if of_experiment:
        states = {record.name: record_states(store, record) for record in of_experiment}
        newest = sorted(of_experiment, key=lambda record: (record.updated, record.name), reverse=True)
        first, *others = sorted(newest, key=lambda record: states[record.name].keys() != {"done"})
        log.warning("%s is read from the record %s", word, described(first, states[first.name]))
        for other in others:
            log.warning(
                "another record of %s, which may be named instead: %s", word, described(other, states[other.name])
            )
        return first.name
    names = {name for record in records for name in (record.name, record.experiment)}
    raise InputError(f"{store.root} holds no experiment {word!r}{suggest(word, names) if names else ''}")


def record_states(store: RunStore, record: ExperimentRecord) -> Counter[str]:
    """Return the number of a record's runs in each state, read from their directories."""
    states: Counter[str] = Counter()
    for run_id in record.run_ids:
        try:
            states[store.get(run_id).state] += 1
        except InputError:
            states["missing"] += 1
        except OSError:
            states["damaged"] += 1
    return states


def described(record: ExperimentRecord, states: Counter[str]) -> str:
    """Return the name of a record with a word on its state, its trained runs, and when it was updated."""
    word = "interrupted" if states.keys() & {"new", "interrupted", "missing"} else "unfinished"  # would not be resumed
    word = "finished" if states.keys() == {"done"} else "running" if states["running"] else word
    done = sum(states[state] for state in FINISHED)
    return f"{record.name} ({word}, {done} of {plural(states.total(), 'run')}, {record.updated[:16]})"


def is_untrained(run: RunDir) -> bool:
    """Return whether a run is an untrained encoder, whose scores are shown beside trained encoders."""
    return kind_of(part(optional(run.path / "spec.json"), "spec")) == UNTRAINED


# ----------------------------------------
# Facts about finished runs, kept between commands, so that a store of ten thousand runs is listed in seconds.
#
# ROOT/.status.json and ROOT/.runs.json hold the facts of each run, and a hash over name, size, inode and times of all
# files in its folder.
#
# This is only a cache: the facts of a run are used while none of its files has changed, and read again otherwise. An
# index that is missing, damaged or of another version is written again, and deleting it loses nothing. Runs with a
# lease are not indexed. Damage that changes neither size nor times is found by the commands that read every file, such
# as `verify` and `report`.

FORMAT = 6  # increase it when a kept fact is computed in another way
SETTLED = ("done", "trained", "failed", "diverged", "damaged")
RECENT = 2.0  # seconds; a file may change twice within the resolution of its times


class Index:
    """An index of facts about the runs of a store, ROOT/.NAME.json; `of` computes the facts, among them `state`."""

    def __init__(self, root: Path, name: str, of: Callable[[RunDir], Row]) -> None:
        self.path, self.of = root / f".{name}.json", of
        self.version = f"{__version__}/{FORMAT}/{name}"  # the name, since both files lie side by side
        self.known = self._read()
        self.used: dict[str, dict[str, Any]] = {}

    def facts(self, run: RunDir) -> Row:
        """Return the facts of a run, which are read from its files if one of them has changed."""
        mark, newest = _mark(run.path)
        entry = self.known.get(run.run_id)
        if entry is None or not mark or entry["mark"] != mark:
            facts = self.of(run)
            now = disk_time(self.path.parent) if mark and facts["state"] in SETTLED else None
            if now is None or now - newest < RECENT:
                return facts
            entry = {"mark": mark, "facts": facts}
        self.used[run.run_id] = entry
        return dict(entry["facts"])

    def keep(self) -> None:
        """Write the index if its facts have changed; do nothing if writing fails."""
        if self.used != self.known:
            with contextlib.suppress(OSError, ValueError):
                write_atomic(self.path, sealed({"version": self.version, "runs": self.used}))

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            content = read_object(self.path, needs_seal=True)
        except (OSError, ValueError):
            return {}
        entries: dict[str, dict[str, Any]] = content["runs"] if content.get("version") == self.version else {}
        return entries


def _mark(folder: Path) -> tuple[str, float]:
    """Return a hash over all files of a run's folder, and the time of the newest change; "" if it has a lease."""
    root = str(folder)
    sha, newest, waiting = hashlib.sha256(), 0, [root]
    try:
        while waiting:
            place = waiting.pop()
            with os.scandir(place) as entries:
                for entry in sorted(entries, key=lambda each: each.name):
                    if entry.name == "lease":
                        return "", 0.0
                    facts = entry.stat(follow_symlinks=False)
                    times = facts.st_size, facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_mode
                    sha.update(f"{entry.path.removeprefix(root)}\0{times}\n".encode("utf-8", "surrogateescape"))
                    newest = max(newest, facts.st_ctime_ns)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    except OSError:
        return "", 0.0
    return sha.hexdigest()[:24], newest / 1e9
