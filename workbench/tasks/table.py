"""A user's table as a task: a CSV, TSV, JSON lines or Parquet file with one example in each row.

Columns are given by `tasks.text`, `tasks.pair` and `tasks.label`, or recognised by their names; columns of a file
without a header are given by numbers from 1, or are the label and one or two texts, as a warning says
(`common.table_files.without_header`). If all labels are numbers and some have a fractional part, the task is a
regression, else a classification; `tasks.kind` overrides this.
Lists of labels, in JSON lines or Parquet, give each row any number of them; so does `tasks.kind=multilabel` in CSV and
TSV, where labels are separated by `|`, or by commas if the column has no `|`. The rows to test on are

1. the rows so marked in a column `split` (`train`; `dev`, `validation`, `valid` or `trial`; `test`), or else
2. the rows of a file beside the table: `my.dev.csv`, `my.validation.csv`, `my.test.csv` ... beside `my.train.csv`, and
   `dev.csv` ... beside `train.csv`, `TREC_10.label` beside `train_5500.label`, or else
3. about a fifth of the rows, chosen by a hash of the first text, so that equal texts are on the same side, and a row
   stays on its side if others are added; rows whose label no training row has are used for training. With
   `tasks.folds` every row is tested on in turn instead (`workbench.tasks.common.examples`).

The headline is measured on the rows of `test`, or on the rows of `dev` if there are no others (`scoring.TESTED`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.data.formats import warn_of_unread
from workbench.errors import InputError, listed, suggest
from workbench.progress import warn_once
from workbench.rng import seed_of
from workbench.spec.parts import TasksSpec
from workbench.spec.scoring import PATH_PREFIXES, TESTED
from workbench.store.atomic import user_path
from workbench.tasks import minimal_pairs
from workbench.tasks.common import table_files
from workbench.tasks.common.contract import OF_TEXTS, HeldOut
from workbench.tasks.common.data_rows import warned
from workbench.tasks.common.examples import Task, divided, held_out, limited
from workbench.tasks.common.table_files import FORMATS, Line, checked_text, rows_of, without_header
from workbench.tasks.superglue import Row, examples, id_of, label, notes, spans_of, text

trains = True
CHOICE, SPANS = "choice:", "spans:"
COLUMNS = ("text", "pair", "label")  # settings that name the columns of a table
PAIRS = (
    ("sentence1", "sentence2"), ("text1", "text2"), ("text_a", "text_b"), ("premise", "hypothesis"),
    ("question1", "question2"), ("question", "sentence"), ("first", "second"), ("text", "pair"),
    ("sentence_a", "sentence_b"),
)  # fmt: skip
SINGLES = ("text", "sentence", "review", "content", "document", "body")
LABELS = (
    "label", "labels", "target", "class", "category", "score", "gold_label", "y", "entailment_label",
    "entailment_judgment",
)  # fmt: skip
SPLITS = ("split", "semeval_set")  # columns of parts
PARTS = {
    "train": "train", "dev": "dev", "validation": "dev", "valid": "dev", "val": "dev", "trial": "dev",
    "test_annotated": "test", "test": "test",
}  # fmt: skip
TRAIN = re.compile(r"(|.*[._-])train", re.IGNORECASE)
TREC = ("train_5500.label", "TREC_10.label")  # the two files as published
names = [
    (f"{CHOICE}FILE", "table", "accuracy", "which of several answers is right, from a table of your own"),
    (f"{SPANS}FILE", "table", "accuracy", "the label of two marked spans of a text, from a table of your own"),
]


def accepts(word: str) -> bool:
    """Return whether a word names a table of labels, choices or marked spans, and not minimal pairs."""
    if word.lower().startswith((*PATH_PREFIXES, "linear:")):
        return word.lower().startswith((CHOICE, SPANS))
    return word.lower().endswith(FORMATS) and not minimal_pairs.holds_pairs(word)


def reads(word: str, options: TasksSpec) -> set[str]:
    """Return the settings that a table reads. Raises InputError if there is no such file."""
    choice, spans = (word.lower().startswith(prefix) for prefix in (CHOICE, SPANS))
    if not (choice or spans) and not user_path(word, "--tasks").is_file():
        raise InputError(f"--tasks {word}: there is no such file")
    read = {*OF_TEXTS, *COLUMNS, "folds"}
    return read | ({"metric"} if spans else set() if choice else {"kind", "metric"})


def load(words: Sequence[str], options: TasksSpec, text: HeldOut | None = None) -> list[Task]:
    """Return the tables as tasks. Raises InputError, which names the file and the row, if one cannot be used."""
    own = [load_own if word.lower().startswith((CHOICE, SPANS)) else read for word in words]
    return [held_out(make(word, options), options.held_out) for make, word in zip(own, words, strict=True)]


def read(path: Path | str, spec: TasksSpec) -> Task:
    """Return a table of labels as a task. Raises InputError, which names the file and the row, if it cannot be used."""
    path = user_path(path, "--tasks")
    if not path.is_file():
        raise InputError(f"--tasks {path}: there is no such file")
    spec = with_columns(path, spec)
    lines = [line for part, file in siblings(path).items() for line in lines_of(file, spec, part)]
    if not lines:
        raise InputError(f"{path} holds no rows")
    kind = spec.kind or table_files.kind_of(lines)
    lines = table_files.separated(lines) if kind == "multilabel" else lines
    lines = lines if kind == "regression" else table_files.unified(lines)
    parts = parts_of(lines, kind, path, spec.folds)
    task = table_files.task_of_table(task_title(path), path, kind, parts, spec)
    return divided(task, spec.folds) if spec.folds else task


def siblings(path: Path) -> dict[str | None, Path]:
    """Return {part: file}, with the files beside a file whose name ends in `train` in any case; else {None: path}.

    A warning names the files of parts that are not read: of another format, or more of the same part.
    """
    if path.name == TREC[0] and (test := path.with_name(TREC[1])).is_file():
        return {"train": path, "test": test}
    if not (name := TRAIN.fullmatch(path.stem)):
        return {None: path}
    before = name[1].lower()
    beside = sorted(file for file in path.parent.iterdir() if file.name.lower().startswith(before) and file.is_file())
    words = {file: file.name[len(before) :].lower().partition(".")[0] for file in beside}
    beside.sort(key=lambda file: file.name != f"{name[1]}{words[file]}{path.suffix}")
    of_parts = [file for word in PARTS for file in beside if words[file] == word]
    files: dict[str | None, Path] = {"train": path}
    for file in of_parts:
        if PARTS[words[file]] != "train" and file.name.lower() == f"{before}{words[file]}{path.suffix.lower()}":
            files.setdefault(PARTS[words[file]], file)
    read = [file.name for file in files.values()]
    unread = [file.name for file in of_parts if file.name not in read]
    warn_of_unread(f"--tasks {path}", unread, len(of_parts), f", but {listed(read)}")
    return files if len(files) > 1 else {None: path}


def task_title(path: Path) -> str:
    """Return the name of a table's task: the name of the file without `train`, or of its folder."""
    name = "" if path.name == TREC[0] else re.sub(r"[._-]?train$", "", path.stem)
    return name or path.resolve().parent.name


# ---- reading ----


def lines_of(path: Path, spec: TasksSpec, part: str | None, labels: Sequence[str] = LABELS) -> Iterator[Line]:
    """Yield the rows of a file, all of one part unless it is None. Raises InputError for a row that cannot be used.

    `labels` are usual names of the column of labels; the first that is there is taken.
    """
    texts: list[str] = []
    label = split = ""
    for where, row in rows_of(path, [name for name in (spec.text, spec.pair, spec.label) if name]):
        if not texts:
            texts, label = _columns(path, list(row), spec, labels)
            split = "" if part else next((name for name in row if name.lower() in SPLITS), "")
        where = f"{path}, {where}"
        words = tuple(checked_text(row.get(column), column, where) for column in texts)
        if empty := [column for column, word in zip(texts, words, strict=True) if not word.strip()]:
            raise InputError(f"{where}: column {empty[0]!r} holds no text")
        side = side_of(row.get(split), where) if split else part
        yield Line(where, side, words, _label(row.get(label), spec.kind, where))


def with_columns(path: Path, spec: TasksSpec, labels: Sequence[str] = LABELS) -> TasksSpec:
    """Return the settings, with the numbers of the columns if the file has no header; a warning names them."""
    if spec.text or spec.pair or spec.label:
        return spec
    _, first = next(rows_of(path), ("", {}))
    if any(name.lower() in labels for name in first) or not (columns := without_header(path)):
        return spec
    label, *texts = columns
    warn_once(
        f"{path} has no header: column {label} is read as the label, {' and '.join(texts)} as text; "
        f"--set tasks.label=, tasks.text= and tasks.pair= name others by their numbers"
    )
    return spec.model_copy(update={"label": label, "text": texts[0], "pair": "".join(texts[1:]) or None})


def side_of(split: Any, where: str) -> str:
    """Return the part that the column `split` of a row names. Raises InputError if it is none."""
    name = str(split).strip().lower()
    if name not in PARTS:
        raise InputError(f"{where}: split {name!r} is not one of {', '.join(PARTS)}")
    return PARTS[name]


def _label(value: Any, kind: str | None, where: str) -> Any:
    if kind in (None, "multilabel") and isinstance(value, list):
        return tuple(table_files.checked(each, where) for each in value)
    if kind == "multilabel" and isinstance(value, str):
        return value  # one or several, or none, which the whole column shows
    return table_files.checked(value, where)


def given_column(path: Path, there: Iterable[str], key: str, name: str) -> str:
    """Return the name of a column that a setting gives. Raises InputError if it is not there."""
    if name not in there:
        raise InputError(f"{path} has no column {name!r} (tasks.{key}){suggest(name, there)}")
    return name


def _columns(path: Path, there: list[str], spec: TasksSpec, labels: Sequence[str]) -> tuple[list[str], str]:
    """Return the text columns and the label column: the given ones, else by usual names. Raises InputError."""
    lower = {name.lower(): name for name in there}
    numbers = "; of a file without a header give numbers, as in --set tasks.label=1 --set tasks.text=2"
    unnamed = numbers if path.suffix.lower() not in (".jsonl", ".parquet") else ""

    def missing(key: str) -> InputError:
        return InputError(
            f"{path} has no column {key!r} for tasks.{key}; its columns are {listed(there)}; give one of them with "
            f"--set tasks.{key}=COLUMN{unnamed}"
        )

    usual = next((lower[name] for name in labels if name in lower), "")
    label = given_column(path, there, "label", spec.label) if spec.label else usual
    if not label:
        raise missing("label")
    if spec.text or spec.pair:
        if not spec.text:
            raise InputError(f"tasks.pair={spec.pair!r} needs tasks.text as well, the column of the first texts")
        texts = _given_texts(path, there, spec)
        if len({*texts, label}) <= len(texts):
            raise InputError(
                f"{path}: texts {' and '.join(map(repr, texts))} and label {label!r} must be different columns; give "
                f"each with --set tasks.text=, tasks.pair= and tasks.label="
            )
        return texts, label
    singles = [(name,) for name in SINGLES if lower.get(name) != label]
    columns = next((each for each in (*PAIRS, *singles) if lower.keys() >= {*each}), ())
    if not columns:
        raise missing("text")
    return [lower[name] for name in columns], label


def _given_texts(path: Path, there: Iterable[str], spec: TasksSpec) -> list[str]:
    return [given_column(path, there, key, name) for key, name in (("text", spec.text), ("pair", spec.pair)) if name]


# ---- parts ----


def parts_of(lines: list[Line], kind: str, path: Path, folds: int | None) -> dict[str, list[Line]]:
    """Return the rows of each part: "train", then as TESTED orders them; with `folds` there is only "train".

    Raises InputError if there are none to train or to test on.
    """
    given = any(line.part is not None for line in lines)
    if folds:
        if given:
            raise InputError(
                f"tasks.folds={folds} divides a table that has no rows to test on, and {path} has parts; leave out "
                f"tasks.folds, or name a table without a split"
            )
        return {"train": lines}
    if given:
        parts = {part: [line for line in lines if line.part == part] for part in ("train", *TESTED)}
        parts = {part: rows for part, rows in parts.items() if rows}
    else:  # a fifth of the texts is tested on
        tested = [seed_of(0, "table", line.texts[0]) % 5 == 0 for line in lines]
        seen = {word for line, test in zip(lines, tested, strict=True) if not test for word in line.words}
        if kind != "regression":
            tested = [test and seen.issuperset(line.words) for line, test in zip(lines, tested, strict=True)]
        train, test = ([x for x, of in zip(lines, tested, strict=True) if of is side] for side in (False, True))
        parts = {"train": train, "test": test}
    if "train" not in parts or len(parts) < 2 or not all(parts.values()):
        there = ", ".join(f"{len(rows)} of {part}" for part, rows in parts.items())
        raise InputError(f"{path} needs rows to train on and rows to test on, and has {there}")
    return parts


# ---- choices and marked spans ----
ANSWER = re.compile(r"(?:choice|ending|answer|option|alternative|sol|solution)_?(\d{1,4})", re.IGNORECASE)
LISTS = ("choices", "endings", "answers", "options")
CONTEXTS = ("premise", "context", "passage", "text", "sentence", "goal", "ctx")
QUESTIONS = ("question", "question_stem", "query")

Columns = Mapping[str, Any]


def load_own(name: str, spec: TasksSpec) -> Task:
    """Return choices or marked spans, whose name has a prefix, as a task. Raises InputError that names the row."""
    prefix, rest = name[: name.index(":") + 1].lower(), name[name.index(":") + 1 :]
    path = user_path(rest, "--tasks")
    if not rest or not path.is_file() or path.suffix.lower() not in FORMATS:
        what = f"{path if rest else 'this'} is not a {'file' if rest and not path.is_file() else 'table'}"
        raise InputError(f"--tasks {name}: {what}; give one that ends in {', '.join(FORMATS)}")
    title = prefix + task_title(path)
    return _choices(title, path, spec) if prefix == CHOICE else _spans(title, path, spec)


def _choices(name: str, path: Path, spec: TasksSpec) -> Task:
    if spec.folds:
        raise InputError(
            f"--tasks {name}: tasks.folds={spec.folds} divides tables with a label, not choices; leave it out"
        )
    sides = parts_of(_read(path, _choice, spec), "choice", path, None)
    parts = {part: [line.row for line in each] for part, each in sides.items()}
    made = {part: examples(rows, grouped=True) for part, rows in parts.items()}
    task = Task(
        name, "table", ("wrong", "right"), "accuracy", ("accuracy",), 10.0, made.pop("train"), made,
        choice=True, notes=warned(name, notes(parts)), predictions="csv",
    )  # fmt: skip
    return limited(task, spec.rows)


def _spans(name: str, path: Path, spec: TasksSpec) -> Task:
    parts = parts_of(table_files.unified(_read(path, _marked, spec)), "classification", path, spec.folds)
    task = table_files.task_of_table(name, path, "classification", parts, spec.model_copy(update={"rows": None}))
    rows = {part: [line.row for line in each] for part, each in parts.items()}
    marks = {part: [row.spans for row in each if row.spans] for part, each in rows.items()}
    task = replace(
        task, train=replace(task.train, spans=marks["train"]),
        notes=(*task.notes, *warned(name, notes(rows, shared=False))),
        tests={part: replace(each, spans=marks[part]) for part, each in task.tests.items()},
    )  # fmt: skip
    task = limited(task, spec.rows)
    return divided(task, spec.folds) if spec.folds else task


Reader = Callable[[Path, Columns, str, TasksSpec], tuple[Row, Any]]  # of a file, a row, its place and the settings


def _read(path: Path, read: Reader, spec: TasksSpec) -> list[Line]:
    lines = []
    for part, file in siblings(path).items():
        for line, columns in rows_of(file):
            where = f"{file}, {line}"
            row, name = read(path, columns, where, spec)
            split = "" if part else next((name for name in columns if name.lower() == "split"), "")
            lines.append(Line(where, side_of(columns[split], where) if split else part, (row.first,), name, row))
    if not lines:
        raise InputError(f"{path} holds no rows")
    return lines


def _choice(path: Path, columns: Columns, where: str, spec: TasksSpec) -> tuple[Row, Any]:
    faults: list[str] = []
    shared = [text(columns, name, where, faults) for name in _shared(path, columns, spec)]
    answers = _answers(path, columns, where, faults)
    names = [str(number) for number in range(len(answers))]
    right = label(columns.get(_label_column(path, columns, spec)), names, where)
    if len(set(answers)) < len(answers):
        faults.append("equal answers")
    targets = tuple(int(place == right) for place in range(len(answers)))
    return Row(where, id_of(columns), " ".join(shared), tuple(answers), targets, None, (*faults,)), str(right)


def _answers(path: Path, columns: Columns, where: str, faults: list[str]) -> list[str]:
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
        return _given_texts(path, columns, spec)
    lower = {name.lower(): name for name in columns}
    usual = [next((lower[name] for name in names if name in lower), "") for names in (CONTEXTS, QUESTIONS)]
    if not any(usual):
        there = listed(list(columns))
        raise InputError(
            f"{path} has no column 'premise' or 'question'; its columns are {there}; give --set tasks.text="
        )
    return [name for name in usual if name]


def _marked(path: Path, columns: Columns, where: str, spec: TasksSpec) -> tuple[Row, Any]:
    faults: list[str] = []
    name = given_column(path, columns, "text", spec.text or "text")
    words = text(columns, name, where, faults)
    value = table_files.checked(columns.get(_label_column(path, columns, spec)), where)
    spans = spans_of(columns, words, where, faults)
    return Row(where, id_of(columns), words, (None,), (value,), spans, (*faults,)), value


def _label_column(path: Path, columns: Columns, spec: TasksSpec) -> str:
    lower = {name.lower(): name for name in columns}
    return given_column(path, columns, "label", spec.label or next((lower[n] for n in LABELS if n in lower), "label"))
