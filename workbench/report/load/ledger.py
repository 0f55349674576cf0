"""The runs of a store as plain rows, to be filtered, sorted and compared two at a time. No table library is loaded."""

from __future__ import annotations

import math
import operator
import re
import statistics as plain
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from workbench.errors import InputError, suggest
from workbench.report.load.naming import UNTRAINED, budget_of, code_of, kind_of
from workbench.report.load.run_files import flatten, number, optional, part, scores_of
from workbench.spec.scoring import mean_score, place_of
from workbench.store.run_store import RunDir, RunStore

Row = dict[str, Any]

COLUMNS = ("run_id", "kind", "state", "objective", "seed", "budget", "spent.steps", "score")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "!=": operator.ne, "<=": operator.le, ">=": operator.ge, "=": operator.eq, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_CONDITION = re.compile(r"\s*([\w.-]+)\s*(!=|<=|>=|=|<|>)\s*(.*?)\s*", re.S)


def rows(store: RunStore) -> list[Row]:
    """A row a run: its state, every field of its spec by dotted key, what was spent, and its mean scores."""
    return [row_of(run) for run in store.runs()]


def row_of(run: RunDir) -> Row:
    """One run. What cannot be read is left out; `state` and `note` say why."""
    said = run.summary()
    row: Row = {"run_id": run.run_id, "state": said["state"], "note": said["note"]}
    if said["state"] == "damaged":
        return row
    spec = part(optional(run.path / "spec.json"), "spec")
    done, env = optional(run.path / "done.json"), optional(run.path / "env.json")
    row |= {"kind": kind_of(spec)}
    row |= flatten(spec) | {"budget": budget_of(part(spec, "budget"))[0], "code": code_of(env)}
    if row["kind"] == UNTRAINED:  # its spec names an objective, since every spec does, and nothing of it is computed
        row["objective"] = UNTRAINED
    row |= {f"spent.{k}": done.get(k) for k in ("steps", "tokens", "seconds")}
    row |= {f"flops.{k}": v for k, v in part(done, "flops").items()}
    row |= {f"final.{k}": v for k, v in part(done, "final").items()}
    return row | scores(run)


def kind(run: RunDir) -> str | None:
    """Return the kind of a run; None where its spec cannot be read."""
    spec = part(optional(run.path / "spec.json"), "spec")
    return kind_of(spec) if spec else None


def scores(run: RunDir) -> Row:
    """`score.TASK` as the mean over fine-tuning seeds, `score.SUITE` as the mean over its tasks, and `score`."""
    found: dict[str, dict[str, list[float]]] = {}
    for score, _ in scores_of(run.path):
        if score and score["value"] == score["value"]:
            found.setdefault(score["suite"], {}).setdefault(score["task"], []).append(score["value"])
    row: Row = {}
    for suite in sorted(found, key=place_of):
        means = {task: plain.fmean(values) for task, values in found[suite].items()}
        mean = mean_score(suite, means)[1]
        row |= {f"score.{task}": value for task, value in means.items()} | {f"score.{suite}": mean}
        row.setdefault("score", mean)
    return row


def chosen(found: Sequence[Row], where: Iterable[str], sort: str | None) -> list[Row]:
    """The rows that meet every condition (`objective=rtd`, `seed<3`, `score>60`), in order of a key.

    `sort` may begin with "-" for the largest first; rows that lack the key come last either way. Raises InputError
    for a condition of another form and for a key that no run has.
    """
    kept = list(found)
    for text in where:
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise InputError(f"--where {text!r} is not of the form key=value; there are =, !=, <, <=, > and >=")
        key, sign, value = match.groups()
        _known(key, found, "--where")
        _comparable(text, value, [row.get(key) for row in found])
        kept = [row for row in kept if _meets(row.get(key), sign, value)]
    if sort:
        key = sort.removeprefix("-")
        _known(key, found, "--sort")
        there = [row for row in kept if row.get(key) is not None]
        there.sort(key=lambda row: _rank(row[key]), reverse=sort.startswith("-"))
        kept = there + [row for row in kept if row.get(key) is None]
    return kept


def shown(found: Sequence[Row], kept: Sequence[Row], columns: str | None) -> list[Row]:
    """The rows with these columns only, comma-separated; `all` for every one. Raises InputError for an unknown one."""
    if columns == "all":
        names = list(dict.fromkeys(key for row in kept for key in row))
    else:
        names = [name.strip() for name in columns.split(",")] if columns else list(COLUMNS)
        for name in names if columns else ():
            _known(name, found, "--columns")
    return [{name: row.get(name) for name in names} for row in kept]


def _known(key: str, found: Sequence[Row], option: str) -> None:
    keys = {key for row in found for key in row}
    if found and key not in keys:
        raise InputError(f"{option} {key}: no run has it{suggest(key, keys)}")


def _comparable(text: str, value: str, there: Sequence[Any]) -> None:
    """Raise InputError for a condition that no run can meet: a second sign, or a word where all values are numbers."""
    if value[:1] in ("<", ">", "=", "!"):
        raise InputError(f"--where {text!r} is not of the form key=value; there are =, !=, <, <=, > and >=")
    numbers = [isinstance(each, (int, float)) and not isinstance(each, bool) for each in there if each is not None]
    if numbers and all(numbers) and value.lower() != "none" and not _is_number(value):
        raise InputError(f"--where {text!r} compares numbers with {value!r}, which is none")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _meets(value: Any, sign: str, text: str) -> bool:
    """Numbers are compared as numbers, words as words; nothing but "!=" holds for what a run lacks."""
    if value is None or isinstance(value, bool) or value != value:
        return _COMPARE[sign](str(value).lower(), text.lower()) if sign in ("=", "!=") else False
    try:
        return _COMPARE[sign](float(value), float(text))
    except (TypeError, ValueError):
        return _COMPARE[sign](str(value), text)


def _rank(value: Any) -> tuple[int, float, str]:
    size = number(value)
    return (0, size, "") if size == size else (1, 0.0, str(value))


def differences(a: Row, b: Row) -> tuple[list[Row], list[Row]]:
    """What differs between two runs: first in what they are, then in what came of them, a row a key."""
    results = ("spent.", "flops.", "final.", "score")
    keys = [key for key in dict.fromkeys((*a, *b)) if key not in ("run_id", "note", "budget")]
    differing = [key for key in keys if a.get(key) != b.get(key)]
    came = [key for key in differing if key.startswith(results) or key in ("state", "code")]
    spec = [{"key": key, "a": a.get(key), "b": b.get(key)} for key in differing if key not in came]
    return spec, [{"key": key, "a": a.get(key), "b": b.get(key), "b - a": _gap(a.get(key), b.get(key))} for key in came]


def _gap(a: Any, b: Any) -> float | None:
    gap = number(b) - number(a)
    return gap if gap == gap else None


def find_run(store: RunStore, word: str) -> RunDir:
    """A run by its name or by a part of it that no other has. Raises InputError when there is none, or several."""
    runs = store.runs()
    exact = [run for run in runs if run.run_id == word]
    near = exact or [run for run in runs if word and word in run.run_id]
    if len(near) > 1:
        names = ", ".join(run.run_id for run in near[:3])
        raise InputError(f"{word!r} is part of the names of {len(near)} runs ({names} ...); say more of the name")
    if near:
        return near[0]
    every = [run.run_id for run in runs]
    raise InputError(f"no run {word!r} in {store.root}{suggest(word, every) if every else ''}")


def as_text(a: Row, b: Row, table: Callable[[Sequence[Mapping[str, Any]]], str]) -> str:
    """Both lists of `differences` for a person. `table` makes aligned columns of rows."""
    spec, came = differences(a, b)
    lines = [f"a  {a['run_id']}", f"b  {b['run_id']}", ""]
    lines += ["What they are:", table(spec)] if spec else ["Their specs are the same."]
    lines += ["", "What came of them:", table(came)] if came else ["", "Nothing differs in what came of them."]
    if any(row["key"].startswith("score") for row in came):
        lines += ["", "One run each carries no interval; `workbench report` compares over seeds."]
    return "\n".join(lines)
