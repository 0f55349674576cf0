"""Rows of a table in CSV, TSV, JSON lines or Parquet, or in lines that begin with a label.

Files that end in .txt or .label are TSV if their first line has a tab. Else each line is a label, a blank and a text,
as in TREC's `LOC:city What is ...`, where the column `coarse` is the label up to its colon, or fastText's
`__label__x ...`.

CSV fields may be quoted (RFC 4180); TSV fields never are. Files are UTF-8; ASCII with a few bytes of Latin-1, such as
TREC's, is read too, after a warning. `workbench.data.formats` reads the files, as it does those of corpora. A table is
held in memory, so it may have at most 1 GiB and 4 million rows, and each row must have as many fields as the header.
Raises InputError that names file and line.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workbench.data import formats
from workbench.data.formats import delimited_rows, json_rows, parquet_rows
from workbench.data.streams import chunks, only_cr
from workbench.errors import InputError, encodable, plural
from workbench.progress import warn_once

LARGEST = 1 << 30  # bytes
LONGEST = 1 << 20  # characters of a text; an encoder reads some thousands
SHOWN = 3  # rows that a sentence names
FORMATS = (".csv", ".tsv", ".jsonl", ".parquet", ".txt", ".label")
MARK = "__label__"  # before a label in fastText's files
MOST_TEXTS = 2  # columns of texts beside the label, in a file without a header
OF_UTF8 = re.compile(rb"[\xc2-\xf4][\x80-\xbf]")  # bytes that are hardly ever neighbours in Latin-1
LATIN = "cp1252"  # Latin-1 with the characters that Windows puts in place of control codes
ASCII_PER_LATIN = 1000  # bytes for each one that is not ASCII, for a file to be read as Latin-1


def rows_of(path: Path, named: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ("line 7", {column: value}) for each row.

    `named` are columns that a user named. If they are numbers that are not all in the first row of a CSV or TSV file,
    it has no header, and the columns are called 1, 2 and so on.
    """
    for number, row in enumerate(_rows_of(path, named), 1):
        if number > formats.MOST_ROWS:
            raise formats.too_many_rows(str(path))
        yield row


def _rows_of(path: Path, named: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    kind = path.suffix.lower()
    if kind == ".parquet":
        _check_size(path)
        yield from parquet_rows(path, str(path))
    elif kind == ".jsonl":
        yield from json_rows(path, text_of(path).split("\n"))
    else:
        text = text_of(path, latin=True)
        if mark := _mark(path, text):
            yield from _delimited_rows(path, text, mark, named)
        else:
            yield from _labelled_lines(path, text)


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
    """Return the whole text of a file, compressed or not. Raises InputError if it is too large, binary or not UTF-8.

    With `latin`, ASCII with a few bytes of Latin-1 is read too, after a warning that counts them.
    """
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


def first_of(places: Sequence[str]) -> str:
    """Return the first few of some places of rows, and how many more there are, for a sentence about these rows."""
    rest = f" and {len(places) - SHOWN:,} more" if len(places) > SHOWN else ""
    return "; ".join(places[:SHOWN]) + rest


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
    """Raise InputError if a table is too large to be held in memory."""
    size = path.stat().st_size
    if size > LARGEST:
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


def _delimited_rows(
    path: Path, text: str, delimiter: str, named: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:  # fmt: skip
    rows = delimited_rows(path, io.StringIO(text, newline=""), delimiter)
    header = [name.strip() for name in next(rows, ("", []))[1]]
    if named and all(name.isdecimal() for name in named) and not set(named) <= set(header):
        rows = delimited_rows(path, io.StringIO(text, newline=""), delimiter)
        header = [str(number) for number in range(1, len(header) + 1)]
    repeated = next((name for name, count in Counter(header).items() if count > 1), None)
    if repeated is not None:
        raise InputError(f"{path} has two columns called {repeated!r}")
    for where, fields in rows:
        if not fields:
            continue
        if len(fields) != len(header):
            raise InputError(f"{path}, {where}: {len(fields)} fields where the header has {len(header)}")
        yield where, dict(zip(header, fields, strict=True))
