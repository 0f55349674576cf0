"""What is read of a file, folder, glob or hub name: every file with text, and the name of every other one."""

from __future__ import annotations

import glob
import gzip
import json
import lzma
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from text_files import DOCUMENTS, PACK, WRITE, as_csv, as_parquet, read, refused

from workbench.data import formats, prepare, preprocessing, sources, streams
from workbench.errors import InputError
from workbench.progress import silent
from workbench.spec.parts import DataSpec
from workbench.spec.presets import resolve


def lines_of(*texts: str) -> bytes:
    return "".join(json.dumps({"text": text, "url": "u"}) + "\n" for text in texts).encode()


def put(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def name_alone(value: str | bytes) -> str:
    """Return the name of a case without its content: packed by gzip, it would be another one every second."""
    return value if isinstance(value, str) else ""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((f"c4-train.00000-of-00512.json{packing}", pack(lines_of("a b", "c"))) for packing, pack in PACK.items()),
        ("part-00000", lines_of("a b", "c")),
        ("part-00001.gz", gzip.compress(b"a b\n\nc\n")),
        ("AA/wiki_00", b"a b\n\nc\n"),
        ("wiki.00", b"\xef\xbb\xbfa b\n\nc"),
        ("c4.00000-of-00003", lines_of("a b", "c")),
        ("a.jsonl-00000-of-00002", lines_of("a b", "c")),
        ("a.csv-00001-of-00002", as_csv(["a b", "c"])),
        ("b.TXT-0-of-9", b"a b\n\nc"),
        ("A.JSONL.GZ", gzip.compress(lines_of("a b", "c"))),
        ("data.Parquet", as_parquet(["a b", "c"])),
        ("rows", as_parquet(["a b", "c"])),
        ("long.json", lines_of("a b", "c", "x " * 50_000)),
        ("one.json", b'{"url": "u", "text": "a b"}'),
        ("spaces.json", b'\n  {"text": "a b"}\n\n'),
    ],
    ids=name_alone,
)
def test_text_under_many_names_is_read(tmp_path: Path, name: str, content: bytes, caplog: pytest.LogCaptureFixture):
    put(tmp_path, {f"in/{name}": content, "in/.b.txt": b"hidden"})
    expected = ["a b", "c"][: 1 if name in ("one.json", "spaces.json") else 2]
    assert read(tmp_path / "in")[:2] == read(tmp_path / "in" / name)[:2] == expected
    assert read(tmp_path / "in" / "**" / "*")[:2] == expected
    assert ": .b.txt is not read" in caplog.text and name.rpartition("/")[2] not in caplog.text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("README", b"a text\n"), ("License", b"MIT"), ("_SUCCESS", b""), ("SHA256SUMS", b"0 a"), ("README.md", b"# A"),
        ("dataset_infos.json", b'{"default": {"text": 1}}'), ("x/state.json", b'{"text": 1}'),
        ("pretty.json", b'{\n "text": "a"\n}'), ("array.json", b'[{"text": "a"}]'), ("meta.json", b'{"source": "s"}'),
        ("binary", b"\0\1"), ("latin", "æ ø å".encode("latin-1")), ("a.arrow", b"ARROW1"), ("b.txt.lz4", b"x"),
        ("c.tar.gz", gzip.compress(b"x")), (".DS_Store", b"x"), ("deep/.hidden.txt", b"x"), ("more", b"../elsewhere"),
        ("a.txt~", b"first"),
    ],
    ids=name_alone,
)  # fmt: skip
def test_a_file_that_is_not_read_is_named(tmp_path: Path, name: str, content: bytes, caplog: pytest.LogCaptureFixture):
    put(tmp_path, {"in/a.txt": b"first", f"in/{name}": content, "elsewhere/b.txt": b"second"})
    assert read(tmp_path / "in") == ["first"]
    assert f"corpus folder {tmp_path / 'in'}: {name} is not read" in caplog.text


def test_a_file_whose_name_is_not_utf8_is_read_under_a_name_that_records_can_contain(tmp_path: Path):
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_bytes(b"text")
    assert read(tmp_path) == ["text"]
    assert [sources.name_of(each) for each in sources.resolve(DataSpec(corpus=(str(tmp_path),)))] == ["caf\ufffd.txt"]


def test_many_files_that_are_not_read_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    names = [f"{number}.md" for number in range(10, 40)] + [f"{number}.arrow" for number in range(3)] + ["LICENSE"]
    put(tmp_path, {"a.txt": b"first", ".git/a.txt": b"x"} | dict.fromkeys(names, b"x"))
    assert read(tmp_path) == ["first"]
    assert "35 of 36 files (30 .md, 3 .arrow, 2 without a suffix), such as .git, 0.arrow, " in caplog.text


def test_single_files_of_unknown_content_are_refused(tmp_path: Path):
    link = b"version https://git-lfs.github.com/spec/v1\noid sha256:0a\nsize 9\n"
    put(tmp_path, {"binary": b"\0", "x.gz": b"not gzip", "a.json": b'{"body": "x"}', "b.md": b"x", "in/b.txt": link})
    assert "b.txt is a pointer of Git LFS" in refused(tmp_path / "in")
    put(tmp_path, {"c/a.txt": b"x", "c/b.json.gz": gzip.compress(b'{"body": "x"}\n{"body": "y"}\n')})
    assert "no column 'text'" in refused(tmp_path / "c")
    assert "cannot be read" in refused(tmp_path / "binary") and "not gzip" in refused(tmp_path / "x.gz")
    assert "no column 'text'; its columns are 'body'" in refused(tmp_path / "a.json")
    assert read(tmp_path / "a.json", column="body") == ["x"]
    assert "matches no file that can be read" in refused(tmp_path / "b*")


def test_links_to_files_and_folders_are_followed_and_cycles_end(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    put(tmp_path, {"in/a.txt": b"a", "in/z/b.txt": b"b", "out/deep/c.txt": b"c", "out/.d.txt": b"d", "e": b"e"})
    for link, target in {
        "in/f.txt": "../e", "in/again": "z", "in/out": "../out", "in/self": ".", "out/up": "..",
        "in/z/back": "../../in", "out/deep/in": "../../in", "in/gone": "nowhere",
    }.items():  # fmt: skip
        (tmp_path / link).symlink_to(target)
    assert read(tmp_path / "in") == ["a", "e", "c", "b"]
    assert "gone, out/.d.txt, out/up are not read" in caplog.text
    (tmp_path / "in/gone.txt").symlink_to("nowhere")
    assert "gone.txt cannot be read" in refused(tmp_path / "in")


def test_the_layout_of_the_hubs_cache(tmp_path: Path):
    """In a folder of the hub's cache, each file is a link to a file that is named by its hash."""
    hub = put(tmp_path / "datasets--a--b", {"blobs/0a": gzip.compress(lines_of("a")), "refs/main": b"c0ffee"})
    snapshot = hub / "snapshots/c0ffee"
    (snapshot / "en").mkdir(parents=True)
    (snapshot / "en/c4-train.00000-of-00001.json.gz").symlink_to("../../../blobs/0a")
    assert read(snapshot) == read(snapshot / "en/*") == read(snapshot / "en/c4-train.00000-of-00001.json.gz") == ["a"]
    assert [sources.name_of(each) for each in sources.resolve(DataSpec(corpus=(str(snapshot), str(snapshot / "en"))))] \
        == ["c4-train.00000-of-00001.json"]  # fmt: skip
    assert f"name one snapshot in it: {snapshot}" in refused(hub)


def test_folders_that_a_glob_matches_are_named_unless_their_files_match(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    put(tmp_path, {"in/a.txt": b"a", "in/AA/b.txt": b"b", "in/c.md": b"c"})
    assert read(tmp_path / "in/*") == ["a"]
    assert f"{tmp_path}/in/AA, {tmp_path}/in/c.md are not read" in caplog.text
    assert read(tmp_path / "in/**") == ["b", "a"]
    assert f"'{tmp_path}/in/**': {tmp_path}/in/c.md is not read" in caplog.text


def test_a_glob_follows_no_link_to_a_folder_above_it(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    put(tmp_path, {"in/a.txt": b"a", "in/deep/b.txt": b"b", "other/c.txt": b"c"})
    (tmp_path / "in/deep/up").symlink_to("../..")
    assert read(tmp_path / "in/**") == read(tmp_path / "in/**/*.txt") == ["a", "b"]
    assert f"{tmp_path}/in/deep/up is not read" in caplog.text


CLOSED = """
import sys
from workbench.data import sources
from workbench.errors import InputError
from workbench.spec.parts import DataSpec
for name in sys.argv[1:]:
    try:
        print([source.path.name for source in sources.resolve(DataSpec(corpus=(name,)))])
    except InputError as error:
        print(error)
"""


@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv, of util-linux, takes root's rights away")
def test_a_folder_without_permission_is_refused_and_not_left_out(tmp_path: Path):
    put(tmp_path, {"in/a.txt": b"a", "in/closed/b.txt": b"b", "c/closed/d.txt": b"d", "links/e.txt": b"e"})
    (tmp_path / "links/link").symlink_to("../c/closed/d.txt")
    for folder in ("in/closed", "c/closed"):
        (tmp_path / folder).chmod(0)
    root = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    names = [f"{tmp_path}/{name}" for name in ("in", "in/**", "in/**/*.txt", "in/*/*.txt", "in/*.txt", "links/*")]
    done = subprocess.run([*root, sys.executable, "-c", CLOSED, *names], capture_output=True, text=True, check=False)
    *closed, beside, linked = done.stdout.splitlines()
    assert closed == [f"corpus folder {tmp_path}/in/closed cannot be read: Permission denied"] * 4, done.stderr
    assert (beside, linked) == ("['a.txt']", "['e.txt']") and "links/link is not read" in done.stderr
    for folder in ("in/closed", "c/closed"):
        (tmp_path / folder).chmod(0o700)


def test_slices_of_a_folder_give_the_same_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    texts = [f"sentence number {number} is here" for number in range(600)]
    mac = "\r\r".join(texts[400:]).encode()
    files = {"a.json": lines_of(*texts[:200]), "wiki_00": lines_of(*texts[200:400]), "wiki_01": mac}
    folder = put(tmp_path / "in", files)
    spec = resolve("nano", {"data.corpus": str(folder), "encoder.vocab": 200, "batch.size": 2, "data.length": 16})
    whole = prepare.prepare(spec, silent, tmp_path / "whole")
    assert whole.documents == 600 and whole.sources == {"a.json": 1000, "wiki_00": 1000, "wiki_01": 1000}
    monkeypatch.setattr(preprocessing, "SLICE", 2000)
    assert len(preprocessing.cut(sources.resolve(spec.data))) > 10
    parts = prepare.prepare(spec, silent, tmp_path / "parts")
    assert (parts.fingerprint, parts.sources) == (whole.fingerprint, whole.sources)


@pytest.mark.parametrize("how", ["in place", "renamed", "folders exchanged"])
def test_a_text_of_the_same_size_and_time_is_not_taken_for_the_earlier_one(tmp_path: Path, how: str):
    put(tmp_path, {"in/a.txt": b"one\n\ntwo", "other/a.txt": b"six\n\nten"})
    for path in ("in/a.txt", "other/a.txt"):
        os.utime(tmp_path / path, (1e9, 1e9))
    spec = DataSpec(corpus=(str(tmp_path / "in"),))
    before = sources.resolve(spec)
    sources.check_unchanged(before)
    if how == "in place":
        (tmp_path / "in/a.txt").write_bytes(b"six\n\nten")
        os.utime(tmp_path / "in/a.txt", (1e9, 1e9))
    elif how == "renamed":
        (tmp_path / "other/a.txt").rename(tmp_path / "in/a.txt")
    else:
        (tmp_path / "in").rename(tmp_path / "old")
        (tmp_path / "other").rename(tmp_path / "in")
    after = sources.resolve(spec)
    assert [sources.identity(each)[:4] for each in before] == [sources.identity(each)[:4] for each in after]
    assert [sources.identity(each) for each in before] != [sources.identity(each) for each in after]
    if how == "in place":
        with pytest.raises(InputError, match="was changed while it was read"):
            sources.check_unchanged(before)


def folder_of(path: Path, **texts: str) -> Path:
    path.mkdir(parents=True)
    for name, text in texts.items():
        name = name.replace("__", ".")
        raw = text.encode()
        (path / name).write_bytes(lzma.compress(raw) if name.endswith(".xz") else raw)
    return path


def test_sources_are_read_packed_or_not_without_dev_and_test(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = folder_of(
        tmp_path / "babylm", childes__train="one two\nthree\n", bnc_spoken__train__xz="four\n\nfive six seven\n",
        childes__dev="held", childes__test__xz="out",
    )  # fmt: skip
    assert read(path) == ["four", "five six seven", "one two\nthree"]
    assert "childes.dev, childes.test.xz are not read" in caplog.text and caplog.text.count("not read") == 1
    assert sources.is_babylm(DataSpec(corpus=(str(path),)))
    assert sources.is_babylm(DataSpec(corpus=(str(path / "*.train"),)))
    assert not sources.is_babylm(DataSpec(corpus=("docs",)))


def test_words_are_told_by_source_and_a_source_without_text_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder_of(
        tmp_path / "babylm", childes__train="what is that ?\n" * 300, bnc_spoken__train__xz="yes  no\n" * 200,
        subs__train="\n",
    )  # fmt: skip
    spec = resolve("nano", {"data.corpus": str(path), "encoder.vocab": 60, "batch.size": 2, "data.length": 16})
    prepared = prepare.prepare(spec, silent, tmp_path / "cache")
    assert prepared.sources == {"bnc_spoken.train": 400, "childes.train": 1200} and prepared.words == 1600
    assert prepare.prepare(spec, silent, tmp_path / "cache").sources == prepared.sources  # from the cache
    assert "there is no text in subs.train" in caplog.text


def test_folders_that_can_be_meant_in_two_ways_are_refused(tmp_path: Path) -> None:
    mixed = folder_of(tmp_path / "mixed", childes__train="a", notes__txt="b")
    with pytest.raises(InputError, match=r"BabyLM's childes\.train and other text, notes\.txt; move one"):
        read(mixed)
    assert read(mixed / "*.train") == ["a"]
    folder_of(tmp_path / "both" / "train_10M", childes__train="a")
    folder_of(tmp_path / "both" / "train_100M", childes__train="a b")
    with pytest.raises(InputError, match=r"childes\.train twice, as .*train_100M/childes\.train and as .*train_10M/"):
        read(tmp_path / "both")
    with pytest.raises(InputError, match=r"twice, as .*/childes\.train and as .*/childes\.train\.xz; .*move one"):
        read(folder_of(tmp_path / "packed", childes__train="a", childes__train__xz="a"))
    with pytest.raises(InputError, match="no file that can be read"):
        read(folder_of(tmp_path / "held", childes__dev="a"))


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
    assert "".join(found).replace("\n", "") == text.replace("\n", "")


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

    monkeypatch.setattr(streams, "open", deny, raising=False)
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


def test_real_text_of_babylms_sources(real_data: Path, tmp_path: Path) -> None:
    """The counted words are those that the description of the data states, in millions."""
    for name in ("simple_wiki", "gutenberg", "wiki_en_topics"):
        raw = (real_data / "text_babylm_tiny" / f"{name}.txt.xz").read_bytes()
        (tmp_path / f"{name}.train.xz").write_bytes(raw)
    counts = [sum(len(each.split()) for each in read(file)) for file in sorted(tmp_path.iterdir())]
    assert [round(count / 1e6, 1) for count in counts] == [2.3, 1.3, 1.0]


def test_real_files_are_read_as_the_readme_says(real_data: Path):
    path = real_data / "corpus" / "gutenberg-prose.txt.xz"
    with lzma.open(path, "rt", encoding="utf-8") as file:
        start = file.read(6_000_000).split("\n\n")
    found = sources.documents(DataSpec(corpus=(str(path),)))
    for expected in start[:-1]:
        assert next(found) == expected
    assert len(start) > 5 and sys.getsizeof(expected) > 1000
