"""Documents of every format: where they end, how they are cut, and what is no text."""

from __future__ import annotations

import csv
import io
import itertools
import json
import lzma
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_files import DOCUMENTS, WRITE, as_parquet, read, refused, unbroken

from workbench.data import formats, streams
from workbench.errors import InputError


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), min_size=1),
       st.integers(1, 40))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_text_is_split_at_blank_lines_wherever_blocks_end(tmp_path_factory: Any, documents: list[str], block: int):
    """Against the plain definition, with blocks of a few bytes. Carriage returns end lines where nothing else does."""
    raw = "\n\n".join(documents).encode()
    expected, lines = [], []
    for line in [*raw.decode().split("\n" if b"\n" in raw else "\r"), ""]:
        line = line.removesuffix("\r")
        if line.strip():
            lines.append(line)
        elif lines:
            expected.append("\n".join(lines))
            lines = []
    if expected:
        expected[0] = expected[0].removeprefix("\ufeff")
    path = tmp_path_factory.mktemp("blocks") / "t.txt"
    path.write_bytes(raw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK", block)
        assert list(formats.read(path, "text")) == [text for text in expected if text and not text.isspace()]


@given(st.lists(st.text("ab\u00e9 ", min_size=1).filter(str.strip), min_size=1, max_size=8), st.integers(1, 40),
       st.integers(2, 3))  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_lines_that_end_in_carriage_returns_alone_are_lines(
    tmp_path_factory: Any, lines: list[str], block: int, end: int
) -> None:
    """The same documents as with line feeds, as text, JSON lines and CSV; also where the file has a longer start."""
    folder = tmp_path_factory.mktemp("cr")
    texts = {
        "t.txt": "\n".join(line + "\n" * (number % end) for number, line in enumerate(lines)),
        "t.jsonl": "".join(json.dumps({"text": line}) + "\n" for line in lines),
        "t.csv": "".join(f'"{line}"\n' for line in ["text", *lines]),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK", block)
        for name, text in texts.items():
            for packed in (False, True):
                path = folder / f"{name}{'.xz' if packed else ''}"
                found = []
                for mark in ("\n", "\r"):
                    raw = text.replace("\n", mark).encode()
                    path.write_bytes(lzma.compress(raw) if packed else raw)
                    found.append(list(formats.read(path, "text")))
                assert found[0] == found[1] != []


def test_a_carriage_return_within_lines_that_end_otherwise_stays(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"a\rb\n\nc\r\n\r\nd")
    assert read(tmp_path / "t.txt") == ["a\rb", "c", "d"]
    (tmp_path / "u.txt").write_bytes(b"a\r\rb\r" + b"c\r" * 40_000 + b"d\r\n\r\ne")
    assert len(read(tmp_path / "u.txt")) == 3 and read(tmp_path / "u.txt")[2] == "e"


def test_damaged_parquet(tmp_path: Path):
    whole = as_parquet([str(n) * 50 for n in range(10_000)])
    path = tmp_path / "t.parquet"
    for raw in (b"", b"PAR1", whole[:-8], whole[: len(whole) // 2], whole[: len(whole) // 3] + whole[-2000:]):
        path.write_bytes(raw)
        assert str(path) in refused(path)


@pytest.mark.parametrize("kind", [".csv", ".jsonl", ".parquet"])
def test_a_missing_column_names_those_there(tmp_path: Path, kind: str):
    path = tmp_path / f"t{kind}.xz"
    path.write_bytes(lzma.compress(WRITE[kind](DOCUMENTS)))
    message = refused(path, column="content")
    assert "'content'" in message and "'id', 'text'" in message and "data.column" in message
    if kind != ".csv":
        assert "not text" in refused(path, column="id")
    else:
        assert read(path, column="id") == ["0", "1", "2", "3"]


@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".csv", ".parquet"])
def test_a_million_characters_without_a_blank_are_no_text(tmp_path: Path, kind: str) -> None:
    path, text = tmp_path / f"t{kind}", "begins well " + unbroken(formats.WORD + 1)
    if kind == ".parquet":
        pq.write_table(pa.table({"text": ["first", text]}), path)
    else:
        path.write_text({".txt": "first\n\n" + text, ".jsonl": '{"text": "first"}\n' + json.dumps({"text": text}),
                         ".csv": f"text\nfirst\n{text}\n"}[kind])  # fmt: skip
    said = refused(path)
    assert "1,048,576 characters without a blank, from character 12, 'RNvn" in said
    assert {".txt": "line 3", ".jsonl": "line 2", ".csv": "line 3", ".parquet": "row 2"}[kind] in said


@pytest.mark.parametrize("blank", [" ", "\n", "\t", "\u3000", "\u00a0"])
def test_any_white_space_ends_a_word(blank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "WORD", 100)
    text = blank.join(["x" * 99] * 10)
    assert formats.checked(text, "t") == text
    with pytest.raises(InputError, match="100 characters without a blank, from character 100,"):
        formats.checked("x" * 99 + blank + "x" * 101, "t")


@pytest.mark.parametrize("kind", [".jsonl", ".csv", ".parquet"])
def test_long_documents_of_every_kind_are_cut(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "LONGEST", 2000)
    text = "\n".join(f"line {n} of a long document" for n in range(300)) + "\n" + "x" * 4500
    path = tmp_path / f"t{kind}"
    if kind == ".parquet":
        pq.write_table(pa.table({"text": [text, "short"]}), path)
    else:
        rows = {".jsonl": json.dumps({"text": text}) + '\n{"text": "short"}', ".csv": f'text\n"{text}"\nshort'}
        path.write_text(rows[kind])
    found = read(path)
    assert "".join(found) == text + "short" and max(map(len, found)) == 2000 and len(found) == 9


def test_parquet_that_says_it_unpacks_to_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "FREE", 1 << 20)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"text": ["word " * 500_000], "id": [1]}), path, compression="zstd")
    assert "decompresses to 2 MiB in 1 rows of column 'text'" in refused(path)
    monkeypatch.setattr(formats, "FREE", 1 << 30)
    monkeypatch.setattr(formats, "LONGEST", 1 << 19)
    assert "decompresses to 2 MiB in 1 rows of column 'text'" in refused(path)


@given(st.text("ab \n", max_size=60), st.integers(1, 20))
def test_parts_of_a_cut_document_join_to_it(text: str, longest: int) -> None:
    """They end after a line end or a blank, unless there is none in reach."""
    with mock.patch.object(formats, "LONGEST", longest):
        parts = list(formats.cut(text))
    assert "".join(parts) == text and all(len(part) <= longest for part in parts)
    assert all(part[-1] in " \n" or not set(part) & set(" \n") for part in parts[:-1])


@given(
    st.lists(
        st.lists(st.text('ab,"\n ', max_size=5), min_size=1, max_size=3).filter(lambda row: row != [""]), max_size=5
    )
)
def test_rows_of_csv_are_those_that_were_written_at_the_lines_where_they_end(rows: list[list[str]]) -> None:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows(rows)
    found = list(formats.delimited_rows(Path("t.csv"), out.getvalue().splitlines(keepends=True)))
    assert [row for _, row in found] == rows
    ends = itertools.accumulate(1 + sum(field.count("\n") for field in row) for row in rows)
    assert [where for where, _ in found] == [f"line {end}" for end in ends]
