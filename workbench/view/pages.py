"""The pages of `workbench view`: studies, one study, runs, a comparison of chosen runs, and one run.

An address holds all that a page shows: filters, columns, sorting and chosen runs are its query, so that it can be sent.
The page of a study and a comparison are drawn as the report is (`workbench.report.page.document`).
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
import os
import re
import shlex
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.responses import Response

from workbench.errors import InputError, plural
from workbench.execution import workers
from workbench.execution.workers import OF_TRAINING
from workbench.progress import clock
from workbench.report import drawing, formatting
from workbench.report.load import runs_table
from workbench.report.load.run_files import flatten, optional
from workbench.report.page import document, rendering
from workbench.report.results import Results
from workbench.report.statistics.intervals import t_interval
from workbench.store import manage
from workbench.store.atomic import LONGEST_LINE, lines_of
from workbench.store.run_directory import RunDir
from workbench.store.run_store import ExperimentRecord
from workbench.view.watched import Row, Watched, each_once, numbers

TEMPLATES = Path(__file__).parent / "templates"
AT_A_TIME = 200  # rows of the table of runs
MOST_COMPARED = 400  # runs
CURVE_POINTS = 120
TAIL = 20  # last rows of a log that the page of a run shows
MOST_SENT = 2**26  # bytes of a file
TEXTS = (".json", ".jsonl", ".log", ".txt", ".py", ".md", ".csv", ".svg", ".html", ".yaml")  # shown, never as a page
MOST_SETTINGS = 4  # columns of settings that differ, unless columns are chosen
# Settings that follow from the objective or the text.
FOLLOWING = ("source", "options.", "data.fingerprint", "data.special.", "data.tokens", "data.words")
CONDITIONS = re.compile(r"[\s,]+(?=[\w.-]+ *[!=<>])")  # what separates two conditions on runs
RESULTS = ("spent.", "flops.", "final.", "score")
WRITTEN = ("tags", "notes", "archived")  # by people, about a run
NO_SETTINGS = {"run_id", "state", "note", "kind", "code", "budget", "seed", "suites", *WRITTEN, *OF_TRAINING}
STATES = ("done", "trained", "running", "interrupted", "new", "failed", "diverged", "damaged", "missing", "reading")


class Drawn(document.Page):
    """The content of a report that is drawn for a browser: the curves of all budgets, with more points.

    Data files are beside the page, or for chosen runs at the address of the page with their name added.
    """

    every_budget, points = True, CURVE_POINTS


class Pages:
    """The pages of a store; every method takes the query of an address and returns what is sent.

    With a `key`, they have the forms that change notes, tags and the archive, which send this key along.
    """

    def __init__(self, watched: Watched, key: str = "") -> None:
        self.watched, self.store, self.key = watched, watched.store, key
        self._last: Drawn | None = None

    def _render(self, name: str, colours: str = "", status: int = 200, **context: Any) -> Response:
        script = rendering.template("report.js") if "page" in context else ""
        script += (TEMPLATES / "view.js").read_text(encoding="utf-8")
        colours += (TEMPLATES / "view.css").read_text(encoding="utf-8")
        shared = {"store": self.store.root, "version_seen": self.watched.version, "link": link, "states": STATES,
                  "reading": not self.watched.complete, "clock": clock, "shown": shown, "here": name,
                  "key": self.key}  # fmt: skip
        html = rendering.render_page(name, colours, script, folder=TEMPLATES, **shared, **context)
        policy = re.search('http-equiv="Content-Security-Policy" content="([^"]+)"', html)
        assert policy is not None
        headers = {"content-security-policy": f"{policy[1]}; frame-ancestors 'none'"}
        return Response(html.encode("utf-8", "replace"), status, headers, media_type="text/html")

    def refused(self, sentence: str) -> Response:
        """Return the page that says why there is nothing to show."""
        return self._render("message.html.j2", status=404, sentence=sentence)

    # -- studies

    def studies(self, query: QueryParams) -> Response:
        """Return the list of studies: state, progress, time left, and the answer so far."""
        rows = []
        for record in self.watched.records:
            progress = workers.study_progress(record, self.watched.rows)
            answer = "" if record.damage else self.watched.answer(record)
            rows.append({"progress": progress, "answer": answer, "computing": record.name in self.watched.wanted})
        return self._render("studies.html.j2", rows=rows, runs=len(self.watched.rows), picked=query.getlist("study"))

    def study(self, query: QueryParams, name: str) -> Response:
        """Return the report on a study as it is now, with the runs that are still missing."""
        record = self.store.experiment(name)
        return self._report("study.html.j2", record, self.watched.results(record))

    def _report(self, template: str, record: ExperimentRecord, results: Results, **context: Any) -> Response:
        prefix = link(query, file=None) + "&file=" if (query := context.get("query")) else ""
        page = self._last
        if page is None or page.results is not results or page.prefix != prefix:
            page = self._last = Drawn(results, prefix)  # figures are drawn once, and shown until a run has changed
        return self._render(
            template, drawing.colour_rules(page.looks), page=page, grid=self._grid(results),
            progress=workers.study_progress(record, self.watched.rows), **context,
        )  # fmt: skip

    def _grid(self, results: Results) -> list[tuple[str, list[tuple[int, Row]]]]:
        arms: dict[str, list[tuple[int, Row]]] = {}
        runs = results.frames.rows("runs")
        several = len({run["budget"] for run in runs if run["role"] == "arm"}) > 1
        for run in runs:
            title = results.titles.get(run["arm"], str(run["arm"]))
            title += f", {run['budget']}" if several and run["role"] == "arm" else ""
            row = self.watched.rows.get(run["run_id"], {"run_id": run["run_id"], "state": "missing"})
            arms.setdefault(title, []).append((run["seed"], present(row)))
        return [(arm, sorted(rows, key=lambda each: each[0])) for arm, rows in arms.items()]

    def study_file(self, query: QueryParams, name: str, file: str) -> Response:
        """Return a data file of a study's report, made from what is known now."""
        return _data_file(self.watched.results(self.store.experiment(name)), file)

    # -- runs

    def runs(self, query: QueryParams) -> Response:
        """Return the table of runs: filtered, sorted, with chosen columns, or as means over seeds."""
        everything = list(self.watched.rows.values())
        archived, study = query.get("archived") == "yes", query.get("study", "")
        where = [one for text in query.getlist("where") for one in CONDITIONS.split(text.strip()) if one]
        sort, error = query.get("sort", ""), ""
        rows: list[Row] = []
        try:
            rows = self._of_study(study) if study else everything
            rows = [row for row in rows if archived or not row.get("archived")]
            words = [text for text in where if not re.search("[=<>]", text)]
            chosen = [row for row in rows if all(word in row["run_id"] for word in words)]
            conditions = [text for text in where if text not in words]
            chosen = runs_table.filtered(chosen, conditions, sort or None) if chosen else []
        except InputError as wrong:
            chosen, error = rows, str(wrong).removeprefix("--where ").removeprefix("--sort ")
        columns = [name.strip() for name in query.get("columns", "").split(",") if name.strip()]
        records = [record for record in self.watched.records if study in ("", record.name)]
        axes = [key for record in records for key in record.axis.split(",")]
        columns = columns or usual_columns(rows, axes, where)
        by_seed = query.get("group") == "seeds"
        groups = _groups(chosen, sort) if by_seed else [[row] for row in chosen]
        last = max(1, -(-len(groups) // AT_A_TIME))
        wanted = query.get("page", "")[:9]
        number = min(last, max(1, int(wanted))) if wanted.isascii() and wanted.isdigit() else 1
        lines = [_line(group, columns) for group in groups[(number - 1) * AT_A_TIME : number * AT_A_TIME]]
        here = {run_id for line in lines for run_id in line["ids"]}
        picked = set(each_once(query.getlist("run")))
        return self._render(
            "runs.html.j2", lines=lines, total=len(groups), everything=len(everything), query=query, study=study,
            studies=[record.name for record in self.watched.records], where=where, sort=sort, columns=columns,
            by_seed=by_seed, error=error, number=number, last=last, archived=archived, picked=picked,
            elsewhere=sorted(picked.intersection(row["run_id"] for row in (rows if lines else everything)) - here),
            hidden=sum(bool(row.get("archived")) for row in everything), most=MOST_COMPARED,
            keys=sorted(set().union(*everything)),
        )  # fmt: skip

    def _of_study(self, name: str) -> list[Row]:
        run_ids = self.store.experiment(name).run_ids
        return [row for run_id in run_ids if (row := self.watched.rows.get(run_id)) is not None]

    def compare(self, query: QueryParams) -> Response:
        """Return the report on chosen runs or studies, as if they were one study without a question."""
        run_ids, names = each_once(query.getlist("run")), query.getlist("study")
        groups = {"": run_ids} if run_ids else {}
        groups |= {name: [row["run_id"] for row in self._of_study(name)] for name in names if name}
        run_ids = list(dict.fromkeys(run_id for group in groups.values() for run_id in group))
        if not run_ids:
            return self._render("message.html.j2", sentence="Choose runs on the page of runs, and compare them here.")
        if len(run_ids) > MOST_COMPARED:
            raise InputError(f"{len(run_ids)} runs cannot be compared on one page; choose at most {MOST_COMPARED}")
        rows = {run_id: self._row(run_id) for run_id in run_ids}
        record = chosen_record([*rows.values()])
        if file := query.get("file"):
            return _data_file(self.watched.results(record), file)
        several = {name: [rows[run_id] for run_id in group] for name, group in groups.items()}
        return self._report(
            "compare.html.j2", record, self.watched.results(record), query=query, run_ids=run_ids,
            names=list(several), differ=differences(several),
        )  # fmt: skip

    # -- one run

    def _run(self, run_id: str) -> RunDir:
        run = self.store.get(run_id)
        if run_id not in self.watched.rows and not run.path.is_dir():
            raise InputError(f"no run {run_id!r} in {self.store.root}")
        return run

    def _row(self, run_id: str) -> Row:
        return self.watched.rows.get(run_id) or runs_table.row_of(self._run(run_id))

    def run(self, query: QueryParams, run_id: str) -> Response:
        """Return the page of a run: settings, plan, curves, health, scores, log, files, and how to reproduce it."""
        row, run = self._row(run_id), self._run(run_id)
        page = Drawn(self.watched.results(chosen_record([row]))) if row["state"] not in ("damaged", "reading") else None
        records = {name: optional(run.path / f"{name}.json") for name in ("plan", "env", "done", "error")}
        scores = page.frames.rows("scores") if page else []
        last, rows = _tail(run)
        studies = [each.name for each in self.watched.records if run_id in each.runs or run_id in each.untrained]
        own = _identity(row)
        siblings = [
            other["run_id"] for other in list(self.watched.rows.values())
            if all(other.get(key) == row.get(key) for key in ("objective", "budget")) and _identity(other) == own
        ]  # fmt: skip
        known = {key: value for key, value in row.items() if value is not None}
        health = [(key.removeprefix("final."), value) for key, value in known.items() if key.startswith("final.")]
        settings = [(k, exact(v)) for k, v in known.items() if _is_setting(k) or k in ("seed", "budget")]
        shared: dict[str, Any] = {"page": page} if page else {}
        return self._render(
            "run.html.j2", drawing.colour_rules(page.looks) if page else "", run_id=run_id, row=present(row),
            drawn=page, settings=settings,
            plan=[(key, value) for key, value in flatten(records["plan"]).items() if key not in ("run_id", "format")],
            environment=[(k, v) for k, v in flatten(records["env"]).items() if k not in ("run_id", "command")],
            command=typed(records["env"].get("command")), scores=scores, last=last, log_rows=rows,
            trace=_text(run, "error.log"), written=manage.notes_of(run), health=health,
            failure=str(records["error"].get("message") or ""),
            warnings=[str(each) for each in records["done"].get("warnings") or ()], files=_files(run), studies=studies,
            siblings=sorted(siblings), error_step=records["error"].get("step"),
            **shared,
        )  # fmt: skip

    def run_file(self, query: QueryParams, run_id: str, path: str) -> Response:
        """Return a file of a run. Raises InputError for any path that leads out of its folder."""
        run = self._run(run_id)
        file = run.file(path)
        if not os.path.realpath(file).startswith(f"{os.path.realpath(self.store.root)}{os.sep}"):
            raise InputError("that path leads out of the store")
        try:
            opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise InputError(f"{run_id} has no such file ({error.strerror})") from None
        with os.fdopen(opened, "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"{run_id} has no such file")
            if status.st_size > MOST_SENT:
                raise InputError(f"a file of {formatting.count(status.st_size)} bytes is not sent; copy it from {file}")
            return _download(Path(path).name, stream.read())


def usual_columns(rows: Sequence[Row], axes: Sequence[str], where: Sequence[str]) -> list[str]:
    """Return the columns of a table of runs if none are chosen: state, objective, score, and settings that differ.

    Settings that conditions name come first, then the `axes` of studies, and last those that others determine.
    """
    trained = [row for row in rows if row.get("kind") == "pre-training"] or rows
    differ, always = _differing(trained, "budget"), ("objective", "budget")
    conditions = {re.split("[!=<>]", text)[0] for text in where}
    named = [key for key in sorted(conditions) if _is_setting(key) and any(key in row for row in rows)]
    settings = [key for key in differ if key not in (*always, *named)]
    settings.sort(key=lambda key: (key not in axes, key.startswith(FOLLOWING)))
    kept = [key for key in named if key not in always] + settings[:MOST_SETTINGS]
    return ["state", "objective", "score", *kept, "seed", *(["budget"] if "budget" in differ else ())]


def _differing(rows: Sequence[Row], *more: str) -> list[str]:
    """Return the keys with several values in these rows, among settings without tasks and among `more` keys."""
    first = rows[0] if rows else {}
    keys = dict.fromkeys([*first, *sorted(set().union(*rows))])
    settings = [key for key in keys if _is_setting(key) and not key.startswith("tasks.")]
    return [key for key in [*settings, *more] if any(row.get(key) != first.get(key) for row in rows)]


def differences(groups: Mapping[str, Sequence[Row]]) -> list[tuple[str, list[str]]]:
    """Return the settings in which runs differ, each with the values that it has in each group of runs."""
    rows = [row for group in groups.values() for row in group if row.get("kind") != "untrained"]
    found = [
        (key, [", ".join(dict.fromkeys(exact(row.get(key)) for row in group)) or "–" for group in groups.values()])
        for key in _differing(rows, "seed", "budget")
    ]
    return [(key, texts) for key, texts in found if len(groups) == 1 or len(set(texts)) > 1]


def chosen_record(rows: Sequence[Row]) -> ExperimentRecord:
    """Return a record of chosen runs, which is in no store: its axis are the settings in which they differ."""
    trained = [row for row in rows if row.get("kind") != "untrained"] or list(rows)
    differ = _differing(trained)
    first = [key for key in ("objective", "scale") if key in differ] or differ[:1] or ["objective"]
    ids = [row["run_id"] for row in trained]
    others = [row["run_id"] for row in rows if row["run_id"] not in ids]
    return ExperimentRecord("chosen runs", axis=first[0], runs=ids, untrained=others)


def present(row: Row) -> Row:
    """Return a row with None for what only a run that trains has."""
    return dict.fromkeys((*OF_TRAINING, *WRITTEN)) | row


def link(query: Any, /, **changes: Any) -> str:
    """Return the query of an address with other values of some keys; None or "" removes a key."""
    pairs = [(key, value) for key, value in query.multi_items() if key not in changes and value]
    for key, value in changes.items():
        several = value if isinstance(value, list) else [value]
        pairs += [(key, str(one)) for one in several if one not in (None, "")]
    return "?" + urlencode(pairs)


def typed(command: Any) -> str:
    """Return a command, words or a text, as a line for a shell."""
    return shlex.join(map(str, command)) if isinstance(command, list) else str(command or "")


def exact(value: Any) -> str:
    """Return a setting as text that a condition on runs may hold."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value) if isinstance(value, int) else shown(value)


def shown(value: Any) -> str:
    """Return a value of a row as text."""
    if isinstance(value, float):
        return f"{value:.5g}" if abs(value) < 1e5 and not value.is_integer() else formatting.count(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1e4:
        return f"{value:,}"
    return rendering.shown(value)


def _is_setting(key: str) -> bool:
    return key not in NO_SETTINGS and not key.startswith((*RESULTS, "budget."))


def _identity(row: Row) -> bytes:
    """Return a hash over all settings but the seed, and the budget, which the runs of one arm share."""
    settings = sorted((k, str(v)) for k, v in row.items() if v is not None and _is_setting(k))
    return hashlib.sha256(repr((row.get("kind"), row.get("budget"), settings)).encode(errors="replace")).digest()


def _groups(rows: Sequence[Row], sort: str) -> list[list[Row]]:
    """Return the runs that differ in their seed alone together; sorted by the mean of a result, if `sort` names one."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(_identity(row) if row.get("kind") else row["run_id"], []).append(row)
    key = sort.removeprefix("-")
    if not key.startswith(RESULTS):
        return list(groups.values())
    values = [(numbers(group, key), group) for group in groups.values()]
    known = sorted(((fmean(of), group) for of, group in values if of), key=lambda each: each[0])
    return [group for _, group in (known[::-1] if sort.startswith("-") else known)] + [g for of, g in values if not of]


def _line(group: Sequence[Row], columns: Sequence[str]) -> Row:
    """Return a line of the table: one run, or runs that differ in their seed, with results as means with intervals."""
    cells = []
    for key in columns:
        values = numbers(group, key) if len(group) > 1 and key.startswith(RESULTS) else []
        if len(set(values)) > 1:
            estimate = t_interval(values)
            cells.append(formatting.interval(estimate.mean, estimate.half))
        elif len(group) > 1 and key == "seed":
            cells.append(plural(len(group), "seed"))
        elif len(group) > 1 and key == "state":
            states = Counter(str(row["state"]) for row in group)
            each = [f"{count} {state}" for state, count in states.items()]
            cells.append(", ".join(each) if len(states) > 1 else next(iter(states)))
        elif key.startswith("score") and len(numbers(group, key)) == 1:
            cells.append(formatting.points(numbers(group, key)[0], 2))
        else:
            text = exact if _is_setting(key) else shown
            texts = dict.fromkeys(text(row.get(key)) for row in group if len(group) == 1 or row.get(key) is not None)
            cells.append(" or ".join([*texts][:4]) or shown(None))
    return {"ids": [row["run_id"] for row in group], "row": present(group[0]), "cells": cells}


def _tail(run: RunDir) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    try:
        with open(run.file("metrics.jsonl"), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - 2**16))
            lines = list(lines_of(file))[1 if size > 2**16 else 0 :]
    except (OSError, InputError):
        return {}, []
    rows = []
    for line in lines[-TAIL - 1 :]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append({key: value for key, value in row.items() if not isinstance(value, dict) and value is not None})
    return (rows[-1] if rows else {}), rows[-TAIL:][::-1]


def _text(run: RunDir, name: str) -> str:
    """Return the end of a text file of a run, "" if there is none."""
    try:
        with open(run.file(name), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LONGEST_LINE))
            return file.read(2**16).decode(errors="replace")
    except (OSError, InputError):
        return ""


def _files(run: RunDir) -> list[tuple[str, str]]:
    found = []
    for folder, folders, names in os.walk(run.path):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode):
                found.append((os.path.relpath(path, run.path), f"{formatting.count(status.st_size)}B"))
    return found


def _data_file(results: Results, name: str) -> Response:
    files = document.files_beside(results)
    if name not in files:
        raise InputError(f"the report has no file {name[:80]!r}")
    return _download(name, files[name])


def _download(name: str, data: bytes) -> Response:
    """Return a file: texts are shown as plain text, everything else is saved. A browser runs neither."""
    plain = name.endswith(TEXTS)
    kind = "text/plain" if plain else mimetypes.guess_type(name)[0] or "application/octet-stream"
    if not plain and not kind.startswith("image/"):
        kind = "application/octet-stream"
    safe = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)
    place = "inline" if plain else "attachment"
    return Response(data, 200, {"content-disposition": f'{place}; filename="{safe}"'}, media_type=kind)
