"""The runs of a store as dictionaries that can be filtered, sorted and compared in pairs, without a table library."""

from __future__ import annotations

import math
import operator
import re
import statistics as plain
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from workbench.errors import InputError, suggest
from workbench.report.load.naming import PUBLISHED, UNTRAINED, budget_of, code_of, kind_of
from workbench.report.load.run_files import NONE, Records, flatten, number, optional, part, scores_of
from workbench.spec.scoring import mean_score, place_of
from workbench.store.index import Index
from workbench.store.run_directory import damaged
from workbench.store.run_store import RunDir, RunStore

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
    """Return each run with its name, state, note, path and kind, for `workbench status`."""
    index = Index(store.root, "status", _status)
    facts = [(run, index.facts(run) | {"path": str(run.path)}) for run in store.runs()]
    index.keep()
    return facts


def _status(run: RunDir) -> Row:
    """Return the row of one run in `workbench status`."""
    state, note, records = run.examine()
    return {"run_id": run.run_id, "state": state, "note": note, "path": str(run.path), "kind": kind(run, records)}


def row_of(run: RunDir) -> Row:
    """Return the row of one run. Files that cannot be read are left out; `state` and `note` give the reason."""
    state, note, records = run.examine()
    row: Row = {"run_id": run.run_id, "state": state, "note": note}
    if state == "damaged":
        return row
    spec = part(optional(run.path / "spec.json", records), "spec")
    done, env = optional(run.path / "done.json", records), optional(run.path / "env.json", records)
    row |= {"kind": kind_of(spec)}
    settings = flatten(spec) if spec else {}
    if row["kind"] == PUBLISHED:  # its other settings are of no run
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


def kind(run: RunDir, records: Records = NONE) -> str | None:
    """Return the kind of a run (see `naming.kind_of`); None if its spec cannot be read."""
    spec = part(optional(run.path / "spec.json", records), "spec")
    return kind_of(spec) if spec else None


def scores(run: RunDir, records: Records = NONE) -> Row:
    """Return `score.TASK` (mean over fine-tuning seeds), `score.SUITE` (mean over its tasks), and `score` of a run."""
    values_of: dict[str, dict[str, list[float]]] = {}
    for score, _ in scores_of(run.path, records):
        if score and score["value"] == score["value"]:
            values_of.setdefault(score["suite"], {}).setdefault(score["task"], []).append(score["value"])
    row: Row = {}
    for suite in sorted(values_of, key=place_of):
        means = {task: plain.fmean(values) for task, values in values_of[suite].items()}
        mean = mean_score(suite, means)[1]
        row |= {f"score.{task}": value for task, value in means.items()} | {f"score.{suite}": mean}
        row.setdefault("score", mean)
    return row


def chosen(all_rows: Sequence[Row], where: Iterable[str], sort: str | None) -> list[Row]:
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
        selected = [row for row in selected if _meets(row.get(key), sign, value)]
    if sort:
        key = sort.removeprefix("-")
        _known(key, all_rows, "--sort")
        with_value = [row for row in selected if row.get(key) is not None]
        with_value.sort(key=lambda row: _rank(row[key]), reverse=sort.startswith("-"))
        selected = with_value + [row for row in selected if row.get(key) is None]
    return selected


def shown(all_rows: Sequence[Row], selected: Sequence[Row], columns: str | None) -> list[Row]:
    """Return the rows of `selected` with these columns only, separated by commas; "all" stands for every column.

    Raises InputError for a column that no run has.
    """
    if columns == "all":
        names = list(dict.fromkeys(key for row in selected for key in row))
    else:
        names = [name.strip() for name in columns.split(",")] if columns else list(COLUMNS)
        for name in names if columns else ():
            _known(name, all_rows, "--columns")
    return [{name: row.get(name) for name in names} for row in selected]


def _known(key: str, all_rows: Sequence[Row], option: str) -> None:
    """Raise InputError if no run has the key."""
    keys = {key for row in all_rows for key in row}
    if all_rows and key not in keys:
        raise InputError(f"{option} {key}: no run has this key{suggest(key, keys)}")


def _comparable(text: str, value: str, values: Sequence[Any]) -> None:
    """Raise InputError for a condition that no run can meet: with a second sign, or a word instead of a number."""
    if value[:1] in ("<", ">", "=", "!"):
        raise InputError(f"--where {text!r} is not of the form key=value; the signs are =, !=, <, <=, > and >=")
    numbers = [isinstance(each, (int, float)) and not isinstance(each, bool) for each in values if each is not None]
    if numbers and all(numbers) and value.lower() != "none" and not _is_number(value):
        raise InputError(f"--where {text!r} compares numbers with {value!r}, which is not a number")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


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


def _rank(value: Any) -> tuple[int, float, str]:
    """Return a key that sorts numbers before other values."""
    size = number(value)
    return (0, size, "") if size == size else (1, 0.0, str(value))


def differences(a: Row, b: Row) -> tuple[list[Row], list[Row]]:
    """Return what differs between two runs, a row for each key: in their specs, then in their results.

    Rows of results have the difference b - a, if both are numbers.
    """
    prefixes = ("spent.", "flops.", "final.", "score")
    keys = [key for key in dict.fromkeys((*a, *b)) if key not in ("run_id", "note", "budget")]
    differing = [key for key in keys if a.get(key) != b.get(key)]
    results = [key for key in differing if key.startswith(prefixes) or key in ("state", "code")]
    spec = [{"key": key, "a": a.get(key), "b": b.get(key)} for key in differing if key not in results]
    return spec, [
        {"key": key, "a": a.get(key), "b": b.get(key), "b - a": _gap(a.get(key), b.get(key))} for key in results
    ]


def _gap(a: Any, b: Any) -> float | None:
    gap = number(b) - number(a)
    return gap if gap == gap else None


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


def as_text(a: Row, b: Row, table: Callable[[Sequence[Mapping[str, Any]]], str]) -> str:
    """Return both lists of `differences` as text. `table` formats rows as aligned columns."""
    spec, results = differences(a, b)
    lines = [f"a  {a['run_id']}", f"b  {b['run_id']}", ""]
    lines += ["Specs:", table(spec)] if spec else ["Their specs are the same."]
    lines += ["", "Results:", table(results)] if results else ["", "Their results are the same."]
    if any(row["key"].startswith("score") for row in results):
        lines += ["", "A single run of each gives no interval; `workbench report` compares over seeds."]
    return "\n".join(lines)
