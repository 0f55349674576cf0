"""Rows of tables: what is read, and what is refused in a sentence."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refused_tables import labelled, refused

from workbench.data import formats
from workbench.tasks.common import table_files


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_binary_is_no_table(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"t.{kind}"
    path.write_bytes(b"text,label\nword\0,1\n")
    assert "NUL at byte 15" in refused(path)
    path.write_bytes("text\tlabel\n".encode("utf-16-le"))
    assert "UTF-16" in refused(path)


def test_binary_and_endless_fields_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "a\\u0000b", "label": 1}\n')
    assert "line 1: column 'text' holds a NUL" in refused(path)
    path.write_text('{"text": "' + "a " * (table_files.LONGEST // 2) + 'b", "label": 1}\n')
    assert "line 1: column 'text' holds 1,048,577 characters, more than 1,048,576" in refused(path)


def test_a_header_of_very_many_columns_takes_a_moment(tmp_path: Path) -> None:
    """Comparing each with each would take minutes, and naming all of them megabytes."""
    path = tmp_path / "t.csv"
    path.write_text(",".join(f"c{number}" for number in range(200_000)) + "\n" + "1," * 199_999 + "1\n")
    begun = time.process_time()
    assert len(refused(path)) < 10_000 and time.process_time() - begun < 10


def test_a_table_has_to_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = labelled(tmp_path / "t.csv", 2)
    monkeypatch.setattr(table_files, "LARGEST", 50)
    assert "bytes; a table may have at most 50" in refused(path)


def test_a_parquet_table_that_unpacks_to_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    texts = ["a " * 200_000 + str(n) for n in range(20)]
    pq.write_table(pa.table({"text": texts, "label": [0, 1] * 10}), path, compression="zstd", use_dictionary=False)
    monkeypatch.setattr(formats, "FREE", 1 << 20)
    assert "decompresses to 7 MiB in 20 rows of column 'text'" in refused(path)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.txt", "t.jsonl", "t.label"])
def test_lines_that_end_in_carriage_returns_alone_are_rows(tmp_path: Path, name: str) -> None:
    lines = {
        "t.jsonl": '{"text": "a b", "label": 1}\n{"text": "c", "label": 0}\n', "t.label": "LOC:x a b\nNUM:y c\n",
    }.get(name, "text\tlabel\na b\t1\nc\t0\n".replace("\t", "," if name == "t.csv" else "\t"))  # fmt: skip
    found = []
    for end in ("\n", "\r", "\r\n"):
        (tmp_path / name).write_bytes(lines.replace("\n", end).encode())
        found.append(list(table_files.rows_of(tmp_path / name)))
    assert len(found[0]) == 2 and found[0] == found[1] == found[2]
