"""Documents out of one file: blank-line separated text, JSON Lines, CSV and Parquet, each also packed.

Raises InputError naming file and line for whatever is not as it should be.
"""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from workbench.data.streams import PACKINGS, Advance, chunks, ignore, lines
from workbench.errors import InputError
from workbench.files import encodable

Reader = Callable[[Path, str, Advance], Iterator[str]]
LONGEST = 1 << 24  # characters; a longer document is cut at a line end, so that memory stays bounded


def kind_of(path: Path) -> str:
    """ ".txt", ".jsonl", ".parquet", ".csv", or "" for a file of another kind; packings are looked through."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if suffixes and suffixes[-1] in PACKINGS:
        suffixes.pop()
    return suffixes[-1] if suffixes and suffixes[-1] in READERS else ""


def read(path: Path, column: str, advance: Advance = ignore) -> Iterator[str]:
    """The documents of a file, in order, without empty ones. `column` is not looked at for plain text."""
    for text in READERS[kind_of(path)](path, column, advance):
        if text and not text.isspace():
            yield text


def _text(path: Path, column: str, advance: Advance) -> Iterator[str]:
    """Documents are separated by blank lines; a file without one is a single document."""
    document: list[str] = []
    size = 0
    for line in lines(path, advance, longest=LONGEST):
        blank = not line or line.isspace()
        if not blank:
            document.append(line)
            size += len(line) + 1
        if document and (blank or size > LONGEST):
            yield "\n".join(document)
            document, size = [], 0
    yield "\n".join(document)


def _jsonl(path: Path, column: str, advance: Advance) -> Iterator[str]:
    for number, line in enumerate(lines(path, advance), 1):
        if not line or line.isspace():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} line {number} is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise InputError(f'{path} line {number} is not an object such as {{"{column}": "..."}}')
        if column not in row:
            raise missing(column, row, f"{path} line {number}")
        text = checked(row[column], column, f"{path} line {number}")
        if "\\u" in line and not encodable(text):
            raise InputError(
                f"{path} line {number}: column {column!r} holds half of a surrogate pair, which is no text"
            )
        yield text


def _csv(path: Path, column: str, advance: Advance) -> Iterator[str]:
    """Comma-separated with a header; quoted fields may hold line ends."""
    csv.field_size_limit(1 << 30)
    rows = csv.reader((line + "\n" for line in lines(path, advance)), strict=True)
    header = None
    try:
        for row in rows:
            if header is None:
                header = row
                if column not in header:
                    raise missing(column, header, str(path))
                place = header.index(column)
            elif len(row) > place:
                yield row[place]
            elif row:
                raise InputError(
                    f"{path} line {rows.line_num} has {len(row)} fields where the header has {len(header)}"
                )
    except csv.Error as error:
        raise InputError(f"{path} line {rows.line_num} is not CSV: {error}") from None


def _parquet(path: Path, column: str, advance: Advance) -> Iterator[str]:
    if path.suffix.lower() in PACKINGS:  # Parquet is read from its end, so it is unpacked to a file first
        with tempfile.NamedTemporaryFile(suffix=".parquet") as unpacked:
            for chunk in chunks(path, advance):
                unpacked.write(chunk)
            unpacked.flush()
            yield from _plain_parquet(Path(unpacked.name), str(path), column)
    else:
        yield from _plain_parquet(path, str(path), column)
        advance(path.stat().st_size)


def _plain_parquet(path: Path, shown: str, column: str) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as table:
            if column not in table.schema_arrow.names:
                raise missing(column, table.schema_arrow.names, shown)
            for batch in table.iter_batches(batch_size=4096, columns=[column]):
                for value in batch.column(0).to_pylist():
                    yield checked(value, column, shown)
    except PermissionError:
        raise InputError(f"{shown} cannot be read: no permission") from None
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if getattr(error, "errno", None):
            raise
        raise InputError(f"{shown} is not a whole Parquet file: {str(error).splitlines()[0]}") from None


def missing(column: str, there: Iterable[str], where: str) -> InputError:
    names = ", ".join(repr(name) for name in there) or "none"
    return InputError(f"{where} has no column {column!r}; its columns are {names}; choose with --set data.column=NAME")


def checked(value: object, column: str, where: str) -> str:
    """The text of a field; a null is an empty document."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(f"{where}: column {column!r} holds {type(value).__name__}, not text")
    return value


READERS: dict[str, Reader] = {".txt": _text, ".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet}
