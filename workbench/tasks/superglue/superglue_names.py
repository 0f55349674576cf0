"""SuperGLUE's tasks (Wang et al. 2019) under `--tasks superglue` and `superglue:NAME`, from the official JSON lines.

`tasks.superglue=DIR` holds the official folders, such as `COPA/train.jsonl` and `COPA/val.jsonl`, packed or not. Their
test files have no labels and are not read. A task is a row of `TASKS`: how a line is read, and how it is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench.data.formats import json_rows
from workbench.data.streams import lines, packed_or_not
from workbench.errors import InputError, suggest
from workbench.progress import warn_once
from workbench.spec.parts import TasksSpec
from workbench.store.atomic import user_path
from workbench.tasks.superglue.questions_of_files import Row, examples, id_of, label, notes, text
from workbench.tasks.superglue.span_places import in_two_sentences, spans_of
from workbench.tasks.task import Task, fingerprinted

SUITE: Literal["superglue"] = "superglue"
PREFIX = "superglue:"
KEY = "--set tasks.superglue"
FALSE_TRUE = ("false", "true")
ASKED = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}  # the two questions of COPA
FILES = {"train": "train.jsonl", "val": "val.jsonl"}

Columns = Mapping[str, Any]
Reader = Callable[["Form", Columns, str], Row]


@dataclass(frozen=True)
class Form:
    """How one task is read and measured: its official folder, its reader, its labels, its metrics and its epochs.

    `columns` are the names of its two texts.
    """

    folder: str
    read: Reader
    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    columns: tuple[str, str] = ("premise", "hypothesis")
    epochs: float = 10.0
    choice: bool = False
    summary: str = ""


def _pair(form: Form, columns: Columns, where: str) -> Row:
    faults: list[str] = []
    first, second = (text(columns, name, where, faults) for name in form.columns)
    return Row(
        where, id_of(columns), first, (second,), (label(columns.get("label"), form.labels, where),), None, (*faults,)
    )


def _copa(form: Form, columns: Columns, where: str) -> Row:
    faults: list[str] = []
    premise, asked, *answers = (
        text(columns, name, where, faults) for name in ("premise", "question", "choice1", "choice2")
    )
    right = label(columns.get("label"), ("0", "1"), where)
    if answers[0] == answers[1]:
        faults.append("two equal choices")
    targets = tuple(int(place == right) for place in range(len(answers)))
    return Row(where, id_of(columns), f"{premise} {ASKED.get(asked, asked)}", tuple(answers), targets, None, (*faults,))


def _multirc(form: Form, columns: Columns, where: str) -> Row:
    """Return one question of a passage, which `_questions` put into columns of its own."""
    faults: list[str] = []
    passage, asked = (text(columns, name, where, faults) for name in ("passage", "question"))
    answers = columns["answers"]
    if not isinstance(answers, list) or not answers or not all(isinstance(each, Mapping) for each in answers):
        raise InputError(f"{where}: the question has no list of answers")
    targets = tuple(label(each.get("label"), form.labels, where) for each in answers)
    words = [text(each, "text", where, faults) for each in answers]
    if len(set(words)) < len(words):
        faults.append("equal answers")
    return Row(where, columns["id"], passage, tuple(f"{asked} {word}" for word in words), targets, None, (*faults,))


def _wsc(form: Form, columns: Columns, where: str) -> Row:
    faults: list[str] = []
    words = text(columns, "text", where, faults)
    spans = spans_of(columns, words, where, faults)
    return Row(
        where, id_of(columns), words, (None,), (label(columns.get("label"), form.labels, where),), spans, (*faults,)
    )


def _wic(form: Form, columns: Columns, where: str) -> Row:
    faults: list[str] = []
    sentences = [text(columns, name, where, faults) for name in ("sentence1", "sentence2")]
    words, spans = in_two_sentences(columns, sentences, where)
    return Row(
        where, id_of(columns), words, (None,), (label(columns.get("label"), form.labels, where),), spans, (*faults,)
    )


_OF_ANSWERS = ("f1a_em", "f1a", "exact_match", "accuracy")
TASKS: dict[str, Form] = {
    "boolq": Form(
        "BoolQ", _pair, FALSE_TRUE, columns=("question", "passage"),
        summary="does the passage answer the question with yes",
    ),
    "cb": Form(
        "CB", _pair, ("entailment", "contradiction", "neutral"), ("accuracy", "macro_f1"),
        summary="does the speaker believe the clause",
    ),
    "copa": Form(
        "COPA", _copa, ("0", "1"), choice=True, summary="which of two sentences is the cause or the effect of a third",
    ),
    "multirc": Form(
        "MultiRC", _multirc, ("0", "1"), _OF_ANSWERS,
        summary="which answers to a question about the passage are right, each judged by itself",
    ),
    "rte": Form("RTE", _pair, ("entailment", "not_entailment"), summary="does the text entail the sentence"),
    "wic": Form("WiC", _wic, FALSE_TRUE, summary="does a word have the same sense in two sentences"),
    "wsc": Form(
        "WSC", _wsc, FALSE_TRUE, epochs=30.0, summary="does the marked pronoun refer to the marked words",
    ),
}  # fmt: skip


def known() -> list[tuple[str, str, str, str]]:
    """Return the name, suite, metric and summary of each task."""
    return [(PREFIX + name, SUITE, form.metrics[0], form.summary) for name, form in TASKS.items()]


def names_of(word: str) -> list[str]:
    """Return the tasks that a name stands for: one, or for `superglue` all. Raises InputError."""
    name = word.lower().removeprefix(PREFIX)
    if name == SUITE:
        return list(TASKS)
    if name not in TASKS:
        raise InputError(f"--tasks names an unknown task {word!r}{suggest(name, TASKS)}")
    return [name]


def load(words: Iterable[str], spec: TasksSpec) -> tuple[list[Task], dict[str, str]]:
    """Return the tasks of some names, and for those of `superglue` that are not available which files are missing.

    Raises InputError if a task selected by its own name is not available, or if no task is.
    """
    words = list(words)
    if not words:
        return [], {}
    if spec.superglue is None:
        raise InputError(f"--tasks {words[0]}: give the folder that holds COPA, MultiRC and the others with {KEY}=DIR")
    folder = user_path(spec.superglue, f"{KEY}:")
    own = {name for word in words if word.lower() != SUITE for name in names_of(word)}
    selected = {name for word in words for name in names_of(word)}
    loaded: list[Task] = []
    missing: dict[str, str] = {}
    for name in (name for name in TASKS if name in selected):
        files = {part: packed_or_not(folder / TASKS[name].folder / file) for part, file in FILES.items()}
        lacking = [FILES[part] for part, path in files.items() if path is None]
        if lacking:
            missing[PREFIX + name] = f"no {' or '.join(lacking)} in {folder / TASKS[name].folder}"
            if name in own:
                raise InputError(f"task {PREFIX}{name} is not available: {missing[PREFIX + name]}; give {KEY}=DIR")
            continue
        loaded.append(_task(name, {part: path for part, path in files.items() if path}, spec))
    if not loaded:
        raise InputError(f"no task of SuperGLUE was found: {next(iter(missing.values()))}; give {KEY}=DIR")
    return loaded, missing


def _task(name: str, files: Mapping[str, Path], spec: TasksSpec) -> Task:
    form = TASKS[name]
    rows = {part: _rows(path, form) for part, path in files.items()}
    sentences = notes(rows)
    for note in sentences:
        warn_once(f"{PREFIX}{name}: {note}")
    grouped = form.choice or form.metrics is _OF_ANSWERS
    parts = {part: examples(each, grouped) for part, each in rows.items()}
    train = parts.pop("train")
    task = Task(
        PREFIX + name, SUITE, form.labels, form.metrics[0], form.metrics, form.epochs, train, parts,
        choice=form.choice, notes=tuple(sentences),
    )  # fmt: skip
    return fingerprinted(task, spec.rows)


def _rows(path: Path, form: Form) -> list[Row]:
    """Return the rows of a file. Raises InputError that names file and line."""
    rows = []
    for line, columns in json_rows(path, lines(path)):
        where = f"{path}, {line}"
        each = _questions(columns, where) if form.read is _multirc else [(columns, where)]
        rows += [form.read(form, question, place) for question, place in each]
    if not rows:
        raise InputError(f"{path} holds no rows")
    return rows


def _questions(columns: Columns, where: str) -> list[tuple[Columns, str]]:
    """Return each question of a line of MultiRC, with its passage and its id. Raises InputError."""
    passage = columns.get("passage")
    asked = passage.get("questions") if isinstance(passage, Mapping) else None
    if (
        not isinstance(passage, Mapping)
        or not isinstance(asked, list)
        or not all(isinstance(q, Mapping) for q in asked)
    ):
        raise InputError(f"{where}: 'passage' does not hold a text and a list 'questions', as MultiRC's lines do")
    return [
        (
            {"passage": passage.get("text"), "question": each.get("question"), "answers": each.get("answers"),
             "id": f"{columns.get('idx')}.{each.get('idx')}" if "idx" in each else None},
            f"{where}, question {number}",
        )
        for number, each in enumerate(asked)
    ]  # fmt: skip
