"""A user's own choices between answers (`choice:FILE`), and texts with two marked spans (`spans:FILE`).

The files are tables (CSV, TSV, JSON lines, Parquet), and their rows to test on are found as those of any table
(`workbench.tasks.finetuning.table`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.errors import InputError, listed
from workbench.progress import warn_once
from workbench.spec.parts import TasksSpec
from workbench.store.atomic import user_path
from workbench.tasks.finetuning import table
from workbench.tasks.rows import FORMATS, rows_of
from workbench.tasks.superglue.questions_of_files import Row, examples, id_of, label, notes, text
from workbench.tasks.superglue.span_places import spans_of
from workbench.tasks.tables import labelled
from workbench.tasks.tables.folds import divided
from workbench.tasks.tables.labelled import Line
from workbench.tasks.task import Task, fingerprinted

CHOICE, SPANS = "choice:", "spans:"
ANSWER = re.compile(r"(?:choice|ending|answer|option|alternative|sol|solution)_?(\d{1,4})", re.IGNORECASE)
LISTS = ("choices", "endings", "answers", "options")
CONTEXTS = ("premise", "context", "passage", "text", "sentence", "goal", "ctx")
QUESTIONS = ("question", "question_stem", "query")

Columns = Mapping[str, Any]


def known() -> list[tuple[str, str, str, str]]:
    """Return the form of each name, its suite, metric and summary."""
    return [
        (f"{CHOICE}FILE", "table", "accuracy", "which of several answers is right, from a table of your own"),
        (f"{SPANS}FILE", "table", "accuracy", "the label of two marked spans of a text, from a table of your own"),
    ]


def is_own(name: str) -> bool:
    """Return whether a name selects choices or marked spans by path."""
    return name.lower().startswith((CHOICE, SPANS))


def load(name: str, spec: TasksSpec) -> Task:
    """Return the task of a name that `is_own` holds for. Raises InputError that names the file and the row."""
    prefix, rest = name[: name.index(":") + 1].lower(), name[name.index(":") + 1 :]
    path = user_path(rest, "--tasks")
    if not rest or not path.is_file() or path.suffix.lower() not in FORMATS:
        what = "is not a file" if rest and not path.is_file() else "is not a table"
        raise InputError(
            f"--tasks {name}: {path if rest else 'this'} {what}; give one that ends in {', '.join(FORMATS)}"
        )
    title = prefix + table.title(path)
    if prefix == CHOICE:
        return _choices(title, path, spec)
    return _spans(title, path, spec)


def _choices(name: str, path: Path, spec: TasksSpec) -> Task:
    """Return a table of choices as a task. Raises InputError."""
    if spec.folds:
        raise InputError(
            f"--tasks {name}: tasks.folds={spec.folds} divides tables with a label, not choices; leave it out"
        )
    lines, row_of = _read(path, lambda columns, where: _choice(path, columns, where, spec))
    parts = {
        part: [row_of[line.where] for line in each]
        for part, each in table.parts_of(lines, "choice", path, None).items()
    }
    made = {part: examples(rows, grouped=True) for part, rows in parts.items()}
    task = Task(
        name, "table", ("wrong", "right"), "accuracy", ("accuracy",), 10.0, made.pop("train"), made,
        choice=True, notes=_warned(name, parts),
    )  # fmt: skip
    return fingerprinted(task, spec.rows)


def _spans(name: str, path: Path, spec: TasksSpec) -> Task:
    """Return a table of texts with two marked spans as a task. Raises InputError."""
    lines, row_of = _read(path, lambda columns, where: _marked(path, columns, where, spec))
    parts = table.parts_of(labelled.unified(lines), "classification", path, spec.folds)
    task = labelled.task(name, path, "classification", parts, spec.model_copy(update={"rows": None}))
    rows = {part: [row_of[line.where] for line in each] for part, each in parts.items()}
    marks = {part: [row.spans for row in each if row.spans] for part, each in rows.items()}
    task = replace(
        task, train=replace(task.train, spans=marks["train"]), notes=(*task.notes, *_warned(name, rows, shared=False)),
        tests={part: replace(each, spans=marks[part]) for part, each in task.tests.items()},
    )  # fmt: skip
    return divided(fingerprinted(task, spec.rows), spec.folds) if spec.folds else fingerprinted(task, spec.rows)


def _warned(name: str, parts: Mapping[str, Sequence[Row]], shared: bool = True) -> tuple[str, ...]:
    """Return the notes on the rows of a task, which are also logged."""
    sentences = notes(parts, shared)
    for note in sentences:
        warn_once(f"{name}: {note}")
    return tuple(sentences)


def _read(path: Path, read: Callable[[Columns, str], tuple[Row, Any]]) -> tuple[list[Line], dict[str, Row]]:
    """Return the rows of a table and the files beside it, as lines with their label, and each row by its place."""
    lines, row_of = list[Line](), dict[str, Row]()
    for part, file in table.siblings(path).items():
        for where, columns in _lines(file):
            row, name = read(columns, where)
            split = next((name for name in columns if name.lower() == "split"), None)
            side = part or (table.side_of(columns[split], where) if split is not None else None)
            lines.append(Line(where, side, (row.first,), name))
            row_of[where] = row
    if not lines:
        raise InputError(f"{path} holds no rows")
    return lines, row_of


def _lines(path: Path) -> Iterator[tuple[str, Columns]]:
    return ((f"{path}, {where}", columns) for where, columns in rows_of(path))


def _choice(path: Path, columns: Columns, where: str, spec: TasksSpec) -> tuple[Row, Any]:
    """Return one row of choices, and the number of the right one as its label. Raises InputError."""
    faults: list[str] = []
    shared = [text(columns, name, where, faults) for name in _shared(path, columns, spec)]
    answers = _answers(path, columns, where, faults)
    names = [str(number) for number in range(len(answers))]
    right = label(columns.get(_label(path, columns, spec)), names, where)
    if len(set(answers)) < len(answers):
        faults.append("equal answers")
    targets = tuple(int(place == right) for place in range(len(answers)))
    return Row(where, id_of(columns), " ".join(shared), tuple(answers), targets, None, (*faults,)), str(right)


def _answers(path: Path, columns: Columns, where: str, faults: list[str]) -> list[str]:
    """Return the answers of a row, from numbered columns or from one that holds a list. Raises InputError."""
    numbered = {int(match[1]): name for name in columns if (match := ANSWER.fullmatch(name))}
    if len(numbered) > 1:
        return [text(columns, numbered[number], where, faults) for number in sorted(numbered)]
    name = next((name for name in columns if name.lower() in LISTS), None)
    held = columns.get(name) if name else None
    if name is None or not isinstance(held, list) or len(held) < 2:
        raise InputError(
            f"{path} has no columns choice1, choice2 and so on, nor a list 'choices' of two or more answers"
        )
    return [text({name: each}, name, where, faults) for each in held]


def _shared(path: Path, columns: Columns, spec: TasksSpec) -> list[str]:
    """Return the columns of the texts that all answers share: the context, then the question. Raises InputError."""
    if spec.text or spec.pair:
        return [
            table.given_column(path, columns, key, name)
            for key, name in (("text", spec.text), ("pair", spec.pair))
            if name
        ]
    lower = {name.lower(): name for name in columns}
    columns_found = [next((lower[name] for name in names if name in lower), None) for names in (CONTEXTS, QUESTIONS)]
    if not any(columns_found):
        raise InputError(
            f"{path} has no column 'premise' or 'question'; its columns are {listed(list(columns))}; "
            f"give --set tasks.text="
        )
    return [name for name in columns_found if name]


def _marked(path: Path, columns: Columns, where: str, spec: TasksSpec) -> tuple[Row, Any]:
    """Return one text with its spans, and its label. Raises InputError."""
    faults: list[str] = []
    name = table.given_column(path, columns, "text", spec.text or "text")
    words = text(columns, name, where, faults)
    value = labelled.checked(columns.get(_label(path, columns, spec)), where)
    spans = spans_of(columns, words, where, faults)
    return Row(where, id_of(columns), words, (None,), (value,), spans, (*faults,)), value


def _label(path: Path, columns: Columns, spec: TasksSpec) -> str:
    """Return the column of the label. Raises InputError."""
    lower = {name.lower(): name for name in columns}
    return table.given_column(
        path, columns, "label", spec.label or next((lower[n] for n in table.LABELS if n in lower), "label")
    )
