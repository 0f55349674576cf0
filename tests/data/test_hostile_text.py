"""Files that would fill memory or keep a processor busy for hours: read in bounded pieces, or refused in a sentence."""

from __future__ import annotations

import gzip
import json
import lzma
import random
import string
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from workbench.data import formats, sources, streams, subwords, tokenizer
from workbench.errors import InputError
from workbench.spec.parts import DataSpec

PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress, ".xz": lambda raw: lzma.compress(raw, preset=0), ".zst": zstandard.ZstdCompressor().compress,
}  # fmt: skip


def read(path: Path) -> list[str]:
    return list(sources.documents(DataSpec(corpus=(str(path),))))


def refused(path: Path) -> str:
    """The message, which must be one line, name the file and be no novel."""
    with pytest.raises(InputError) as caught:
        read(path)
    said = str(caught.value)
    assert "\n" not in said and str(path) in said and len(said) < 400
    return said


@pytest.mark.parametrize("packing", PACK)
def test_a_bomb_of_nuls_is_refused_in_little_memory(tmp_path: Path, packing: str) -> None:
    path = tmp_path / f"bomb.txt{packing}"
    path.write_bytes(PACK[packing](b"some text" + bytes(100 << 20)))
    tracemalloc.start()
    try:
        assert "NUL at offset 9 of the decompressed text" in refused(path)
        assert tracemalloc.get_traced_memory()[1] < 90 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("packing", PACK)
def test_what_unpacks_to_more_than_any_text_is_refused(
    tmp_path: Path, packing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blank lines take as long to read as text does, and a file may hold billions of them."""
    monkeypatch.setattr(streams, "FREE", 1 << 20)
    path = tmp_path / f"bomb.txt{packing}"
    path.write_bytes(PACK[packing](b"\n" * (6 << 20)))
    assert "decompresses to more than 500 times its size" in refused(path)


@pytest.mark.parametrize("packing", PACK)
def test_pieces_are_small_whatever_the_file(tmp_path: Path, packing: str) -> None:
    path = tmp_path / f"text.txt{packing}"
    whole = b"many words " * 500_000
    path.write_bytes(PACK[packing](whole))
    pieces = list(streams.chunks(path))
    assert max(map(len, pieces)) <= streams.BLOCK and b"".join(pieces) == whole


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.txt", b"fine\n\nbin\0ary", "NUL at offset 9;"),
        ("t.txt", "text".encode("utf-16-le"), "UTF-16, not UTF-8 text: NUL at offset 1"),
        ("t.csv", b"text\na\0b\n", "NUL at offset 6"),
        ("t.jsonl", b'{"text": "a"}\n{"text": "a\\u0000"}\n', "line 2: column 'text' is binary, not text: NUL at"),
    ],
)
def test_binary_is_no_text(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert words in refused(tmp_path / name)


def test_binary_in_parquet_is_no_text(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", "b\0"]}), tmp_path / "t.parquet")
    assert "row 2: column 'text' is binary, not text: NUL at character 1" in refused(tmp_path / "t.parquet")


def unbroken(count: int) -> str:
    return "".join(random.Random(0).choices(string.ascii_letters, k=count))


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


def test_parquet_that_says_it_unpacks_to_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "FREE", 1 << 20)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"text": ["word " * 500_000], "id": [1]}), path, compression="zstd")
    assert "decompresses to 2 MiB in 1 rows of column 'text'" in refused(path)
    monkeypatch.setattr(formats, "FREE", 1 << 30)
    monkeypatch.setattr(formats, "LONGEST", 1 << 19)
    assert "decompresses to 2 MiB in 1 rows of column 'text'" in refused(path)


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
    assert (
        tokenizer.train([*texts, f"{unbroken(2000)} {'words ' * 500}"], 120).get_vocab()
        == tokenizer.train([*texts, "words " * 500], 120).get_vocab()
    )


def test_long_runs_without_blanks_that_are_many_words_are_trained_on() -> None:
    """Chinese has no blanks, and punctuation ends words: nothing is left out there."""
    from tokenizers import normalizers, pre_tokenizers

    parts = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    for text in ("\u4e2d\u6587" * 5000, "{'a':1}," * 1000, "Short Words \u00c9 only"):
        assert subwords._learnable(text, *parts) == text
