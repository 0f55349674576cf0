"""Files as bytes and lines, plain or compressed: how much is read at once, and what is damaged."""

from __future__ import annotations

import lzma
import os
from pathlib import Path

import pytest
from text_files import DOCUMENTS, PACK, WRITE, read, refused

from workbench.data import streams

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


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("kind", [".txt", ".csv", ".jsonl"])
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
