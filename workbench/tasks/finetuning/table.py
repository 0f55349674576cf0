"""A user's table as a task: a CSV, TSV, JSON lines or Parquet file with one example in each row.

Columns are given by `tasks.text`, `tasks.pair` and `tasks.label`, or recognised by their names. If all labels are
numbers and some have a fractional part, the task is a regression, else a classification; `tasks.kind` overrides this.
The rows to test on are

1. those of a column `split` (`train`; `dev`, `validation` or `valid`; `test`), or else
2. those of a file beside the table: `my.dev.csv`, `my.validation.csv`, `my.test.csv` ... beside `my.train.csv`, and
   `dev.csv` ... beside `train.csv`, or else
3. about a fifth of the rows, chosen by a hash of the first text, so that equal texts are on the same side, and a row
   stays on its side if others are added; rows whose label no training row has are used for training.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import InputError, encodable, suggest
from workbench.rng import seed_of
from workbench.spec.parts import TasksSpec
from workbench.store.atomic import user_path
from workbench.tasks.rows import FORMATS, checked_text, rows_of
from workbench.tasks.task import Examples, Task, sealed

PAIRS = (
    ("sentence1", "sentence2"), ("text1", "text2"), ("text_a", "text_b"), ("premise", "hypothesis"),
    ("question1", "question2"), ("question", "sentence"), ("first", "second"), ("text", "pair"),
)  # fmt: skip
SINGLES = ("text", "sentence", "review", "content", "document", "body")
LABELS = ("label", "labels", "target", "class", "category", "score", "gold_label", "y")
LONGEST_LABEL = 200  # characters
LARGEST_LABEL = 1e30  # squares and differences of larger labels may overflow 32-bit floats
CLOSEST = 1e-5  # least distance between the smallest and the largest label, as a share of the larger size
MOST_LABELS = 1000  # in a classification; with more, the head and the baselines may not fit into memory
PARTS = {"train": "train", "dev": "dev", "validation": "dev", "valid": "dev", "val": "dev", "test": "test"}


@dataclass(frozen=True)
class Line:
    """One row: its file and row for messages, its part (None if not given), its texts and its label as written."""

    where: str
    part: str | None
    texts: tuple[str, ...]
    label: Any


def is_table(name: str) -> bool:
    """Return whether the name of a file ends like that of a table."""
    return name.lower().endswith(FORMATS)


def load(path: Path, spec: TasksSpec) -> Task:
    """Return the table as a task. Raises InputError, which names the file and the row, if it cannot be used."""
    path = user_path(path, "--tasks")
    if not path.is_file():
        raise InputError(f"--tasks {path}: there is no such file")
    lines = [line for part, file in _siblings(path).items() for line in _lines(file, spec, part)]
    if not lines:
        raise InputError(f"{path} holds no rows")
    regression = spec.kind == "regression" if spec.kind else _fractional(lines)
    parts = _parts(lines, regression, path)
    if regression:
        return _regression(path, parts, spec)
    return _classification(path, parts, spec)


def _siblings(path: Path) -> dict[str | None, Path]:
    """Return {part: file}, with the files beside a file whose name ends in `train`; else {None: path}."""
    stem, suffix = path.stem, path.suffix
    if not re.search(r"(^|[._-])train$", stem):
        return {None: path}
    beside = [(part, path.with_name(stem[: -len("train")] + word + suffix)) for word, part in PARTS.items()]
    files: dict[str | None, Path] = {"train": path}
    for part, file in beside:
        if part != "train" and file.is_file():
            files.setdefault(part, file)
    return files if len(files) > 1 else {None: path}


def _name(path: Path) -> str:
    """Return the name of the task: that of the file without `train`, or of its folder."""
    return re.sub(r"[._-]?train$", "", path.stem) or path.resolve().parent.name


# ---- reading ----


def _lines(path: Path, spec: TasksSpec, part: str | None) -> Iterator[Line]:
    """Yield the rows of a file, all of one part unless it is None. Raises InputError for a row that cannot be used."""
    texts: list[str] = []
    label = split = ""
    for where, row in rows_of(path):
        if not texts:
            texts, label = _columns(path, list(row), spec)
            split = "" if part else next((name for name in row if name.lower() == "split"), "")
        words = []
        for column in texts:
            words.append(checked_text(row.get(column), column, f"{path}, {where}"))
            if not words[-1].strip():
                raise InputError(f"{path}, {where}: column {column!r} holds no text")
        name = str(row.get(split)).strip().lower() if split else part
        if name is not None and name not in PARTS:
            raise InputError(f"{path}, {where}: split {name!r} is not one of {', '.join(PARTS)}")
        yield Line(f"{path}, {where}", PARTS[name] if name else None, tuple(words), _label(row.get(label), path, where))


def _label(value: Any, path: Path, where: str) -> Any:
    """Return a label as it is written, without surrounding blanks. Raises InputError if it cannot be a label."""
    if isinstance(value, str):
        value = value.strip()
        if len(value) > LONGEST_LABEL:
            raise InputError(f"{path}, {where}: the label has {len(value)} characters, and {LONGEST_LABEL} are allowed")
        if not encodable(value):
            raise InputError(f"{path}, {where}: the label holds half of a surrogate pair, which is not valid text")
    elif isinstance(value, (int, float)) and abs(value) > LARGEST_LABEL:
        raise InputError(f"{path}, {where}: the size of the label is above {LARGEST_LABEL:g}, the limit")
    if value is None or value == "" or value != value or str(value).lower() == "nan":
        raise InputError(f"{path}, {where}: there is no label")
    if not isinstance(value, (str, int, float)):
        raise InputError(f"{path}, {where}: a label must be a word or a number, got {value!r}")
    return value


def _columns(path: Path, there: list[str], spec: TasksSpec) -> tuple[list[str], str]:
    """Return the names of the text columns and of the label column: those given in the spec, else usual names.

    Raises InputError if there is no such column.
    """
    lower = {name.lower(): name for name in there}

    def given(key: str, name: str) -> str:
        if name not in there:
            raise InputError(f"{path} has no column {name!r} (tasks.{key}){suggest(name, there)}")
        return name

    def missing(key: str, usual: str) -> InputError:
        return InputError(
            f"{path} has no column {usual!r} for tasks.{key}; its columns are {', '.join(there)}; give one of "
            f"them with --set tasks.{key}=COLUMN"
        )

    label = given("label", spec.label) if spec.label else next((lower[n] for n in LABELS if n in lower), "")
    if not label:
        raise missing("label", "label")
    if spec.text or spec.pair:
        if not spec.text:
            raise InputError(
                f"tasks.pair={spec.pair!r} needs tasks.text as well, the column of the first texts of the pairs"
            )
        return [given("text", spec.text), *([given("pair", spec.pair)] if spec.pair else [])], label
    pair = next((p for p in PAIRS if p[0] in lower and p[1] in lower), None)
    if pair:
        return [lower[name] for name in pair], label
    single = next((lower[n] for n in SINGLES if n in lower and lower[n] != label), "")
    if not single:
        raise missing("text", "text")
    return [single], label


# ---- parts and labels ----


def _fractional(lines: list[Line]) -> bool:
    """Return whether all labels are numbers and at least one of them is no integer (fractional, or not finite)."""
    numbers = [_number(line.label) for line in lines]
    return None not in numbers and any(not float(n).is_integer() for n in numbers if n is not None)


def _number(label: Any) -> float | None:
    """Return a label as a number; None if it is not one."""
    try:
        number = float(label)
    except ValueError:
        return None
    return number


def _word(label: Any) -> str:
    """Return the name of a label; 1, 1.0 and "1" have the same."""
    if isinstance(label, bool):
        return str(label).lower()
    return str(int(label)) if isinstance(label, float) and label == int(label) else str(label)


def _parts(lines: list[Line], regression: bool, path: Path) -> dict[str, list[Line]]:
    """Return the rows of each part, "train" first. Raises InputError if there are none to train or to test on."""
    if all(line.part is None for line in lines):
        parts = {part: [line for line in lines if _hashed(line) == part] for part in ("train", "dev")}
        if not regression:
            seen = {_word(line.label) for line in parts["train"]}
            parts = {
                part: [x for x in lines if (_hashed(x) if _word(x.label) in seen else "train") == part]
                for part in ("train", "dev")
            }
    else:
        parts = {part: [line for line in lines if line.part == part] for part in ("train", "dev", "test")}
        parts = {part: rows for part, rows in parts.items() if rows}
    if "train" not in parts or len(parts) < 2 or not all(parts.values()):
        there = ", ".join(f"{len(rows)} of {part}" for part, rows in parts.items())
        raise InputError(f"{path} needs rows to train on and rows to test on, and has {there}")
    return parts


def _hashed(line: Line) -> str:
    """Return the part of a row by a hash of its first text: "dev" for a fifth of all texts."""
    return "dev" if seed_of(0, "table", line.texts[0]) % 5 == 0 else "train"


def _examples(lines: list[Line], targets: list[Any]) -> Examples:
    """Return rows and their targets as examples, with a second text if the rows have two."""
    pairs = len(lines[0].texts) == 2
    return Examples([x.texts[0] for x in lines], [x.texts[1] for x in lines] if pairs else None, targets)


def _classification(path: Path, parts: Mapping[str, list[Line]], spec: TasksSpec) -> Task:
    """Return a classification task. Raises InputError if its labels cannot be learned."""
    seen = {_word(line.label) for line in parts["train"]}
    if len(seen) < 2:
        raise InputError(f"{path}: every row to train on has the label {next(iter(seen))!r}, so nothing can be learned")
    if len(seen) > MOST_LABELS:
        raise InputError(
            f"{path} has {len(seen):,} different labels in {len(parts['train']):,} rows to train on, and a "
            f"classification may have {MOST_LABELS:,}; if they are numbers, add --set tasks.kind=regression, else give "
            f"another column with --set tasks.label=COLUMN"
        )
    for line in (line for part, lines in parts.items() if part != "train" for line in lines):
        if _word(line.label) not in seen:
            raise InputError(f"{line.where}: label {_word(line.label)!r} is in no row to train on")
    whole = all(re.fullmatch(r"-?\d{1,18}", word) for word in seen)
    labels = tuple(sorted(seen, key=int if whole else str))
    index = {label: number for number, label in enumerate(labels)}
    examples = {part: _examples(lines, [index[_word(x.label)] for x in lines]) for part, lines in parts.items()}
    metrics = ("accuracy", "matthews", "f1" if len(labels) == 2 else "macro_f1")
    task = Task(_name(path), "table", labels, "accuracy", metrics, 3.0, examples.pop("train"), examples)
    return sealed(task, spec.rows)


def _regression(path: Path, parts: Mapping[str, list[Line]], spec: TasksSpec) -> Task:
    """Return a regression task. Raises InputError if a label is not a number, or they cannot be learned."""
    examples: dict[str, Examples] = {}
    for part, lines in parts.items():
        numbers = [_number(line.label) for line in lines]
        for line in (line for line, n in zip(lines, numbers, strict=True) if n is None or not math.isfinite(n)):
            raise InputError(f"{line.where}: label {line.label!r} is not a finite number, as a regression needs")
        for line, number in zip(lines, numbers, strict=True):
            if number is not None and abs(number) > LARGEST_LABEL:
                raise InputError(
                    f"{line.where}: the size of label {line.label!r} is above {LARGEST_LABEL:g}, the largest that a "
                    f"regression can learn"
                )
        examples[part] = _examples(lines, numbers)
    low, high = min(examples["train"].targets), max(examples["train"].targets)
    if low == high:
        raise InputError(f"{path}: every row to train on has the label {low:g}, so nothing can be learned")
    if high - low < max(CLOSEST * max(abs(low), abs(high)), 1 / LARGEST_LABEL):
        raise InputError(
            f"{path}: the labels to train on are between {low!r} and {high!r}, too close together for 32-bit floats; "
            f"subtract their mean"
        )
    train = examples.pop("train")
    task = Task(_name(path), "table", (), "spearman", ("spearman", "pearson"), 3.0, train, examples, span=(low, high))
    return sealed(task, spec.rows)
