"""SuperGLUE's tasks (Wang et al. 2019) under `--tasks superglue` and `superglue:NAME`, from the official JSON lines.

`tasks.superglue=DIR` holds the official folders, such as `COPA/train.jsonl` and `COPA/val.jsonl`, packed or not. Their
test files have no labels and are not read. A task is a row of `TASKS`: how a line is read, and how it is measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.data.formats import json_rows
from workbench.data.streams import lines, packed_or_not
from workbench.errors import InputError, suggest
from workbench.spec.parts import TasksSpec
from workbench.store.atomic import user_path
from workbench.tasks.common.contract import OF_TEXTS, HeldOut, Suite
from workbench.tasks.common.data_rows import odd_rows, warned
from workbench.tasks.common.examples import Examples, Span, Spans, Task, held_out, limited
from workbench.tasks.common.table_files import checked_text

FALSE_TRUE = ("false", "true")
ASKED = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}  # the two questions of COPA


@dataclass(frozen=True)
class JsonSuite:
    """Tasks in JSON lines in `tasks.NAME`: `NAME` under --tasks stands for all of `tasks`, `NAME:TASK` for one.

    `files` returns the file of each part of a task within the folder, packed or not, and `read` the task from them.
    """

    name: str
    tasks: Iterable[str]
    files: Callable[[str], Mapping[str, str]]
    read: Callable[[str, Mapping[str, Path]], Task]

    def members(self, word: str) -> list[str]:
        """Return the tasks that a word stands for. Raises InputError for an unknown task."""
        task = word.lower().removeprefix(f"{self.name}:")
        if task != self.name and task not in self.tasks:
            raise InputError(f"--tasks names an unknown task {word!r}{suggest(task, self.tasks)}")
        return list(self.tasks) if task == self.name else [task]

    def accepts(self, word: str) -> bool:
        """Return whether a word begins as these tasks do. Raises InputError if there is no such task."""
        return word.lower().startswith(f"{self.name}:") and bool(self.members(word))

    def load(self, words: Sequence[str], spec: TasksSpec, text: HeldOut | None = None) -> Suite:
        """Return the tasks of some words, and which files the others of the whole suite lack.

        Raises InputError if a task selected by its own name lacks a file, or if no task has all files.
        """
        folder = getattr(spec, self.name)
        give = f"give the folder of its files with --set tasks.{self.name}=DIR"
        if folder is None:
            raise InputError(f"--tasks {words[0]}: {give}")
        place = user_path(folder, f"--set tasks.{self.name}:")
        own = {name for word in words if word.lower() != self.name for name in self.members(word)}
        selected = {name for word in words for name in self.members(word)}
        loaded: list[Task] = []
        missing: dict[str, str] = {}
        for name in (name for name in self.tasks if name in selected):
            found = {part: packed_or_not(place / file) for part, file in self.files(name).items()}
            lacking = [file for part, file in self.files(name).items() if found[part] is None]
            if not lacking:
                task = self.read(name, {part: path for part, path in found.items() if path})
                loaded.append(held_out(limited(task, spec.rows), spec.held_out))
                continue
            missing[f"{self.name}:{name}"] = fault = f"no {' or '.join(lacking)} in {place}"
            if name in own:
                raise InputError(f"task {self.name}:{name} is not available: {fault}; {give}")
        if not loaded:
            raise InputError(f"no task of {self.name} was found: {next(iter(missing.values()))}; {give}")
        return Suite(tuple(loaded), missing)


# ---- rows of questions with answers, and what is odd about them ----
# A row that cannot be used is refused by the readers. What can be used and is odd stays in the data, and is counted
# and named by file and line in sentences (`notes`).


@dataclass(frozen=True)
class Row:
    """One row of a file."""

    where: str  # its place, for messages
    id: str | None
    first: str  # the text that all answers share
    seconds: tuple[str | None, ...]  # the text of each answer, a single None if there is only one text
    targets: tuple[Any, ...]  # a label for each of `seconds`
    spans: Spans | None = None  # two spans of `first` by characters
    odd: tuple[str, ...] = ()  # what is odd about it


def examples(rows: Sequence[Row], grouped: bool) -> Examples:
    """Return rows as examples, an example for each answer; with `grouped` they keep the numbers of their questions."""
    each = [(number, row) for number, row in enumerate(rows) for _ in row.seconds]
    second = [text for row in rows for text in row.seconds]
    return Examples(
        [row.first for _, row in each], None if None in second else [text or "" for text in second],
        [target for row in rows for target in row.targets], [number for number, _ in each] if grouped else None,
        [row.spans for _, row in each if row.spans] or None,
    )  # fmt: skip


def id_of(columns: Mapping[str, Any]) -> str | None:
    """Return the id of a row, which official files call idx; None if it has none."""
    number = next((columns[name] for name in ("idx", "id") if columns.get(name) is not None), None)
    return None if number is None else str(number)


def text(columns: Mapping[str, Any], name: str, where: str, faults: list[str]) -> str:
    """Return the text of a column; an empty one is added to `faults`. Raises InputError if there is none."""
    value = checked_text(columns.get(name), name, where)
    if not value.strip():
        faults.append(f"an empty {name}")
    return value


def label(value: Any, names: Sequence[str], where: str) -> int:
    """Return the number of a label that is a name, true or false, or a number. Raises InputError for any other."""
    word = str(value).lower() if isinstance(value, bool) else value
    if isinstance(word, str) and word in names:
        return names.index(word)
    if isinstance(word, str) and word.isascii() and word.isdigit():
        word = int(word)
    if isinstance(word, bool) or not isinstance(word, int) or not 0 <= word < len(names):
        raise InputError(f"{where}: label {value!r:.80} is not one of {', '.join(names)}")
    return word


def notes(parts: Mapping[str, Sequence[Row]], shared: bool = True) -> list[str]:
    """Return a sentence on each kind of oddity: what rows say of themselves, and ids that occur twice.

    With `shared`, rows to test on whose texts are also trained on are named as well.
    """
    trained = {(row.first, row.seconds, row.spans) for row in parts["train"]} if shared else set()
    same = "the same texts as a row to train on, so the score is partly one of memory"
    sentences = []
    for part, rows in parts.items():
        of = f"{len(rows):,} of {part}"
        for kind in dict.fromkeys(each for row in rows for each in row.odd):
            sentences += odd_rows([row.where for row in rows if kind in row.odd], of, kind)
        first: dict[str, Row] = {}
        repeated = [row.where for row in rows if row.id is not None and first.setdefault(row.id, row) is not row]
        sentences += odd_rows(repeated, of, "an id that an earlier row has")
        if part != "train":
            again = [row.where for row in rows if (row.first, row.seconds, row.spans) in trained]
            sentences += odd_rows(again, of, same)
    return sentences


# ---- the places of two marked spans ----

MOVED = "a span that is not at its index, and is read at the nearest place with its words"
ABSENT = "a span whose words are not in the text, and as many words at its index are read"


def spans_of(columns: Mapping[str, Any], text: str, where: str, faults: list[str]) -> Spans:
    """Return both spans of a row by characters; what is wrong with them is added to `faults`.

    The columns `span1_text`, `span1_index` (the number of its first word, counted at blanks) and so on stand in the
    row, or in its column `target`. Without an index the first occurrence is taken. Raises InputError for a span that
    is nowhere.
    """
    target = columns.get("target")
    source = target if isinstance(target, Mapping) else columns
    return _span(source, "span1", text, where, faults), _span(source, "span2", text, where, faults)


def _span(entry: Mapping[str, Any], name: str, text: str, where: str, faults: list[str]) -> Span:
    words = checked_text(entry.get(f"{name}_text"), f"{name}_text", where).strip()
    if not words:
        raise InputError(f"{where}: {name}_text is empty, so there is no span to read")
    matches = [match.span() for match in re.finditer(re.escape(words), text, re.IGNORECASE)]
    inside = {end for span in matches for end in span if 0 < end < len(text) and text[end - 1 : end + 1].isalnum()}
    whole = [span for span in matches if inside.isdisjoint(span)]
    places = list(re.finditer(r"\S+", text))
    if entry.get(f"{name}_index") is None:
        if not matches:
            raise InputError(f"{where}: {name}_text {words!r:.80} is not in the text")
        return (whole or matches)[0]
    index = _number(entry, f"{name}_index", "word", where)
    if index >= len(places):
        raise InputError(f"{where}: {name}_index is {index}, and the text has {len(places)} words")
    word = places[index]
    if at := next((span for span in whole + matches if word.start() <= span[0] < word.end()), None):
        return at
    if whole:
        faults.append(MOVED)
        return min(whole, key=lambda span: abs(span[0] - word.start()))
    faults.append(ABSENT)
    last = min(len(places), index + len(words.split())) - 1
    return word.start(), places[last].end()


def _number(columns: Mapping[str, Any], name: str, what: str, where: str) -> int:
    value = columns.get(name)
    value = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"{where}: {name} is {value!r:.40}, and must be the number of a {what}, from 0")
    return value


# ---- the tasks ----

Columns = Mapping[str, Any]
Reader = Callable[["Form", Columns, str], Iterator[Row]]


@dataclass(frozen=True)
class Form:
    """How one task is read and measured; `columns` are the names of its two texts."""

    folder: str  # the official one
    read: Reader
    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    columns: tuple[str, str] = ("premise", "hypothesis")
    epochs: float = 10.0
    choice: bool = False
    summary: str = ""


def _pair(form: Form, columns: Columns, where: str) -> Iterator[Row]:
    faults: list[str] = []
    first, second = (text(columns, name, where, faults) for name in form.columns)
    number = label(columns.get("label"), form.labels, where)
    yield Row(where, id_of(columns), first, (second,), (number,), None, (*faults,))


def _copa(form: Form, columns: Columns, where: str) -> Iterator[Row]:
    faults: list[str] = []
    premise, asked, *answers = (
        text(columns, name, where, faults) for name in ("premise", "question", "choice1", "choice2")
    )
    right = label(columns.get("label"), form.labels, where)
    if answers[0] == answers[1]:
        faults.append("two equal choices")
    targets = tuple(int(place == right) for place in range(len(answers)))
    yield Row(where, id_of(columns), f"{premise} {ASKED.get(asked, asked)}", tuple(answers), targets, None, (*faults,))


def _multirc(form: Form, columns: Columns, where: str) -> Iterator[Row]:
    """Yield each question of a passage, whose answers are judged one by one."""
    passage = columns.get("passage")
    holder = passage if isinstance(passage, Mapping) else {}
    asked = holder.get("questions")
    if not isinstance(asked, list) or not all(isinstance(question, Mapping) for question in asked):
        raise InputError(f"{where}: 'passage' does not hold a text and a list 'questions', as MultiRC's lines do")
    for number, each in enumerate(asked):
        place, faults = f"{where}, question {number}", list[str]()
        first = text({"passage": holder.get("text")}, "passage", place, faults)
        question, answers = text(each, "question", place, faults), each.get("answers")
        if not isinstance(answers, list) or not answers or not all(isinstance(one, Mapping) for one in answers):
            raise InputError(f"{place}: the question has no list of answers")
        targets = tuple(label(one.get("label"), form.labels, place) for one in answers)
        words = [f"{question} {text(one, 'text', place, faults)}" for one in answers]
        if len(set(words)) < len(words):
            faults.append("equal answers")
        id = f"{columns.get('idx')}.{each.get('idx')}" if "idx" in each else None
        yield Row(place, id, first, tuple(words), targets, None, (*faults,))


def _wsc(form: Form, columns: Columns, where: str) -> Iterator[Row]:
    faults: list[str] = []
    words = text(columns, "text", where, faults)
    spans, number = spans_of(columns, words, where, faults), label(columns.get("label"), form.labels, where)
    yield Row(where, id_of(columns), words, (None,), (number,), spans, (*faults,))


def _wic(form: Form, columns: Columns, where: str) -> Iterator[Row]:
    """Yield two sentences as one text, and the span of a word in each, as `start1`, `end1` and so on say."""
    faults: list[str] = []
    sentences = [text(columns, name, where, faults) for name in ("sentence1", "sentence2")]
    spans, before = list[Span](), 0
    for number, sentence in enumerate(sentences, 1):
        start, end = (_number(columns, f"{side}{number}", "character", where) for side in ("start", "end"))
        word = sentence[start:end]
        if not start < end <= len(sentence) or not word.strip():
            raise InputError(
                f"{where}: start{number} and end{number} are {start} and {end}, where sentence{number}, of "
                f"{len(sentence)} characters, has no word"
            )
        start, end = start + len(word) - len(word.lstrip()), end - len(word) + len(word.rstrip())
        spans.append((before + start, before + end))
        before += len(sentence) + 1
    number = label(columns.get("label"), form.labels, where)
    yield Row(where, id_of(columns), " ".join(sentences), (None,), (number,), (spans[0], spans[1]), (*faults,))


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


def _task(name: str, files: Mapping[str, Path]) -> Task:
    form, parts = TASKS[name], dict[str, list[Row]]()
    for part, path in files.items():
        parts[part] = []
        for line, columns in json_rows(path, lines(path)):
            parts[part] += form.read(form, columns, f"{path}, {line}")
        if not parts[part]:
            raise InputError(f"{path} holds no rows")
    grouped = form.choice or form.read is _multirc
    train, val = (examples(rows, grouped) for rows in parts.values())
    return Task(
        f"superglue:{name}", "superglue", form.labels, form.metrics[0], form.metrics, form.epochs, train, {"val": val},
        choice=form.choice, notes=warned(f"superglue:{name}", notes(parts)),
    )  # fmt: skip


SUITE = JsonSuite(
    "superglue", TASKS, lambda name: {part: f"{TASKS[name].folder}/{part}.jsonl" for part in ("train", "val")}, _task
)
trains = True
groups = (SUITE.name,)
reads = {*OF_TEXTS, "superglue"}
names = [(f"superglue:{name}", "superglue", form.metrics[0], form.summary) for name, form in TASKS.items()]
accepts, load = SUITE.accepts, SUITE.load
