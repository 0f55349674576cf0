"""Every kind of file and packing, in and out again; every mistake in one sentence."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data import formats, sources, streams
from workbench.errors import InputError
from workbench.spec.parts import DataSpec

DOCUMENTS = ["Once upon a time,\nthere was a “naïve” façade.", 'He said: "a, b"; and\tleft.', "Ünïcödé 🤗 日本", "last"]
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": lambda raw: raw,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def as_txt(documents: list[str]) -> bytes:
    return ("\n\n".join(documents) + "\n").encode()


def as_jsonl(documents: list[str]) -> bytes:
    return "".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(documents)).encode()


def as_csv(documents: list[str]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerows([["id", "text"], *enumerate(documents)])
    return out.getvalue().encode()


def as_parquet(documents: list[str]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"id": list(range(len(documents))), "text": documents}), out)
    return out.getvalue()


WRITE = {".txt": as_txt, ".jsonl": as_jsonl, ".csv": as_csv, ".parquet": as_parquet}


def read(*names: Any, **options: Any) -> list[str]:
    return list(sources.documents(DataSpec(corpus=tuple(str(name) for name in names), **options)))


def refused(*names: Any, **options: Any) -> str:
    """The message, which must be one line."""
    with pytest.raises(InputError) as caught:
        read(*names, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("kind", WRITE)
def test_every_kind_in_every_packing(tmp_path: Path, kind: str, packing: str):
    path = tmp_path / f"text{kind}{packing}"
    path.write_bytes(PACK[packing](WRITE[kind](DOCUMENTS)))
    assert read(path) == DOCUMENTS
    done: list[int] = []
    assert list(formats.read(path, "text", done.append)) == DOCUMENTS
    assert sum(done) == path.stat().st_size


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), min_size=1),
       st.integers(1, 40))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_text_is_split_at_blank_lines_wherever_blocks_end(tmp_path_factory: Any, documents: list[str], block: int):
    """Against the plain definition, with blocks of a few bytes."""
    raw = "\n\n".join(documents).encode()
    expected, lines = [], []
    for line in [*raw.decode().split("\n"), ""]:
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


def test_windows_line_ends_byte_order_mark_and_blanks(tmp_path: Path):
    path = tmp_path / "w.txt"
    path.write_bytes("\ufefffirst\r\nline\r\n  \t\r\n\r\nsecond\r\n".encode())
    assert read(path) == ["first\nline", "second"]
    (tmp_path / "w.csv").write_bytes('\ufefftext,n\r\n"a\r\nb",1\r\n'.encode())
    assert read(tmp_path / "w.csv") == ["a\nb"]


def test_a_text_without_blank_lines_is_one_document(tmp_path: Path):
    (tmp_path / "one.txt").write_text("a\nb\nc")
    assert read(tmp_path / "one.txt") == ["a\nb\nc"]


def test_long_text_is_cut_so_that_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(formats, "LONGEST", 1000)
    monkeypatch.setattr(streams, "BLOCK", 256)
    words = [f"wörd{n}" for n in range(2000)]
    (tmp_path / "line.txt").write_text(" ".join(words))
    found = read(tmp_path / "line.txt")
    assert len(found) > 5 and max(map(len, found)) < 3000
    assert " ".join(found).split() == words
    (tmp_path / "unbroken.txt").write_text("é" * 3000)
    assert "".join(read(tmp_path / "unbroken.txt")).replace("\n", "") == "é" * 3000
    (tmp_path / "lines.txt").write_text("\n".join(words))
    assert "\n".join(read(tmp_path / "lines.txt")).split("\n") == words


def test_members_and_padding_of_packed_files(tmp_path: Path):
    for packing in (".gz", ".xz", ".zst"):
        path = tmp_path / f"two.txt{packing}"
        path.write_bytes(PACK[packing](b"one\n\ntw") + PACK[packing](b"o\n"))
        assert read(path) == ["one", "two"]
    (tmp_path / "padded.txt.xz").write_bytes(lzma.compress(b"one") + b"\0" * 8)
    assert read(tmp_path / "padded.txt.xz") == ["one"]


def test_folders_globs_and_several_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "in/deep").mkdir(parents=True)
    (tmp_path / "in/.hidden").mkdir()
    for name, text in [("b.txt", "bee"), ("a.txt", "ay"), ("deep/c.csv", "text\nsee\n"), (".hidden/d.txt", "no")]:
        (tmp_path / "in" / name).write_text(text)
    (tmp_path / "in/notes.md").write_text("not read")
    (tmp_path / "e.jsonl").write_text('{"text": "ee"}\n')
    assert read(tmp_path / "in") == ["ay", "bee", "see"]
    monkeypatch.chdir(tmp_path)
    assert read("in/*.txt", "e.jsonl") == ["ay", "bee", "ee"]
    assert read("e.jsonl", "in") == ["ee", "ay", "bee", "see"]
    assert read("in/**/*.csv") == ["see"]
    assert read("in/a.txt", "in/*.txt", "./in/b.txt") == ["ay", "bee"]
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/f.txt").write_text("of the folder")
    assert read("./docs") == ["of the folder"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read("~/in/a.txt") == ["ay"]
    (tmp_path / "[odd].txt").write_text("odd")
    assert read("[odd].txt") == ["odd"]


def test_nulls_and_empty_documents_are_left_out(tmp_path: Path):
    (tmp_path / "n.jsonl").write_text('{"text": null}\n\n{"text": "  "}\n{"text": "a"}\n')
    pq.write_table(pa.table({"text": ["", None, "b"]}), tmp_path / "n.parquet")
    assert read(tmp_path / "n.jsonl", tmp_path / "n.parquet") == ["a", "b"]


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


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.jsonl", '{"text": "a"}\n{"text": \n', "line 2 is not JSON"),
        ("t.jsonl", '["a"]\n', "line 1 is not a JSON object"),
        ("t.jsonl", '{"text": "a"}\n{"txet": "b"}\n', "line 2 has no column 'text'"),
        ("t.jsonl", '{"text": "\\ud800"}\n', "surrogate"),
        ("t.csv", 'id,text\n1,"a\n', "line 2 cannot be read as CSV"),
        ("t.csv", "id,text\n1,a\n2\n", "line 3 has 1 fields"),
        ("t.md", "text", "a type of file that cannot be read"),
        ("t.txt.bz2", "text", "a type of file that cannot be read"),
    ],
)
def test_faulty_files(tmp_path: Path, name: str, content: str, words: str):
    (tmp_path / name).write_text(content)
    message = refused(tmp_path / name)
    assert words in message and str(tmp_path / name) in message


def test_names_that_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "empty").mkdir()
    assert "no file that can be read" in refused(tmp_path / "empty")
    assert "matches no file" in refused(str(tmp_path / "*.txt"))
    assert "neither 'docs'" in refused("dcos")
    assert "there is no such file" in refused("text/missing.txt.xz")
    assert "HF_HUB_OFFLINE" in refused("someone/something")
    assert "neither" in refused(tmp_path / "none.txt")
    assert refused("x" * 5000)


def test_links_in_a_circle(tmp_path: Path):
    (tmp_path / "a.txt").symlink_to("a.txt")
    with pytest.raises(InputError, match="its symbolic links form a circle"):
        sources.resolve(DataSpec(corpus=(str(tmp_path),)))


@pytest.mark.skipif(os.geteuid() == 0, reason="the super-user may read everything")
def test_no_permission(tmp_path: Path):
    path = tmp_path / "t.txt"
    path.write_text("text")
    path.chmod(0)
    assert "no permission" in refused(path)


def test_no_permission_is_told_by_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "t.txt"
    path.write_text("text")

    def deny(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(streams, "open", deny, raising=False)
    assert str(path) in (message := refused(path)) and "no permission" in message


class Hub:
    """Stands in for the hub: one data set, and a record of what was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Any] = []
        self.rows: Any = datasets.Dataset.from_dict({"title": ["x", "y"], "text": ["one", None]}).to_iterable_dataset()
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", self.info)
        monkeypatch.setattr("datasets.load_dataset", self.load)

    def info(self, name: str, revision: str | None = None, timeout: float | None = None) -> Any:
        self.asked.append(("info", name, revision))
        if name == "no/network":
            raise ConnectionError("no route to the hub\nmore")
        return SimpleNamespace(sha="c0ffee")

    def load(self, name: str, config: str | None, **options: Any) -> Any:
        self.asked.append((name, config, options))
        return self.rows


def test_hub_names_are_streamed_at_a_commit(monkeypatch: pytest.MonkeyPatch):
    hub = Hub(monkeypatch)
    assert read("owner/name:part", revision="v2") == ["one"]
    assert hub.asked == [
        ("info", "owner/name", "v2"),
        ("owner/name", "part", {"split": "train", "revision": "c0ffee", "streaming": True}),
    ]
    message = refused("owner/name", column="body")
    assert "'title', 'text'" in message and "owner/name" in message
    assert "no route to the hub" in refused("no/network")
    commit = "a" * 40
    assert sources.resolve(DataSpec(corpus=("owner/name",), revision=commit)) == [
        sources.Hub("owner/name", None, commit)
    ]


def test_a_commit_seen_before_is_known_offline(monkeypatch: pytest.MonkeyPatch):
    Hub(monkeypatch)
    spec = DataSpec(corpus=("owner/seen",), revision="main")
    found = sources.resolve(spec)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert sources.resolve(spec) == found
    assert "HF_HUB_OFFLINE" in refused("owner/never-seen")


def test_a_local_folder_goes_before_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hub = Hub(monkeypatch)
    (tmp_path / "owner/name").mkdir(parents=True)
    (tmp_path / "owner/name/a.txt").write_text("local")
    monkeypatch.chdir(tmp_path)
    assert read("owner/name") == ["local"] and hub.asked == []


def test_real_files_are_read_as_the_readme_says(real_data: Path):
    path = real_data / "corpus" / "gutenberg-prose.txt.xz"
    with lzma.open(path, "rt", encoding="utf-8") as file:
        start = file.read(6_000_000).split("\n\n")
    found = sources.documents(DataSpec(corpus=(str(path),)))
    for expected in start[:-1]:
        assert next(found) == expected
    assert len(start) > 5 and sys.getsizeof(expected) > 1000
