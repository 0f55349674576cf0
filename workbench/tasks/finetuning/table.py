"""A person's own table as a task: CSV, TSV, JSON lines or parquet, one row an example.

Columns are named by `tasks.text`, `tasks.pair` and `tasks.label`, or found by their header. Labels that are all
numbers, some with a fractional part, make a regression, others a classification, unless `tasks.kind` says which. The
test part is

1. what a column `split` says (`train`; `dev`, `validation` or `valid`; `test`), else
2. a sibling file: beside `my.train.csv` (or `train.csv`) `my.dev.csv`, `my.validation.csv`, `my.test.csv` ..., else
3. about a fifth of the rows, chosen by a hash of the first text, so that a text never stands on both sides and a row
   keeps its side when others are added; a label found only there is left to training.
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
LARGEST_LABEL = 1e30  # squares of larger ones, and differences of a few, are beyond 32-bit numbers
CLOSEST = 1e-5  # of the largest label, the least distance between the smallest and the largest
MOST_LABELS = 1000  # of a classification; with more, a head and its baselines outgrow memory
PARTS = {"train": "train", "dev": "dev", "validation": "dev", "valid": "dev", "val": "dev", "test": "test"}


@dataclass(frozen=True)
class Line:
    """One row: where it stands, the part it belongs to (if said), its texts and its label as written."""

    where: str
    part: str | None
    texts: tuple[str, ...]
    label: Any


def is_table(name: str) -> bool:
    return name.lower().endswith(FORMATS)


def load(path: Path, spec: TasksSpec) -> Task:
    """The table as a task. Raises InputError naming file and row."""
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
    """Part -> file: the file alone, or with the files that its `train` implies."""
    stem, suffix = path.stem, path.suffix
    if not re.search(r"(^|[._-])train$", stem):
        return {None: path}
    beside = [(part, path.with_name(stem[: -len("train")] + word + suffix)) for word, part in PARTS.items()]
    found: dict[str | None, Path] = {"train": path}
    for part, file in beside:
        if part != "train" and file.is_file():
            found.setdefault(part, file)
    return found if len(found) > 1 else {None: path}


def _name(path: Path) -> str:
    return re.sub(r"[._-]?train$", "", path.stem) or path.resolve().parent.name


# ---- reading ----


def _lines(path: Path, spec: TasksSpec, part: str | None) -> Iterator[Line]:
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
        said = str(row.get(split)).strip().lower() if split else part
        if said is not None and said not in PARTS:
            raise InputError(f"{path}, {where}: split {said!r} is not one of {', '.join(PARTS)}")
        yield Line(f"{path}, {where}", PARTS[said] if said else None, tuple(words), _label(row.get(label), path, where))


def _label(value: Any, path: Path, where: str) -> Any:
    """Return a label as it is written, without blanks around it. Raises InputError for what cannot be one."""
    if isinstance(value, str):
        value = value.strip()
        if len(value) > LONGEST_LABEL:
            raise InputError(f"{path}, {where}: the label has {len(value)} characters, and {LONGEST_LABEL} are allowed")
        if not encodable(value):
            raise InputError(f"{path}, {where}: the label holds half of a surrogate pair, which is no text")
    elif isinstance(value, (int, float)) and abs(value) > LARGEST_LABEL:
        raise InputError(f"{path}, {where}: the label is beyond {LARGEST_LABEL:g} in size, the largest that is allowed")
    if value is None or value == "" or value != value or str(value).lower() == "nan":
        raise InputError(f"{path}, {where}: there is no label")
    if not isinstance(value, (str, int, float)):
        raise InputError(f"{path}, {where}: a label must be a word or a number, got {value!r}")
    return value


def _columns(path: Path, there: list[str], spec: TasksSpec) -> tuple[list[str], str]:
    """The text columns and the label column: those asked for, else those whose names are usual."""
    lower = {name.lower(): name for name in there}

    def asked(key: str, name: str) -> str:
        if name not in there:
            raise InputError(f"{path} has no column {name!r} (tasks.{key}){suggest(name, there)}")
        return name

    def missing(key: str, usual: str) -> InputError:
        return InputError(
            f"{path} has no {key} column called {usual}; there are {', '.join(there)}; name it with --set tasks.{key}="
        )

    label = asked("label", spec.label) if spec.label else next((lower[n] for n in LABELS if n in lower), "")
    if not label:
        raise missing("label", "label")
    if spec.text or spec.pair:
        if not spec.text:
            raise InputError(f"tasks.pair={spec.pair!r} needs tasks.text, the column it is the second half of")
        return [asked("text", spec.text), *([asked("pair", spec.pair)] if spec.pair else [])], label
    pair = next((p for p in PAIRS if p[0] in lower and p[1] in lower), None)
    if pair:
        return [lower[name] for name in pair], label
    single = next((lower[n] for n in SINGLES if n in lower and lower[n] != label), "")
    if not single:
        raise missing("text", "text")
    return [single], label


# ---- parts and labels ----


def _fractional(lines: list[Line]) -> bool:
    """Return whether all labels read as numbers, and one of them has a fractional part or no finite value."""
    numbers = [_number(line.label) for line in lines]
    return None not in numbers and any(not float(n).is_integer() for n in numbers if n is not None)


def _number(label: Any) -> float | None:
    try:
        number = float(label)
    except ValueError:
        return None
    return number


def _word(label: Any) -> str:
    """A label's name: 1, 1.0 and "1" are one."""
    if isinstance(label, bool):
        return str(label).lower()
    return str(int(label)) if isinstance(label, float) and label == int(label) else str(label)


def _parts(lines: list[Line], regression: bool, path: Path) -> dict[str, list[Line]]:
    """train, then dev and test, none of them empty."""
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
        raise InputError(f"{path} needs rows to train on and rows to test on, got {there}")
    return parts


def _hashed(line: Line) -> str:
    return "dev" if seed_of(0, "table", line.texts[0]) % 5 == 0 else "train"


def _examples(lines: list[Line], targets: list[Any]) -> Examples:
    pairs = len(lines[0].texts) == 2
    return Examples([x.texts[0] for x in lines], [x.texts[1] for x in lines] if pairs else None, targets)


def _classification(path: Path, parts: Mapping[str, list[Line]], spec: TasksSpec) -> Task:
    seen = {_word(line.label) for line in parts["train"]}
    if len(seen) < 2:
        raise InputError(f"{path}: every row to train on has the label {next(iter(seen))!r}, so nothing can be learnt")
    if len(seen) > MOST_LABELS:
        raise InputError(
            f"{path} has {len(seen):,} different labels in {len(parts['train']):,} rows to train on, and a "
            f"classification may have {MOST_LABELS:,}; if they are numbers say --set tasks.kind=regression, else name "
            f"another column with --set tasks.label="
        )
    for line in (line for part, lines in parts.items() if part != "train" for line in lines):
        if _word(line.label) not in seen:
            raise InputError(f"{line.where}: label {_word(line.label)!r} is in no row to train on")
    whole = all(re.fullmatch(r"-?\d{1,18}", word) for word in seen)
    labels = tuple(sorted(seen, key=int if whole else str))
    index = {label: number for number, label in enumerate(labels)}
    made = {part: _examples(lines, [index[_word(x.label)] for x in lines]) for part, lines in parts.items()}
    metrics = ("accuracy", "matthews", "f1" if len(labels) == 2 else "macro_f1")
    task = Task(_name(path), "table", labels, "accuracy", metrics, 3.0, made.pop("train"), made)
    return sealed(task, spec.rows)


def _regression(path: Path, parts: Mapping[str, list[Line]], spec: TasksSpec) -> Task:
    made: dict[str, Examples] = {}
    for part, lines in parts.items():
        numbers = [_number(line.label) for line in lines]
        for line in (line for line, n in zip(lines, numbers, strict=True) if n is None or not math.isfinite(n)):
            raise InputError(f"{line.where}: label {line.label!r} is not a number, as a regression needs")
        for line, number in zip(lines, numbers, strict=True):
            if number is not None and abs(number) > LARGEST_LABEL:
                raise InputError(
                    f"{line.where}: label {line.label!r} is beyond {LARGEST_LABEL:g} in size, the largest that a "
                    f"regression can learn"
                )
        made[part] = _examples(lines, numbers)
    low, high = min(made["train"].targets), max(made["train"].targets)
    if low == high:
        raise InputError(f"{path}: every row to train on has the label {low:g}, so nothing can be learnt")
    if high - low < max(CLOSEST * max(abs(low), abs(high)), 1 / LARGEST_LABEL):
        raise InputError(
            f"{path}: the labels to train on lie between {low!r} and {high!r}, too close together for 32-bit numbers; "
            f"subtract their mean"
        )
    train = made.pop("train")
    task = Task(_name(path), "table", (), "spearman", ("spearman", "pearson"), 3.0, train, made, span=(low, high))
    return sealed(task, spec.rows)
