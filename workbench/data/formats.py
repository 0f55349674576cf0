"""Documents read from one file: text separated by blank lines, JSON Lines, CSV or Parquet, plain or compressed.

The content of a file without a suffix, such as `wiki_00`, and of `.json` shows its kind. Raises InputError naming the
file and the line for malformed content.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import itertools
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from workbench.data import streams
from workbench.data.streams import FREE, LINE, RATIO, Advance, FilePart, Place, RemotePath, ignore, opened
from workbench.errors import InputError, encodable
from workbench.progress import warn_once

Reader = Callable[[Place, str, Advance], Iterator[str]]
LONGEST = 1 << 24  # characters; a longer document is cut, at a line end if it has one, so that memory stays bounded
WORD = 1 << 20  # characters without a blank; a longer run is not text, and a tokenizer would take hours for it
ROWS = 256  # rows of Parquet that are read at once
UNPACKED, MOST_OF_A_ROW = 64 << 20, 1 << 30  # bytes of rows that are unpacked at once, and of one row
MOST_OF_A_TABLE = 4 << 30  # bytes of a table of all columns, which its reader holds in memory
MOST_ROWS = 1 << 22  # of such a table; a packed file may hold far more equal rows than memory does
NUMBERED = re.compile(r"(.*)-\d{5,}-of-(\d{5,7})(\.\w+)")  # one of several files of a split
LONGEST_LINK = 4096  # bytes of a path
NAMED = 8  # files that a sentence names
LFS = "version https://git-lfs.github.com/spec/"  # the start of a Git LFS pointer file
JSON = ".json"
BESIDE = re.compile(  # names of files beside the text of a repository or a data set
    r"readme|licen[cs]e|copying|notice|authors|contributors|citation|change(s|log)|version|todo|makefile|dockerfile"
    r"|manifest|(md5|sha\d+)sums?|checksums?|_success|dataset_(info|infos|dict)\.json|state\.json",
    re.IGNORECASE,
)


def kind_of(path: Place, column: str | None = None) -> str:
    """Return how an existing file is read, as a key of READERS such as ".txt"; "" if it cannot be read.

    That is its suffix, or else follows from its content. Files beside a text, such as LICENSE, are not read; nor, with
    `column`, is a single JSON object without it. Raises InputError if the content is needed and cannot be read.
    """
    suffix = streams.unpacked_suffix(path)
    if suffix in READERS:
        return suffix
    file, name = streams.whole(path), streams.named(path).name
    beside = BESIDE.fullmatch(name) or name.endswith("~")  # an editor's copy of an earlier version
    if suffix not in ("", JSON) or beside or (isinstance(file, Path) and not os.path.isfile(file)):
        return ""
    content = streams.head(file)
    first, *more = content.removeprefix(codecs.BOM_UTF8).strip().splitlines() or [b""]
    if first.startswith(b"{") and (len(content) == streams.HEAD and not more):
        return ".jsonl"  # its first line is longer than what was read of it
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(row := json.loads(first), dict):
            return ".jsonl" if more or column is None or column in row else ""
    if suffix == JSON:
        return ".jsonl" if not first else ""
    if content.startswith(b"PAR1"):
        return ".parquet"
    return ".txt" if _is_text(file, content) else ""


def _is_text(path: Path | RemotePath, content: bytes) -> bool:
    """Return whether a file begins with UTF-8 text without NUL, and is no link, which git may write as a path."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(content)  # its last character may be incomplete
    except UnicodeDecodeError:
        return False
    if isinstance(path, Path) and len(content) <= LONGEST_LINK and text.strip() and not {"\n", "\0"} & set(text):
        with contextlib.suppress(OSError):
            return not (path.parent / text).exists()
    return "\0" not in text


def read(path: Place, column: str, advance: Advance = ignore) -> Iterator[str]:
    """Yield the documents of a file, in order, without empty ones. `column` has no effect on plain text."""
    for text in READERS[kind_of(path)](path, column, advance):
        if text and not text.isspace():
            yield text


def _text(path: Place, column: str, advance: Advance) -> Iterator[str]:
    """Yield the documents of a text file, which blank lines separate; without blank lines, the file is one document."""
    document: list[str] = []
    size = number = begin = 0
    for number, line in enumerate(streams.lines(path, advance, LONGEST, cut=True), 1):
        if number == 1 and line.startswith(LFS):
            raise InputError(f"{path} is a pointer of Git LFS and not the text itself, which git lfs pull downloads")
        blank = not line or line.isspace()
        if not blank:
            document.append(line)
            size += len(line) + 1
            begin = begin or number
        if document and (blank or size > LONGEST):
            yield checked("\n".join(document), f"{path}, line {begin}")
            document, size, begin = [], 0, 0
    yield checked("\n".join(document), f"{path}, line {begin}")


def _jsonl(path: Place, column: str, advance: Advance) -> Iterator[str]:
    for where, row in json_rows(path, streams.lines(path, advance)):
        if column not in row:
            raise missing(column, row, f"{path}, {where}")
        text = field(row[column], column, f"{path}, {where}")
        if not encodable(text):
            raise InputError(f"{path}, {where}: column {column!r} holds half of a surrogate pair, which is not text")
        yield from cut(text)


def _csv(path: Place, column: str, advance: Advance) -> Iterator[str]:
    """Yield the documents in one column of a CSV file with a header; quoted fields may contain line ends."""
    rows = delimited_rows(path, (line + "\n" for line in streams.lines(path, advance)))
    _, header = next(rows, ("", None))
    if header is None:
        return
    if column not in header:
        raise missing(column, header, str(path))
    place = header.index(column)
    for where, row in rows:
        if len(row) > place:
            yield from cut(field(row[place], column, f"{path}, {where}"))
        elif row:
            raise InputError(f"{path}, {where} has {len(row)} fields, and the header has {len(header)}")


def _parquet(path: Place, column: str, advance: Advance) -> Iterator[str]:
    packed, file = streams.packing_of(path), streams.whole(path)
    groups = (path.start, path.end) if isinstance(path, FilePart) else (0, -1)
    with tempfile.NamedTemporaryFile(suffix=".parquet") if packed else contextlib.nullcontext() as unpacked:
        if unpacked is not None:  # Parquet is read from its end, so it is decompressed to a file first
            for chunk in streams.chunks(path, advance):
                unpacked.write(chunk)
            unpacked.flush()
        place = Path(unpacked.name) if unpacked is not None else file
        for where, row in parquet_rows(place, str(file), column, groups):
            yield from cut(field(row[column], column, f"{file}, {where}"))
    if not packed:
        advance(path.stat().st_size if isinstance(path, Path) else path.size)


def warn_of_unread(where: str, names: Sequence[str], total: int, why: str) -> None:
    """Warn of files at a place that are not read, by names or counts of suffixes; `why` ends the sentence."""
    if not names:
        return
    if len(names) <= NAMED:
        shown = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
    else:
        suffixes = Counter(Path(name).suffix for name in names).most_common(NAMED)
        counts = ", ".join(f"{count:,} {suffix or 'without a suffix'}" for suffix, count in suffixes)
        shown = f"{len(names):,} of {total:,} files ({counts}), such as {', '.join(names[:NAMED])}, are"
    warn_once(f"{where}: {shown} not read{why}")


def whole_split(paths: Iterable[Path]) -> list[Path]:
    """Return the files of a split in order. Raises InputError if `train-00000-of-00002` lacks its sibling."""
    files = sorted(paths)
    for path in files:
        if numbered := NUMBERED.fullmatch(path.name):
            before, count, after = numbered.groups()
            names = (f"{before}-{number:0{len(count)}}-of-{count}{after}" for number in range(int(count)))
            if lacking := next((name for name in names if not path.with_name(name).is_file()), ""):
                raise InputError(f"{path.with_name(lacking)} is missing, and {path.name} belongs to it; download it")
    return files


# ---- rows of corpora, and of the tables of tasks (`workbench.tasks.common.table_files`) ----


def json_rows(path: Place, lines: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ("line 7", object) for each line of JSON that is not blank. Raises InputError naming file and line."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {number} is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise InputError(f"{path}, line {number} is not a JSON object")
        yield f"line {number}", row


def delimited_rows(path: Place, lines: Iterable[str], mark: str = ",") -> Iterator[tuple[str, list[str]]]:
    """Yield ("line 7", fields) for each row of `lines` with line ends. Raises InputError naming file and line.

    Fields of CSV may be quoted (RFC 4180) and contain line ends; fields of TSV are never quoted.
    """
    csv.field_size_limit(2 * LINE)
    read = 0  # characters of the row that is being read, which may have many lines

    def limited() -> Iterator[str]:
        nonlocal read
        for line in lines:
            read += len(line)
            if read > LINE:
                raise InputError(
                    f"{path}, line {rows.line_num}: a row has more than {LINE:,} characters; is a quote left open?"
                )
            yield line

    quoting = {"strict": True} if mark == "," else {"dialect": "excel-tab", "quoting": csv.QUOTE_NONE}
    rows = csv.reader(limited(), **quoting)
    try:
        for row in rows:
            read = 0
            yield f"line {rows.line_num}", row
    except csv.Error as error:
        kind = "CSV" if mark == "," else "TSV"
        raise InputError(f"{path}, line {rows.line_num} cannot be read as {kind}: {error}") from None


def row_groups(path: Path | RemotePath) -> list[int]:
    """Return the compressed size in bytes of each row group of a Parquet file; none if it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with opened(path) as file, pq.ParquetFile(file) as table:
            groups = map(table.metadata.row_group, range(table.metadata.num_row_groups))
            return [sum(group.column(at).total_compressed_size for at in range(group.num_columns)) for group in groups]
    except (pa.ArrowException, UnicodeDecodeError, OSError):
        return []  # the reader says what is wrong


def parquet_rows(
    path: Path | RemotePath, shown: str, column: str | None = None, groups: tuple[int, int] = (0, -1)
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ("row 7", {column: value}) for each row, with all columns or one. Errors name the file as `shown`.

    `groups` are the first row group and the one after the last, -1 for the end of the file. Raises InputError.
    """
    import pyarrow as pa

    try:
        with opened(path) as file, _with_dictionaries(file) as table:
            first, end = groups[0], table.metadata.num_row_groups if groups[1] < 0 else groups[1]
            numbers = itertools.count(1 + sum(table.metadata.row_group(at).num_rows for at in range(first)))
            if column is not None and column not in table.schema_arrow.names:
                raise missing(column, table.schema_arrow.names, shown)
            unpackable(table.metadata, shown, column)
            if column is None and table.metadata.num_rows > MOST_ROWS:
                raise too_many_rows(shown)
            columns, in_all = None if column is None else [column], 0
            for batch in table.iter_batches(batch_size=ROWS, row_groups=range(first, end), columns=columns):
                in_all += sum(map(_unpacked_size, batch.columns)) if column is None else 0
                if in_all > MOST_OF_A_TABLE:
                    raise InputError(f"{shown} unpacks to more than {MOST_OF_A_TABLE >> 30} GiB; name a smaller table")
                for part in _unpacked_in_parts(batch, shown):
                    yield from ((f"row {next(numbers)}", row) for row in part.to_pylist())
    except PermissionError:
        raise InputError(f"{shown} cannot be read: no permission") from None
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if getattr(error, "errno", None):  # damaged Thrift or Snappy data raises an OSError without a number
            raise
        raise InputError(f"{shown} cannot be read as parquet: {str(error).splitlines()[0][:200]}") from None


def _with_dictionaries(file: Any) -> Any:
    """Return a Parquet file in which a text of a dictionary is in memory once; Arrow cannot do so within lists."""
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(file)
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    columns = [group.column(at) for group in groups for at in range(group.num_columns)]
    texts = [each for each in columns if each.has_dictionary_page and each.physical_type == "BYTE_ARRAY"]
    packed = {each.path_in_schema for each in texts if "." not in each.path_in_schema}
    return pq.ParquetFile(file, metadata=metadata, read_dictionary=sorted(packed))


def _unpacked_in_parts(batch: Any, shown: str) -> Iterator[Any]:
    """Yield the rows of a batch in parts of at most UNPACKED bytes, or a single row. Raises InputError.

    A short text of a dictionary can be the value of every row and of every entry of a list.
    """
    size = sum(map(_unpacked_size, batch.columns))
    if size > UNPACKED and batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from _unpacked_in_parts(batch.slice(0, half), shown)
        yield from _unpacked_in_parts(batch.slice(half), shown)
    elif size > MOST_OF_A_ROW:
        raise InputError(f"{shown}: a row unpacks to {size >> 20:,} MiB, which no text does; split its documents")
    else:
        yield batch


def _unpacked_size(array: Any) -> int:
    """Return the bytes of an Arrow array with a copy of each text of a dictionary for every value that refers to it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        lengths = pc.binary_length(array.dictionary.cast(pa.binary()))
        return int(pc.sum(pc.cast(lengths.take(array.indices), pa.int64())).as_py() or 0)
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_struct(array.type):
        parts = array.flatten()
        return sum(map(_unpacked_size, parts)) if isinstance(parts, list) else _unpacked_size(parts)
    return int(array.nbytes)


def unpackable(metadata: Any, shown: str, column: str | None = None) -> None:
    """Raise InputError if a Parquet column (any if None) decompresses to far more bytes than text does."""
    for rows in map(metadata.row_group, range(metadata.num_row_groups)):
        for part in map(rows.column, range(rows.num_columns)):
            name, packed, unpacked = part.path_in_schema, part.total_compressed_size, part.total_uncompressed_size
            bomb = unpacked > max(FREE, RATIO * packed) or unpacked > 4 * LONGEST * max(1, rows.num_rows)
            if bomb and column in (None, name.partition(".")[0]):
                raise InputError(
                    f"{shown} decompresses to {unpacked >> 20} MiB in {rows.num_rows:,} rows of column {name!r}, "
                    f"from {packed:,} bytes, which no text does; split its documents"
                )


def too_many_rows(shown: str) -> InputError:
    """Return the error for a table of more than MOST_ROWS rows, too many to hold in memory."""
    return InputError(f"{shown} has more than {MOST_ROWS:,} rows, the most that a table may have; name a smaller table")


def missing(column: str, columns: Iterable[str], where: str) -> InputError:
    """Return the error for a table that does not have this column."""
    names = ", ".join(repr(name) for name in columns) or "none"
    return InputError(
        f"{where} has no column {column!r}; its columns are {names}; choose one with --set data.column=NAME"
    )


def field(value: object, column: str, where: str) -> str:
    """Return the text of a field, which is empty for a null. Raises InputError if it is not text, as `checked` does."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(f"{where}: column {column!r} holds {type(value).__name__}, not text")
    return checked(value, f"{where}: column {column!r}")


def checked(text: str, where: str) -> str:
    """Return the text. Raises InputError if it is binary, or has more than WORD characters without a blank."""
    if "\0" in text:
        raise InputError(f"{where} is binary, not text: NUL at character {text.index(chr(0))}")
    start = 0
    while len(text) - start > WORD:
        end = start + WORD
        last = max(text.rfind(blank, start, end) for blank in " \n\t")
        if last < 0:
            next_blank = next((place for place in range(start, end) if text[place].isspace()), -1)
            if next_blank < 0:
                raise InputError(
                    f"{where} is not text: {WORD:,} characters without a blank, from character {start}, "
                    f"{text[start : start + 20]!a}..."
                )
            last = next_blank
        start = last + 1
    return text


def cut(text: str) -> Iterator[str]:
    """Yield the document in parts of at most LONGEST characters, cut after line ends or blanks if there are any."""
    start = 0
    while len(text) - start > LONGEST:
        end = start + LONGEST
        last = max(text.rfind("\n", start, end), text.rfind(" ", start, end)) + 1
        yield text[start : last or end]
        start = last or end
    yield text[start:]


READERS: dict[str, Reader] = {".txt": _text, ".train": _text, ".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet}
