"""The rows of a table: CSV, TSV, JSON lines or parquet.

`workbench.data.formats` reads them, as it does corpora. A table is held in memory, so it may have 1 GiB, and its rows
must fit its header. Raises InputError naming file and line.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.data.formats import delimited_rows, json_rows, parquet_rows
from workbench.errors import InputError, encodable

LARGEST = 1 << 30  # bytes
LONGEST = 1 << 20  # characters of a text; encoders read thousands
FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")


def rows_of(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """("line 7", {column: value}) of each row."""
    kind = path.suffix.lower()
    if kind == ".parquet":
        _check_size(path)
        yield from parquet_rows(path, str(path))
    elif kind == ".jsonl":
        yield from json_rows(path, text_of(path).split("\n"))
    else:
        yield from _delimited_rows(path, text_of(path), "," if kind == ".csv" else "\t")


def text_of(path: Path) -> str:
    """Return the whole text of a table. Raises InputError where it is too large, binary or not UTF-8."""
    _check_size(path)
    raw = path.read_bytes()
    if (place := raw.find(b"\0")) >= 0:
        raise InputError(
            f"{path} is binary or UTF-16, not UTF-8 text: NUL at byte {place}; name a table, or convert it"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: byte {error.start} cannot be read") from None


def checked_text(value: Any, column: str | int, where: str) -> str:
    """Return a field if a tokenizer can read it. Raises InputError saying where it stands."""
    if not isinstance(value, str):
        raise InputError(f"{where}: column {column!r} holds no text")
    if not encodable(value):
        raise InputError(f"{where}: column {column!r} holds half of a surrogate pair, which is no text")
    if len(value) > LONGEST or "\0" in value:
        what = "a NUL" if "\0" in value else f"{len(value):,} characters, more than {LONGEST:,}"
        raise InputError(f"{where}: column {column!r} holds {what}; name a column of text")
    return value


def _check_size(path: Path) -> None:
    size = path.stat().st_size
    if size > LARGEST:
        raise InputError(f"{path} has {size:,} bytes; a table may have {LARGEST:,}")


def _delimited_rows(path: Path, text: str, mark: str) -> Iterator[tuple[str, dict[str, Any]]]:
    rows = delimited_rows(path, io.StringIO(text, newline=""), mark)
    header = [name.strip() for name in next(rows, ("", []))[1]]
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{path} has two columns called {twice!r}")
    for where, fields in rows:
        if not fields:
            continue
        if len(fields) != len(header):
            raise InputError(f"{path}, {where}: {len(fields)} fields where the header has {len(header)}")
        yield where, dict(zip(header, fields, strict=True))
