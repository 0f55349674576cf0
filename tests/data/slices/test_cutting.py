"""Slices of a text: their documents, one after the other, are those of the text, wherever it is cut."""

from __future__ import annotations

import json
import lzma
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.data import formats, preprocessing, sources
from workbench.data.filters import documents
from workbench.errors import InputError
from workbench.spec.parts import DataSpec

TEXTS = ["word", "ø", " ", "\n", "\n\n", "\r\n", "\n \t\n", "\r\n\r\n", "\ufeff", "\u2028", "a b c\n\n"]
PIECES = st.sampled_from(TEXTS)


def slices_of(monkeypatch: pytest.MonkeyPatch, size: int, *paths: Path) -> list[preprocessing.Slice]:
    monkeypatch.setattr(preprocessing, "SLICE", size)
    return preprocessing.cut(sources.resolve(DataSpec(corpus=tuple(map(str, paths)))))


def read(slices: list[preprocessing.Slice]) -> list[str]:
    return [text for each in slices for text in documents(DataSpec(), each)]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.lists(PIECES, max_size=60),
    size=st.integers(1, 40),
    block=st.integers(2, 9),
    longest=st.integers(9, 50),
)
def test_plain_text_is_cut_where_documents_end(
    text: list[str], size: int, block: int, longest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a mark lies across two blocks, and if documents and lines are so long that they are divided."""
    path = tmp_path / "t.txt"
    path.write_bytes("".join(text).encode())
    with monkeypatch.context() as patch:
        patch.setattr(formats, "LONGEST", longest)
        whole = list(formats.read(path, "text"))
        patch.setattr(preprocessing, "BLOCK", block)
        slices = slices_of(patch, size, path)
        assert read(slices) == whole
        assert sum(map(sources.size_of, slices)) == path.stat().st_size


@pytest.mark.parametrize("size", [1, 100, 3_000])
@pytest.mark.parametrize("kind", ["txt", "jsonl", "parquet"])
def test_each_kind_of_file_has_the_same_documents(
    kind: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(size)
    texts = [" ".join(draw.choices(["one", "two", "three"], k=draw.randint(1, 60))) for _ in range(200)]
    path = tmp_path / f"t.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"text": texts}), path, row_group_size=7)
    else:
        joined = "\n\n".join(texts) if kind == "txt" else "\n".join(json.dumps({"text": text}) for text in texts)
        path.write_text(joined)
    slices = slices_of(monkeypatch, size, path)
    assert read(slices) == texts
    assert len(slices) > 1 and sum(map(sources.size_of, slices)) == path.stat().st_size
    if size < 3000:
        assert len(slices) > 20
    seen: list[int] = []
    assert [text for each in slices for text in documents(DataSpec(), each, seen.append)] == texts
    assert sum(seen) == path.stat().st_size


def test_what_cannot_be_cut_is_one_slice_and_small_files_share_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text("text\n" + '"one\n\ntwo"\n' * 100)
    packed = lzma.compress(b"word\n\n" * 5000 + random.Random(0).randbytes(900).hex().encode())
    (tmp_path / "b.txt.xz").write_bytes(packed)
    (tmp_path / "c.txt").write_text("one line without end " * 50)
    for number in range(6):
        (tmp_path / f"d{number}.txt").write_text("little " * 10)
    slices = slices_of(monkeypatch, 200, tmp_path)
    names = [[source.path.name for source in each] for each in slices]  # type: ignore[union-attr]
    pairs = [[f"d{number}.txt", f"d{number + 1}.txt"] for number in (0, 2, 4)]
    assert names == [["a.csv"], ["b.txt.xz"], ["c.txt"], *pairs]


def test_a_message_says_from_where_lines_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "one"}\n' * 100 + "no JSON\n")
    start, end = 16 * 70, -1
    part: Any = sources.File(path, 1, 0, (start, end))
    with pytest.raises(InputError, match=rf"t.jsonl from byte {start}, line 31 is not JSON"):
        list(sources.read(part, "text"))
    path.write_bytes(b'{"text": "one"}\n' * 100 + b"\xff\n")
    with pytest.raises(InputError, match=r"byte 0xff at offset 1600"):
        list(sources.read(part, "text"))
