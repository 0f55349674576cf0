"""Files as bytes, lines and documents: where these end, what is damaged or no text, and what would fill memory."""

from __future__ import annotations

import csv
import io
import itertools
import json
import lzma
import os
import resource
import tracemalloc
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_files import DOCUMENTS, PACK, WRITE, as_parquet, read, refused, unbroken

from workbench.data import formats, streams, tokenizer
from workbench.errors import InputError
from workbench.tasks.common.table_files import rows_of


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


PACKED = [ending for ending in PACK if ending]


@pytest.mark.parametrize("packing", PACKED)
def test_what_unpacks_to_more_than_any_text_is_refused(
    tmp_path: Path, packing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blank lines take as long to read as text does, and a file may hold billions of them."""
    monkeypatch.setattr(streams, "FREE", 1 << 20)
    path = tmp_path / f"bomb.txt{packing}"
    path.write_bytes(PACK[packing](b"\n" * (6 << 20)))
    assert "decompresses to more than 500 times its size" in refused(path)


@pytest.mark.parametrize("packing", PACKED)
def test_pieces_are_small_whatever_the_file(tmp_path: Path, packing: str) -> None:
    path = tmp_path / f"text.txt{packing}"
    whole = b"many words " * 500_000
    path.write_bytes(PACK[packing](whole))
    pieces = list(streams.chunks(path))
    assert max(map(len, pieces)) <= streams.BLOCK and b"".join(pieces) == whole


def test_members_and_padding_of_packed_files(tmp_path: Path):
    for packing in (".gz", ".xz", ".zst"):
        path = tmp_path / f"two.txt{packing}"
        path.write_bytes(PACK[packing](b"one\n\ntw") + PACK[packing](b"o\n"))
        assert read(path) == ["one", "two"]
    (tmp_path / "padded.txt.xz").write_bytes(lzma.compress(b"one") + b"\0" * 8)
    assert read(tmp_path / "padded.txt.xz") == ["one"]


@pytest.mark.parametrize(("kind", "packing"), [*((".txt", packing) for packing in PACK), (".csv", ""), (".jsonl", "")])
def test_bytes_that_are_not_utf8_are_found(tmp_path: Path, kind: str, packing: str):
    good = WRITE[kind](DOCUMENTS * 5000)
    place = good.index(b"a, b", len(good) // 2)
    path = tmp_path / f"t{kind}{packing}"
    path.write_bytes(PACK[packing](good[:place] + b"\xe9" + good[place + 1 :]))
    message = refused(path)
    assert str(path) in message and f"offset {place}" in message and "0xe9" in message


def test_a_cut_character_at_the_end_is_found(tmp_path: Path):
    (tmp_path / "t.txt").write_bytes("aé".encode()[:-1])
    assert "offset 1" in refused(tmp_path / "t.txt")


@pytest.mark.parametrize("packing", [".gz", ".xz", ".zst"])
def test_packed_files_cut_short_or_damaged(tmp_path: Path, packing: str):
    whole = PACK[packing](os.urandom(50_000).hex().encode())
    path = tmp_path / f"t.txt{packing}"
    for size in (0, 5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert str(path) in (message := refused(path)) and "truncated" in message
    path.write_bytes(b"this is plain text, whatever its name says")
    assert str(path) in (message := refused(path)) and "damaged or not" in message
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 255]) * 40 + whole[middle + 40 :])
    if packing != ".zst":  # zstd writes no checksum unless it is asked to
        assert "damaged" in refused(path)


def test_a_second_form_of_a_file_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    for name in ("corpus.tsv", "corpus.jsonl.xz", "corpus.jsonl.gz"):
        (tmp_path / name).touch()
    found = streams.packed_or_not(tmp_path / "corpus.jsonl", tmp_path / "corpus.tsv")
    assert found == tmp_path / "corpus.jsonl.gz" and streams.packed_or_not(tmp_path / "other") is None
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / name} is not read, but corpus.jsonl.gz" for name in ("corpus.jsonl.xz", "corpus.tsv")
    ]


@pytest.mark.parametrize("packing", [".gz", ".xz", ".zst"])
def test_a_bomb_of_nuls_is_refused_in_little_memory(tmp_path: Path, packing: str) -> None:
    path = tmp_path / f"bomb.txt{packing}"
    path.write_bytes(PACK[packing](b"some text" + bytes(100 << 20)))
    tracemalloc.start()
    try:
        assert "NUL at offset 9 of the decompressed text" in refused(path)
        assert tracemalloc.get_traced_memory()[1] < 90 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.txt", b"fine\n\nbin\0ary", "NUL at offset 9;"),
        ("t.txt", "text".encode("utf-16-le"), "UTF-16, not UTF-8 text: NUL at offset 1"),
        ("t.csv", b"text\na\0b\n", "NUL at offset 6"),
        ("t.jsonl", b'{"text": "a"}\n{"text": "a\\u0000"}\n', "line 2: column 'text' is binary, not text: NUL at"),
        ("t.parquet", WRITE[".parquet"](["a", "b\0"]), "row 2: column 'text' is binary, not text: NUL at character 1"),
    ],
)
def test_binary_is_no_text(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert words in refused(tmp_path / name)


def test_lines_of_json_and_rows_of_csv_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BLOCK", 64)
    monkeypatch.setattr(streams.lines, "__defaults__", (streams.ignore, 1000, False))
    monkeypatch.setattr(formats, "LINE", 1000)
    (tmp_path / "t.jsonl").write_text('{"text": "a"}\n' * 3 + '{"text": "' + "a " * 1000)
    assert "line 4, from offset 42, has more than 1,000 bytes" in refused(tmp_path / "t.jsonl")
    (tmp_path / "t.csv").write_text('text\na\n"never closed\n' + "a line\n" * 1000)
    assert "a row has more than 1,000 characters; is a quote left open?" in refused(tmp_path / "t.csv")
    (tmp_path / "good.csv").write_text("text\n" + "a line\n" * 1000)
    assert len(read(tmp_path / "good.csv")) == 1000


# -- what a tokenizer is given


@pytest.mark.parametrize("mark", ["", "+", "\t"])
def test_pieces_are_bounded_and_join_to_the_document(mark: str) -> None:
    text = mark.join(unbroken(30) for _ in range(10_000)) + mark
    found = list(tokenizer.pieces(text, 1000))
    assert "".join(found) == text and max(map(len, found)) <= 1000 + tokenizer.FAR
    assert len(found) >= 4 and (not mark or all(piece.endswith(mark) for piece in found[:-1]))


def test_cutting_at_other_marks_changes_no_token() -> None:
    texts = ["some words, and more: of them. " * 20]
    words = tokenizer.train(texts, 200)
    long = ",".join(["some", "words", "and", "more"] * 12_000)
    found = list(tokenizer.pieces(long, 1000))
    assert len(found) > 3
    whole = words.encode(long, add_special_tokens=False).ids
    assert [i for piece in found for i in words.encode(piece, add_special_tokens=False).ids] == whole


def test_a_vocabulary_is_not_trained_on_endless_words() -> None:
    """One of a million letters would take hours; to an encoder they are all [UNK]."""
    texts = ["some words and more of them " * 50]
    plain = tokenizer.train(texts, 120).get_vocab()
    assert tokenizer.train([*texts, unbroken(50_000).lower()], 120).get_vocab() == plain
    beside = tokenizer.train([*texts, f"{unbroken(2000)} {'words ' * 500}"], 120)
    assert beside.get_vocab() == tokenizer.train([*texts, "words " * 500], 120).get_vocab()


def test_long_runs_without_blanks_that_are_many_words_are_trained_on() -> None:
    """Chinese has no blanks, and punctuation ends words: nothing is left out there."""
    from tokenizers import normalizers, pre_tokenizers

    parts = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    for text in ("\u4e2d\u6587" * 5000, "{'a':1}," * 1000, "Short Words \u00c9 only"):
        assert tokenizer._learnable(text, *parts) == text


def test_a_text_of_a_parquet_dictionary_is_not_copied_for_every_row(tmp_path: Path) -> None:
    """2 GB of texts in a file of 0.4 MB, and 2 GB in the list of a single row."""
    text = "word " * (8 << 20 >> 2)
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int32()), pa.array([text]))
    pq.write_table(pa.table({"text": texts}), tmp_path / "rows.parquet", dictionary_pagesize_limit=1 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lengths = [len(row["text"]) for _, row in formats.parquet_rows(tmp_path / "rows.parquet", "rows", "text")]
    assert lengths == [len(text)] * 200
    nested = pa.ListArray.from_arrays(pa.array([0, 200]), texts)
    pq.write_table(pa.table({"words": nested}), tmp_path / "list.parquet", dictionary_pagesize_limit=1 << 30)
    with pytest.raises(InputError, match=r"list: a row unpacks to 2,000 MiB"):
        list(formats.parquet_rows(tmp_path / "list.parquet", "list"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000


@pytest.mark.parametrize("dictionary", [True, False])
def test_rows_of_parquet_are_those_that_arrow_gives(tmp_path: Path, dictionary: bool) -> None:
    table = pa.table({
        "text": ["a", None, "b", "a"] * 100, "words": [["x", "y"], [], None, ["x", None]] * 100,
        "n": [1, 2, None, 4] * 100, "raw": [b"1", b"1", None, b""] * 100,
        "struct": [{"a": "z", "b": [1.5]}, None, {"a": None, "b": []}, {"a": "z", "b": None}] * 100,
    })  # fmt: skip
    pq.write_table(table, tmp_path / "x.parquet", use_dictionary=dictionary, row_group_size=150)
    found = [row for _, row in formats.parquet_rows(tmp_path / "x.parquet", "x")]
    assert found == table.to_pylist()


def test_a_table_has_a_limit_when_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MOST_OF_A_TABLE", 1 << 20)
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 300, pa.int32()), pa.array(["word " * 1000]))
    pq.write_table(pa.table({"text": texts}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match="x unpacks to more than"):
        list(formats.parquet_rows(tmp_path / "x.parquet", "x"))
    assert len(list(formats.parquet_rows(tmp_path / "x.parquet", "x", "text"))) == 300  # a corpus is not held in memory


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_a_table_has_a_limit_of_rows(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million equal rows take some kilobytes in a packed file."""
    monkeypatch.setattr(formats, "MOST_ROWS", 300)
    for count in (300, 301):
        (path := tmp_path / f"{count}{suffix}").write_bytes(WRITE[suffix](["x"] * count))
    assert len(list(rows_of(tmp_path / f"300{suffix}"))) == 300
    with pytest.raises(InputError, match=f"301{suffix} has more than 300 rows"):
        list(rows_of(path))
    assert len(read(path)) == 301  # a corpus is not held in memory
