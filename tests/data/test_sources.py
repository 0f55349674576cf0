"""Every kind of file and packing, in and out again; every mistake in one sentence."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from text_files import DOCUMENTS, PACK, WRITE, read, refused

from workbench.data import formats, remote, sources, streams
from workbench.errors import InputError
from workbench.spec.parts import DataSpec


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("kind", WRITE)
def test_every_kind_in_every_packing(tmp_path: Path, kind: str, packing: str):
    path = tmp_path / f"text{kind}{packing}"
    path.write_bytes(PACK[packing](WRITE[kind](DOCUMENTS)))
    assert read(path) == DOCUMENTS
    done: list[int] = []
    assert list(formats.read(path, "text", done.append)) == DOCUMENTS
    assert sum(done) == path.stat().st_size


def test_windows_line_ends_byte_order_mark_and_blanks(tmp_path: Path):
    path = tmp_path / "w.txt"
    path.write_bytes("\ufefffirst\r\nline\r\n  \t\r\n\r\nsecond\r\n".encode())
    assert read(path) == ["first\nline", "second"]
    (tmp_path / "w.csv").write_bytes('\ufefftext,n\r\n"a\r\nb",1\r\n'.encode())
    assert read(tmp_path / "w.csv") == ["a\nb"]
    (tmp_path / "one.txt").write_text("a\nb\nc")
    assert read(tmp_path / "one.txt") == ["a\nb\nc"]


@pytest.mark.parametrize("text", [" ".join(f"wörd{n}" for n in range(2000)), "é" * 3000, "wörd\n" * 2000])
def test_long_text_is_cut_so_that_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str):
    monkeypatch.setattr(formats, "LONGEST", 1000)
    monkeypatch.setattr(streams, "BLOCK", 256)
    (tmp_path / "t.txt").write_text(text)
    found = read(tmp_path / "t.txt")
    assert len(found) > 1 and max(map(len, found)) < 3000
    assert [part for part in found for part in part.split()] == text.split() or "".join(found) == text


def test_a_glob_enters_a_folder_once_however_many_links_lead_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two links to a folder from within it would make 2 ** 40 paths."""
    monkeypatch.chdir(tmp_path)
    for name in ("in/a.txt", "in/deep/b.txt", "in/deep/c.md", "in/.hidden/d.txt", "other/en/e.txt", "in/[x]/f.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "in/other").symlink_to(tmp_path / "other")
    patterns = ["**", "**/*", "in/**/*.txt", f"{tmp_path}/i?/**", "in/**/en/*", "**/**/b.txt", "*/**/de*/*", "in/*.txt"]
    for pattern in patterns:
        expected = {os.path.realpath(path) for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)}
        assert {os.path.realpath(p) for p in sources._matches(pattern) if os.path.isfile(p)} == expected, pattern
    for name in ("one", "two"):
        (tmp_path / "in" / name).symlink_to(tmp_path / "in")
    found = sources._resolve("in/**/*.txt", None, "text")
    names = {source.path.name for source in found if isinstance(source, sources.File)}
    assert names == {"a.txt", "b.txt", "e.txt", "f.txt"}


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
        ("t.txt.lz4", "text", "a type of file that cannot be read"),
        ("t.json", '{\n "text": "a"\n}', "a type of file that cannot be read"),
        ("t.txt.bz2", "text", "is damaged or not bzip2"),
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


def test_no_permission_is_told_by_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "t.txt"
    path.write_text("text")

    def deny(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(remote, "open", deny, raising=False)
    assert str(path) in (message := refused(path)) and "no permission" in message


class Hub:
    """Stands in for the hub: one data set, and a record of what was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Any] = []
        self.rows: Any = datasets.Dataset.from_dict({"title": ["x", "y"], "text": ["one", None]}).to_iterable_dataset()
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
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
    found = sources.resolve(DataSpec(corpus=("owner/name",), revision=commit))
    assert found == [sources.Hub("owner/name", None, commit)]


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
