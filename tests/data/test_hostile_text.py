"""Files that would fill memory or keep a processor busy for hours: read in bounded pieces, or refused in a sentence."""

from __future__ import annotations

import resource
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from text_files import PACK, WRITE, read, refused, unbroken

from workbench.data import formats, streams, subwords, tokenizer
from workbench.errors import InputError
from workbench.tasks.common.table_files import rows_of


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
        assert subwords._learnable(text, *parts) == text


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
