"""Rows of a table in CSV, TSV, JSON lines or Parquet, or in lines that begin with a label.

Files that end in .txt or .label are TSV if their first line has a tab. Else each line is a label, a blank and a text,
as in TREC's `LOC:city What is ...`, where the column `coarse` is the label up to its colon, or fastText's
`__label__x ...`.

CSV fields may be quoted (RFC 4180); TSV fields never are. Files are UTF-8; ASCII with a few bytes of Latin-1, such as
TREC's, is read too, after a warning. `workbench.data.formats` reads the files, as it reads corpora. A table is
held in memory, so it may have at most 1 GiB and 4 million rows, and each row must have as many fields as the header.
Raises InputError that names file and line.
"""

from __future__ import annotations

import io
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from workbench.data import formats
from workbench.data.formats import delimited_rows, json_rows, parquet_rows
from workbench.data.hugging_face import fetch
from workbench.data.streams import chunks, only_cr
from workbench.errors import InputError, encodable, plural
from workbench.progress import warn_once
from workbench.spec.parts import TasksSpec
from workbench.store.atomic import user_path
from workbench.tasks.common.data_rows import first_of, odd_rows, warned
from workbench.tasks.common.examples import Examples, Task, limited

LARGEST = 1 << 30  # bytes
LONGEST = 1 << 20  # characters of a text; an encoder reads some thousands
FORMATS = (".csv", ".tsv", ".jsonl", ".parquet", ".txt", ".label")
MARK = "__label__"  # before a label in fastText's files
MOST_TEXTS = 2  # columns of texts beside the label, in a file without a header
OF_UTF8 = re.compile(rb"[\xc2-\xf4][\x80-\xbf]")  # bytes that are hardly ever neighbours in Latin-1
LATIN = "cp1252"  # Latin-1 with the characters that Windows puts in place of control codes
ASCII_PER_LATIN = 1000  # a file is read as Latin-1 only if it has at most one such byte in this many


def rows_of(path: Path, named: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ("line 7", {column: value}) for each row.

    `named` are columns that a user named. If they are numbers that are not all in the first row of a CSV or TSV file,
    it has no header, and the columns are called 1, 2 and so on.
    """
    kind = path.suffix.lower()
    if kind == ".parquet":
        _check_size(path)
        rows = parquet_rows(path, str(path))
    elif kind == ".jsonl":
        rows = json_rows(path, text_of(path).split("\n"))
    else:
        text = text_of(path, latin=True)
        mark = _mark(path, text)
        fields = delimited_rows(path, io.StringIO(text, newline=""), mark)
        rows = headed(path, fields, named) if mark else _labelled_lines(path, text)
    for number, row in enumerate(rows, 1):
        if number > formats.MOST_ROWS:
            raise formats.too_many_rows(str(path))
        yield row


def is_here(place: str | None, option: str) -> bool:
    """Return whether the place that an option gives is a folder of this machine, and no name of the hub."""
    return place is not None and user_path(place, f"{option}:").is_dir()


def here_or_fetched(place: str, patterns: Sequence[str], option: str, holding: str) -> Path | str:
    """Return the folder that an option gives, or the copy of a data set of the hub; why there is none in a sentence."""
    return user_path(place, f"{option}:") if is_here(place, option) else fetch(place, list(patterns), option, holding)


def without_header(path: Path) -> list[str]:
    """Return the columns of a CSV or TSV file without a header by their numbers: label, text, and a second text if any.

    The label is the column with the fewest different values, and there is no header if the first row's label occurs
    in a later row. It is empty for a file with a header, or with other numbers of columns.
    """
    text = text_of(path, latin=True) if path.suffix.lower() not in (".parquet", ".jsonl") else ""
    if not (mark := _mark(path, text)):
        return []
    rows = [fields for _, fields in delimited_rows(path, io.StringIO(text, newline=""), mark) if fields]
    width = len(rows[0]) if rows else 0
    if not 2 <= width <= 1 + MOST_TEXTS or any(len(fields) != width for fields in rows):
        return []
    columns = [[fields[column].strip() for fields in rows] for column in range(width)]
    label = min(range(width), key=lambda column: len(set(columns[column])))
    if columns[label][0] not in columns[label][1:]:
        return []
    return [str(column + 1) for column in sorted(range(width), key=lambda column: column != label)]


def _mark(path: Path, text: str) -> str:
    """Return what separates the columns of a text, "" if there are none."""
    if path.suffix.lower() == ".csv":
        return ","
    return "\t" if path.suffix.lower() == ".tsv" or "\t" in text.partition("\n")[0] else ""


def text_of(path: Path, latin: bool = False) -> str:
    """Return the text of a file, compressed or not; with `latin` a little Latin-1 is read too. Raises InputError."""
    _check_size(path)
    parts, size = [], 0
    for part in chunks(path):  # of a compressed file, whose size says little
        parts.append(part)
        size += len(part)
        if size > LARGEST:
            raise InputError(f"{path} unpacks to more than {LARGEST:,} bytes, the most that a table may have")
    raw = b"".join(parts)
    raw = raw.replace(b"\r", b"\n") if only_cr(raw) else raw
    if (place := raw.find(b"\0")) >= 0:
        raise InputError(
            f"{path} is binary or UTF-16, not UTF-8 text: NUL at byte {place}; convert it to UTF-8, or name another"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if latin and (text := _from_latin(path, raw)) is not None:
            return text
        raise InputError(f"{path} is not UTF-8: byte {error.start} cannot be read; convert it to UTF-8") from None


def _from_latin(path: Path, raw: bytes) -> str | None:
    """Return ASCII with a few bytes of Latin-1 as text, after a warning; None if the bytes may be anything else."""
    odd = [place for place, byte in enumerate(raw) if byte >= 0x80]
    if len(odd) * ASCII_PER_LATIN > len(raw) or OF_UTF8.search(raw):
        return None
    try:
        text = raw.decode(LATIN)
    except UnicodeDecodeError:
        return None
    line = raw.count(b"\n", 0, odd[0]) + 1
    warn_once(
        f"{path} is not UTF-8, and is read as Latin-1: {plural(len(odd), 'character')} that ASCII lacks, "
        f"first {text[odd[0]]!r} at line {line}"
    )
    return text


def checked_text(value: Any, column: str | int, where: str) -> str:
    """Return a field if it is text that a tokenizer can read. Raises InputError that says where the field is."""
    if not isinstance(value, str):
        raise InputError(f"{where}: column {column!r} holds no text")
    if not encodable(value):
        raise InputError(f"{where}: column {column!r} holds half of a surrogate pair, which is not valid text")
    if len(value) > LONGEST or "\0" in value:
        fault = "a NUL" if "\0" in value else f"{len(value):,} characters, more than {LONGEST:,}"
        raise InputError(f"{where}: column {column!r} holds {fault}; name a column of text")
    return value


def _check_size(path: Path) -> None:
    if (size := path.stat().st_size) > LARGEST:
        raise InputError(f"{path} has {size:,} bytes; a table may have at most {LARGEST:,}")


def _labelled_lines(path: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        label, _, rest = line.strip().partition(" ")
        if not rest.strip() or not (":" in label or label.startswith(MARK)):
            raise InputError(
                f"{path}, line {number}: there are neither tabs nor a label before the text, as in 'LOC:city What ...' "
                f"or '{MARK}good ...'; sentences of tagged words are named tag:FILE"
            )
        label = label.removeprefix(MARK)
        yield f"line {number}", {"label": label, "coarse": label.partition(":")[0], "text": rest.strip()}


def headed(
    path: Path, rows: Iterator[tuple[str, list[str]]], named: Sequence[str] = ()
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ("line 7", {column: value}) for each row but the first, the header, if it is one (see `rows_of`)."""
    first = next(rows, ("", list[str]()))
    header = [name.strip() for name in first[1]]
    if named and all(name.isdecimal() for name in named) and not set(named) <= set(header):
        rows, header = chain([first], rows), [str(number) for number in range(1, len(header) + 1)]
    repeated = next((name for name, count in Counter(header).items() if count > 1), None)
    if repeated is not None:
        raise InputError(f"{path} has two columns called {repeated!r}")
    for where, fields in rows:
        if fields and len(fields) != len(header):
            raise InputError(f"{path}, {where}: {len(fields)} fields where the header has {len(header)}")
        if fields:
            yield where, dict(zip(header, fields, strict=True))


# ---- labels ----

LONGEST_LABEL = 200  # characters
LARGEST_LABEL = 1e30  # squares and differences of larger labels may overflow 32-bit floats
CLOSEST = 1e-5  # least difference of the largest and the smallest label, as a share of the larger absolute value
MOST_LABELS = 1000  # in a classification; with more, the head and the baselines may not fit into memory
SEPARATORS = "|,"  # of several labels in one field; a column that has the first somewhere is separated by it


@dataclass(frozen=True)
class Line:
    """One row: its file and row for messages, its part (None if not given), its texts and its label as written.

    The label is a tuple if the row may have several.
    """

    where: str
    part: str | None
    texts: tuple[str, ...]
    label: Any
    row: Any = None  # of choices and marked spans, the row as `superglue.Row`

    @property
    def words(self) -> tuple[str, ...]:
        """The names of its labels, each once; 1, 1.0 and "1" have the same name."""
        each = self.label if isinstance(self.label, tuple) else (self.label,)
        names = (int(label) if isinstance(label, float) and label == int(label) else label for label in each)
        return tuple(dict.fromkeys(str(name).lower() if isinstance(name, bool) else str(name) for name in names))


def checked(value: Any, where: str) -> Any:
    """Return a label as it is written, without surrounding blanks. Raises InputError if it cannot be a label.

    Text is text: `nan`, `NA`, `null` and `None` are labels like any other. No label is an empty field, null in JSON and
    Parquet, and a number that is NaN.
    """
    if isinstance(value, str):
        value = value.strip()
        if len(value) > LONGEST_LABEL:
            raise InputError(f"{where}: the label has {len(value)} characters, and {LONGEST_LABEL} are allowed")
        if not encodable(value):
            raise InputError(f"{where}: the label holds half of a surrogate pair, which is not valid text")
    elif isinstance(value, (int, float)) and abs(value) > LARGEST_LABEL:
        raise InputError(f"{where}: the absolute value of the label is above {LARGEST_LABEL:g}, the limit")
    if value is None or value == "" or value != value:
        raise InputError(f"{where}: there is no label")
    if not isinstance(value, (str, int, float)):
        raise InputError(f"{where}: a label must be a word or a number, got {value!r:.80}")
    return value


def kind_of(lines: Sequence[Line]) -> str:
    """Return the kind of task that labels are, as `tasks.kind` names it.

    Raises InputError if only some are lists, or if `nan` or `inf` stands among labels that are numbers.
    """
    lists = [isinstance(line.label, tuple) for line in lines]
    if any(lists) and not all(lists):
        line = lines[lists.index(not lists[0])]
        here, before = ("a single one", "a list") if lists[0] else ("a list", "a single one")
        raise InputError(f"{line.where}: the label is {here}, and {before} in the rows before; write lists in all rows")
    if all(lists):
        return "multilabel"
    numbers = [number for line in lines if (number := number_of(line.label)) is not None]
    finite = [number for number in numbers if math.isfinite(number)]
    if not finite or len(numbers) < len(lines):
        return "classification"
    if len(finite) < len(numbers):
        line = next(line for line, number in zip(lines, numbers, strict=True) if not math.isfinite(number))
        raise InputError(
            f"{line.where}: label {line.label!r} is not a finite number, and the others are numbers; give a number, or "
            f"remove the row, or add --set tasks.kind=classification if this is the name of a label"
        )
    return "classification" if all(number.is_integer() for number in finite) else "regression"


def unified(lines: Sequence[Line]) -> list[Line]:
    """Return the rows with one spelling of each label, the first in the rows to train on.

    A whole number is the same label with and without a plus or a fractional part of zeros (`1`, `+1` and `1.0`), `true`
    and `false` are the same in any case, and equal characters are the same in any Unicode form. All other labels that
    are spelled differently are different: `1` and `01`, `yes` and `Yes`.
    """
    spelled: dict[str, str] = {}
    for line in sorted(lines, key=lambda line: line.part not in (None, "train")):
        for word in line.words:
            spelled.setdefault(_canonical(word), word)
    chosen = (tuple(dict.fromkeys(spelled[_canonical(word)] for word in line.words)) for line in lines)
    each = zip(lines, chosen, strict=True)
    return [replace(line, label=words if isinstance(line.label, tuple) else words[0]) for line, words in each]


def _canonical(word: str) -> str:
    if whole := re.fullmatch(r"([+-]?)(\d+)(?:\.0*)?", word):
        return ("-" if whole[1] == "-" and whole[2].strip("0") else "") + whole[2]
    return word.lower() if word.lower() in ("true", "false") else unicodedata.normalize("NFC", word)


def separated(lines: Sequence[Line]) -> list[Line]:
    """Split the label fields of a multi-label table at their separator; each label becomes a tuple, () if empty."""
    fields = [line.label for line in lines if isinstance(line.label, str)]
    separator = next((each for each in SEPARATORS if any(each in field for field in fields)), SEPARATORS[0])

    def cut(line: Line) -> Line:
        words = (word for word in str(line.label).split(separator) if word.strip())
        return replace(line, label=tuple(checked(word, line.where) for word in words))

    return [line if isinstance(line.label, tuple) else cut(line) for line in lines]


def task_of_table(name: str, path: Path, kind: str, parts: Mapping[str, Sequence[Line]], spec: TasksSpec) -> Task:
    """Return the rows of a table as a task of this kind. Raises InputError if their labels cannot be learned."""
    if kind == "regression":
        made = _regression(name, path, parts)
    else:
        made = _classification(name, path, parts, kind == "multilabel")
    if spec.metric is not None and spec.metric not in made.metrics:
        raise InputError(
            f"tasks.metric={spec.metric}: {path} is a {made.kind} with {plural(len(made.labels), 'label')}, which is "
            f"measured by {', '.join(made.metrics)}"
        )
    notes = warned(name, [*([] if kind == "regression" else _unseen(parts)), *repeated(parts)])
    return limited(replace(made, metric=spec.metric or made.metric, notes=notes), spec.rows)


def _classification(name: str, path: Path, parts: Mapping[str, Sequence[Line]], several: bool) -> Task:
    seen = {word for line in parts["train"] for word in line.words}
    if len(seen) < 2 and not (several and seen):
        each = f"has the label {next(iter(seen))!r}" if seen else "has no label"
        raise InputError(f"{path}: every row to train on {each}, so nothing can be learned")
    for part, lines in parts.items():
        tested = {word for line in lines for word in line.words}
        if tested and not tested & seen:
            here, there = (first_of([repr(word) for word in _ordered(words)], ", ") for words in (tested, seen))
            raise InputError(
                f"{path}: no row of the part {part!r} can be right: its labels are {here}, and the rows to train on "
                f"have {there}; write the same labels in both"
            )
    every = seen | {word for lines in parts.values() for line in lines for word in line.words}
    if len(every) > MOST_LABELS:
        raise InputError(
            f"{path} has {len(every):,} different labels in {len(parts['train']):,} rows to train on, and a "
            f"classification may have {MOST_LABELS:,}; if they are numbers, add --set tasks.kind=regression, else give "
            f"another column with --set tasks.label=COLUMN"
        )
    labels = (*_ordered(seen), *_ordered(every - seen))
    index = {label: number for number, label in enumerate(labels)}
    examples: dict[str, Examples] = {}
    for part, lines in parts.items():
        numbers = [sorted(index[word] for word in line.words) for line in lines]
        examples[part] = examples_of(lines, numbers if several else [each[0] for each in numbers])
    of_one = ("accuracy", "matthews", *(("f1",) if len(labels) == 2 else ()), "macro_f1", "average_precision")
    metrics = ("average_precision", "macro_f1", "micro_f1") if several else of_one
    return _task(name, labels, metrics, examples, multilabel=several)


def _task(
    name: str, labels: tuple[str, ...], metrics: tuple[str, ...], parts: dict[str, Examples], **more: Any
) -> Task:
    train = parts.pop("train")
    return Task(name, "table", labels, metrics[0], metrics, 3.0, train, parts, predictions="csv", **more)


def _ordered(words: set[str]) -> list[str]:
    whole = all(re.fullmatch(r"-?\d{1,18}", word) for word in words)
    return sorted(words, key=int if whole else str)


def _regression(name: str, path: Path, parts: Mapping[str, Sequence[Line]]) -> Task:
    examples: dict[str, Examples] = {}
    for part, lines in parts.items():
        numbers = [number_of(line.label) for line in lines]
        for line, number in zip(lines, numbers, strict=True):
            if number is None or not math.isfinite(number):
                raise InputError(f"{line.where}: label {line.label!r} is not a finite number, as a regression needs")
            if abs(number) > LARGEST_LABEL:
                raise InputError(
                    f"{line.where}: the size of label {line.label!r} is above {LARGEST_LABEL:g}, the limit"
                )
        examples[part] = examples_of(lines, numbers)
    low, high = min(examples["train"].targets), max(examples["train"].targets)
    if low == high:
        raise InputError(f"{path}: every row to train on has the label {low:g}, so nothing can be learned")
    if high - low < max(CLOSEST * max(abs(low), abs(high)), 1 / LARGEST_LABEL):
        raise InputError(
            f"{path}: the labels to train on are between {low!r} and {high!r}, too close together for 32-bit floats; "
            f"subtract their mean"
        )
    return _task(name, (), ("spearman", "pearson"), examples, span=(low, high))


def examples_of(lines: Sequence[Line], targets: list[Any]) -> Examples:
    """Return rows and their targets as examples, with a second text if the rows have two."""
    pairs = len(lines[0].texts) == 2
    return Examples([x.texts[0] for x in lines], [x.texts[1] for x in lines] if pairs else None, targets)


def _unseen(parts: Mapping[str, Sequence[Line]]) -> list[str]:
    """Return a sentence on the rows to test on with a label that no row to train on has."""
    seen = {word for line in parts["train"] for word in line.words}
    tested = [line for part, lines in parts.items() if part != "train" for line in lines]
    unseen = [line for line in tested if not seen.issuperset(line.words)]
    first = next((word for line in unseen for word in line.words if word not in seen), "")
    what = f"a label that no row to train on has, such as {first!r}, which counts as wrong"
    return odd_rows([line.where for line in unseen], f"{len(tested):,} to test on", what)


def repeated(parts: Mapping[str, Sequence[Line]]) -> list[str]:
    """Return a sentence on the rows to test on whose texts are also trained on."""
    trained = {line.texts for line in parts["train"]}
    tested = [line for part, lines in parts.items() if part != "train" for line in lines]
    places = [line.where for line in tested if line.texts in trained]
    what = "the same text as a row to train on, so the score is partly one of memory"
    return odd_rows(places, f"{len(tested):,} to test on", what)


def number_of(label: Any) -> float | None:
    """Return a label as a number; None if it is not one, as `1_0`, which Python would take for 10."""
    try:
        return float(label if "_" not in str(label) else "")
    except (TypeError, ValueError):
        return None
