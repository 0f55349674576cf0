"""A text in slices: the same documents and tokens as in one piece, wherever it is cut, for any number of processes."""

from __future__ import annotations

import io
import json
import lzma
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from text_files import Small, content, make, spec_of

from workbench.data import filters, formats, prepare, preprocessing, sources
from workbench.data.corpus import Corpus
from workbench.data.filters import documents
from workbench.data.prepare import Prepared
from workbench.data.preprocessing import Plan
from workbench.data.sources import BuiltIn, File, Hub, Remote, Source
from workbench.data.streams import RemotePath
from workbench.errors import InputError
from workbench.spec.parts import DataSpec
from workbench.store.cache import differences


def stream(prepared: Prepared) -> list[int]:
    manifest = json.loads((prepared.folder / "manifest.json").read_text())
    return [int(i) for s in manifest["shards"] for i in np.fromfile(prepared.folder / s["name"], manifest["dtype"])]


def facts(prepared: Prepared) -> tuple[object, ...]:
    return prepared.fingerprint, prepared.tokens, prepared.documents, prepared.bytes, prepared.words, prepared.sources


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_slices_change_nothing_of_a_text(book: Path, tmp_path: Path, sliced: Small, share: float) -> None:
    spec = spec_of(book, data__held_out=share)
    whole = make(spec, tmp_path / "whole")
    sliced(50_000)
    cut = make(spec, tmp_path / "cut")
    assert len(list((tmp_path / "cut/slices").iterdir())) > 8
    assert facts(cut) == facts(whole) and stream(cut) == stream(whole)
    assert filters.read(cut.folder) == filters.read(whole.folder) and (share > 0) == bool(filters.read(cut.folder))
    one, other = Corpus(whole, 32, seed=3), Corpus(cut, 32, seed=3)
    assert one.rows == other.rows and (one.batch(5, 64).ids == other.batch(5, 64).ids).all()
    assert not list(differences(tmp_path / "cut")) and not list((tmp_path / "cut/locks").glob("*-*"))


def test_a_large_text_has_a_fingerprint_that_does_not_depend_on_the_slices(
    book: Path, tmp_path: Path, sliced: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text is not read as a whole, and its vocabulary is that of a sample."""
    monkeypatch.setattr(preprocessing, "WHOLE", 1000)
    words = make(spec_of(book), tmp_path / "first").tokenizer  # one slice: as before
    given = spec_of(book, data__tokenizer=str(words))
    made = []
    for size in (30_000, 50_000, 250_000):
        sliced(size)
        made.append(make(given, tmp_path / f"cache {size}"))
    assert len({each.fingerprint for each in made}) == 1 and len({tuple(stream(each)) for each in made}) == 1
    sliced(50_000)
    monkeypatch.setattr(prepare, "HUB_SAMPLE", 50_000)
    sampled = make(spec_of(book), tmp_path / "sampled")
    assert sampled.documents == made[0].documents and sampled.bytes == made[0].bytes
    monkeypatch.setattr(prepare, "HUB_SAMPLE", 30_000)
    assert make(spec_of(book), tmp_path / "other").fingerprint != sampled.fingerprint


def test_faulty_text_ends_in_one_sentence(book: Path, tmp_path: Path, sliced: Small) -> None:
    """Also where a worker process meets it."""
    path = tmp_path / "bad.txt"
    raw = book.read_bytes()
    path.write_bytes(raw[:300_000] + b"\xff" + raw[300_000:])
    words = make(spec_of(book), tmp_path / "words").tokenizer
    sliced(50_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preprocessing, "WHOLE", 1000)  # a text that is not read as a whole before
        with pytest.raises(InputError, match=r"bad.txt.* is not UTF-8: byte 0xff at offset 300000"):
            make(spec_of(path, data__tokenizer=str(words)), tmp_path / "cache", workers=2)
    assert not list((tmp_path / "cache").glob("data/*")) and not list((tmp_path / "cache/slices").glob(".*"))


def test_a_damaged_slice_alone_is_made_again(
    book: Path, tmp_path: Path, sliced: Small, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sliced(50_000)
    made = make(spec_of(book), tmp_path)
    assert {path.name for path in made.folder.iterdir()} == {"manifest.json", "seal.json", "tokenizer"}  # no copy
    before = content(tmp_path)
    slice_ = sorted((tmp_path / "slices").iterdir())[3]
    path = slice_ / "tokens-00000.bin"
    path.write_bytes(path.read_bytes()[:-2] + b"\xff\xff")
    with pytest.raises(InputError, match="has changed since it was prepared"):
        prepare.check(made)
    encoded: list[int] = []
    real = preprocessing._encode
    monkeypatch.setattr(
        preprocessing, "_encode", lambda plan, number, *rest: (encoded.append(number), real(plan, number, *rest))
    )
    assert make(spec_of(book), tmp_path) == made and encoded == [3] and content(tmp_path) == before
    (slice_ / "slice.json").write_text("{}")
    assert make(spec_of(book), tmp_path) == made and encoded == [3, 3] and content(tmp_path) == before
    assert str(slice_) in caplog.text


def test_a_file_that_changes_meanwhile_is_refused(
    book: Path, tmp_path: Path, sliced: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(book.read_bytes())
    sliced(100_000)
    real = preprocessing.encode

    def changing(*args: object) -> None:
        real(*args)  # type: ignore[arg-type]
        os.utime(path, ns=(1, time.time_ns()))

    monkeypatch.setattr(preprocessing, "encode", changing)
    with pytest.raises(InputError, match="was changed while it was read"):
        make(spec_of(path), tmp_path / "cache")


def test_a_plan_of_every_kind_of_source_is_read_as_it_was_written(tmp_path: Path) -> None:
    several = (
        BuiltIn("docs", "ab", 10), BuiltIn("python-code", "cd", 20),
        File(Path(os.fsdecode(b"/texts/caf\xe9")), 30, (1_700_000_000_000_000_001, 2, 3)),
        File(Path("/texts/b.txt"), 5, (7, 8, 9), (10, 15)),
        Remote(RemotePath("s3://bucket/c.txt", 40), 20, "etag", (0, 20)),
        Hub("owner/name", None, "0" * 40),
    )  # fmt: skip
    assert {type(source) for source in several} == set(get_args(Source))
    slices = (several[:2], several[2:4], several[4:])
    plan = Plan(tmp_path, "text-1", DataSpec(corpus=("x",), length=16), tmp_path / "tokenizers" / "wp-1", slices)
    plan.begin()
    assert Plan.read(plan.path) == plan
    assert [plan.folder(1).name, plan.lock(12).name] == ["text-1-00001", "text-1-00012"]
    assert plan.folder(0).parent != plan.lock(0).parent and plan.path.parent.parent == tmp_path


@pytest.mark.parametrize("content", [None, "", "{}", "[1]", '{"key": "x"}'])
def test_what_is_no_plan_is_refused(content: str | None, tmp_path: Path) -> None:
    (tmp_path / "plans").mkdir()
    path = tmp_path / "plans" / "odd.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=r"odd\.json is no plan of a text's slices, which data prepare writes"):
        Plan.read(path)


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


def test_processes_make_the_same_bytes(book: Path, tmp_path: Path, sliced: Small) -> None:
    sliced(50_000)
    make(spec_of(book), tmp_path / "alone")
    make(spec_of(book), tmp_path / "shared", workers=2)
    assert content(tmp_path / "shared") == content(tmp_path / "alone")


COMMAND = """
import sys
from workbench.data import tokenizer
from workbench.data import preprocessing
tokenizer.SAMPLE, preprocessing.SLICE = 200_000, 10_000
from workbench.cli import main
sys.argv = ["workbench", "data", "prepare", "--corpus", sys.argv[1], "--workers", "2", "--json",
            "--set", "encoder.vocab=800", "--set", "batch.size=4", *sys.argv[2:]]
main()
"""


def start(book: Path, cache: Path, filters: Sequence[str]) -> subprocess.Popen[str]:
    """Prepare by two workers, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(book), *filters], env={**os.environ, "WORKBENCH_CACHE": str(cache)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def folders(cache: Path) -> list[Path]:
    """Return the slices and signatures that are complete."""
    return [*cache.glob("slices/[!.]*"), *cache.glob("signatures/[!.]*")]


def workers_of(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


@pytest.mark.slow
@pytest.mark.parametrize("filters", [(), ("--set", "data.near_duplicates=0.8", "--set", "data.min_words=5")])
def test_ten_kills_over_two_workers_change_no_byte(book: Path, tmp_path: Path, filters: Sequence[str]) -> None:
    """By turns a worker, the whole command with its workers, and the command alone, at any time of their work."""
    done = start(book, tmp_path / "calm", filters)
    out, errors = done.communicate(timeout=300)
    assert done.returncode == 0, errors
    cache, draw, kills = tmp_path / "killed", random.Random(5), 0
    pieces = len(folders(tmp_path / "calm"))
    command = start(book, cache, filters)
    while kills < 10:
        count = len(folders(cache))
        wanted = min(count + pieces // 50 + kills % 3, pieces)
        deadline = time.monotonic() + 120
        while command.poll() is None and len(folders(cache)) < wanted:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(draw.random() * 0.05)
        assert command.poll() is None, "the text is too small for this test"
        children = workers_of(command.pid)
        if kills % 3 == 0 and children:
            os.kill(draw.choice(children), signal.SIGKILL)
        elif kills % 3 == 1:
            os.killpg(command.pid, signal.SIGKILL)
            command.communicate(timeout=60)
            command = start(book, cache, filters)
        else:
            command.kill()
            command.communicate(timeout=60)
            command = start(book, cache, filters)
        kills += 1
    again, errors = command.communicate(timeout=300)
    assert command.returncode == 0, errors
    assert json.loads(again)["fingerprint"] == json.loads(out)["fingerprint"]
    assert content(cache) == content(tmp_path / "calm")


def test_a_worker_that_is_stopped_is_not_waited_for_when_others_have_made_all_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(preprocessing, "PATIENCE", 0.3)
    monkeypatch.setattr(preprocessing, "LOOK", 0.05)
    sizes: list[int] = []
    plan = SimpleNamespace(slices=[[SimpleNamespace(size=7)]], path=tmp_path / "plan", folder=lambda _: tmp_path)
    made: list[subprocess.Popen[bytes]] = []

    def stopped(*_: object) -> preprocessing.Child:
        made.append(child := subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        child.send_signal(signal.SIGSTOP)
        return child, io.BytesIO()

    monkeypatch.setattr(preprocessing, "_started", stopped)
    begun = time.monotonic()
    preprocessing._share(plan, 1, sizes.append)  # type: ignore[arg-type]
    assert time.monotonic() - begun < 30 and made[0].returncode == -signal.SIGKILL and sizes == [7]
    assert "a worker does not answer" in caplog.text


@pytest.mark.parametrize(
    ("code", "expected", "words"),
    [
        (2, InputError, "a.txt is no text"),
        (74, OSError, "a.txt is no text"),
        (-9, None, "a worker ended early, with signal 9"),
        (1, None, "a worker ended early, with exit code 1"),
    ],
)
def test_how_a_worker_ended_decides_what_becomes_of_the_others(
    code: int, expected: type[Exception] | None, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Text that cannot be read and a disk that fails end all; one that was killed is replaced by the others."""
    messages = io.BytesIO(b"workbench: a warning before\nworkbench: a.txt is no text\n")
    ended = SimpleNamespace(returncode=code)
    if expected is not None:
        with pytest.raises(expected, match=words):
            preprocessing._judge(ended, messages)  # type: ignore[arg-type]
    else:
        preprocessing._judge(ended, messages)  # type: ignore[arg-type]
        assert [record.getMessage() for record in caplog.records] == ["a warning before", "a.txt is no text", words]
