"""Prepared text: against packing written out in plain Python, and whatever can go wrong on the way."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from workbench.data import built_in_text, prepare, preprocessing, sources, tokenizer
from workbench.data.corpus import Corpus
from workbench.data.prepare import Prepared, bind
from workbench.errors import InputError
from workbench.progress import silent
from workbench.spec.parts import DataSpec
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec
from workbench.store.cache import staged


@pytest.fixture(scope="module")
def texts(workbench_cache: Path) -> list[str]:
    return [entry.text for entry in built_in_text.entries("train")[:600]]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    """A file with short documents and a long one."""
    path = tmp_path_factory.mktemp("book") / "book.txt.xz"
    path.write_bytes(lzma.compress("\n\n".join([*texts[:500], "\n".join(texts[500:])]).encode()))
    return path


@pytest.fixture(scope="module")
def ready(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which the book is prepared, for copies."""
    return make(spec_of(book), tmp_path_factory.mktemp("ready") / "cache").folder.parents[1]


@pytest.fixture
def cache(ready: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ready, tmp_path / "cache"))


def spec_of(*names: Any, **changes: Any) -> RunSpec:
    base = {"data.corpus": tuple(map(str, names)), "encoder.vocab": 1000, "batch.size": 4, "data.length": 32}
    return resolve("nano", base | {key.replace("__", "."): value for key, value in changes.items()})


def make(spec: RunSpec, cache: Path) -> Prepared:
    return prepare.prepare(spec, silent, cache)


def stream(prepared: Prepared) -> list[int]:
    manifest = json.loads((prepared.folder / "manifest.json").read_text())
    return [int(i) for s in manifest["shards"] for i in np.fromfile(prepared.folder / s["name"], manifest["dtype"])]


def plainly(documents: list[str], prepared: Prepared) -> list[int]:
    """The definition: one document after the other, a [SEP] after each."""
    bare = Tokenizer.from_file(str(prepared.tokenizer / "tokenizer.json"))
    return [i for text in documents for i in [*bare.encode(text, add_special_tokens=False).ids, 3]]


def leftovers(cache: Path) -> list[str]:
    return [str(path) for path in cache.glob("*/.*")]


@pytest.mark.parametrize("limits", [{}, {"BATCH": 1, "PIECE": 50}, {"SHARD": 1000, "BATCH": 9000, "PIECE": 7}])
def test_the_stream_is_the_documents_joined(
    book: Path, tmp_path: Path, limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
):
    for name, value in limits.items():
        monkeypatch.setattr(preprocessing, name, value)
    spec = spec_of(book)
    prepared = make(spec, tmp_path / "cache")
    documents = list(sources.documents(spec.data))
    expected = plainly(documents, prepared)
    assert stream(prepared) == expected
    assert prepared.tokens == len(expected) and prepared.documents == len(documents) == 501
    assert prepared.bytes == sum(len(text.encode()) for text in documents)
    made = Corpus(prepared, 32, seed=0)
    rows = [tuple([2, *expected[at : at + 30], 3]) for at in range(0, len(expected) - 29, 30)]
    assert made.rows == len(rows)
    assert sorted(map(tuple, made.batch(0, made.rows).ids.tolist())) == sorted(rows)


def test_a_document_without_tokens_at_its_end_has_one_separator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where a batch ends inside it."""
    monkeypatch.setattr(preprocessing, "BATCH", 1)
    monkeypatch.setattr(preprocessing, "PIECE", 5)
    documents = ["some words of text " * 20 + "\x07 " * 30, "\x07 " * 30, "and more text"] * 9
    (tmp_path / "t.txt").write_text("\n\n".join(documents))
    prepared = make(spec_of(tmp_path / "t.txt", data__length=8), tmp_path / "cache")
    assert stream(prepared).count(3) == 18 and prepared.documents == 27


def test_the_manifest_is_true(book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(preprocessing, "SHARD", 5000)
    prepared = make(spec_of(book), tmp_path / "cache")
    manifest = json.loads((prepared.folder / "manifest.json").read_text())
    assert len(manifest["shards"]) > 3 and {shard["tokens"] for shard in manifest["shards"][:-1]} == {5000}
    for shard in manifest["shards"]:
        raw = (prepared.folder / shard["name"]).read_bytes()
        assert hashlib.sha256(raw).hexdigest() == shard["sha256"] and len(raw) == 2 * shard["tokens"]
    names = {"manifest.json", "seal.json", "tokenizer", *(shard["name"] for shard in manifest["shards"])}
    assert {path.name for path in prepared.folder.iterdir()} == names


def test_the_fingerprint_is_of_the_content_alone(book: Path, cache: Path, tmp_path: Path):
    first = make(spec_of(book), cache)
    elsewhere = tmp_path / "elsewhere" / "renamed.jsonl"
    elsewhere.parent.mkdir()
    documents = list(sources.documents(spec_of(book).data))
    elsewhere.write_text("".join(json.dumps({"body": text}) + "\n" for text in documents))
    moved = spec_of(elsewhere, data__column="body")
    assert make(moved, tmp_path / "other").fingerprint == first.fingerprint
    for other in (spec_of(book, data__lowercase=False), spec_of(book, encoder__vocab=900)):
        assert make(other, cache).fingerprint != first.fingerprint
    for same in (spec_of(book, data__length=16), spec_of(book, seed=5), spec_of(book, batch__size=2)):
        assert make(same, cache).folder == first.folder
    elsewhere.write_text("".join(json.dumps({"body": text}) + "\n" for text in [*documents, "More."]))
    changed = make(moved, tmp_path / "other")
    assert changed.fingerprint != first.fingerprint and changed.documents == first.documents + 1


def test_a_second_run_reads_nothing(book: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sources, "read", lambda *_: pytest.fail("the text was read again"))
    first = make(spec_of(book), cache)
    monkeypatch.chdir(book.parent)
    assert make(spec_of(book.name), cache) == first


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def said(old: str, new: str) -> Callable[[Path], None]:
    """A change that leaves the file readable."""

    def change(path: Path) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return change


def two_words(path: Path) -> None:
    """Two words of the vocabulary change places."""
    raw = json.loads(path.read_text())
    vocab = raw["model"]["vocab"]
    vocab["the"], vocab["of"] = vocab["of"], vocab["the"]
    path.write_text(json.dumps(raw))


# `tests/store/test_cache.py` has every damage to every file of a folder.
DAMAGES = [
    ("tokens-00000.bin", flipped), ("tokenizer/vocab.txt", cut), ("seal.json", Path.unlink),
    ("manifest.json", said('"tokens-00000.bin"', '"../../other/tokens-00000.bin"')),
    ("tokenizer/tokenizer.json", two_words),
]  # fmt: skip


@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_a_damaged_cache_is_made_again(
    book: Path, cache: Path, name: str, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
):
    first = make(spec_of(book), cache)
    expected = stream(first)
    damage(first.folder / name)
    again = make(spec_of(book), cache)
    assert again == first and stream(again) == expected and not leftovers(cache)
    assert str(first.folder) in caplog.text and "made again" in caplog.text


@pytest.mark.parametrize(("name", "damage"), [("tokenizer.json", two_words), ("tokenizer_config.json", Path.unlink)])
def test_a_damaged_vocabulary_is_trained_again(
    book: Path, cache: Path, name: str, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
):
    """As it would be used for a corpus that is read by another column, or after the prepared one was deleted."""
    first = make(spec_of(book), cache)
    (folder,) = (cache / "tokenizers").glob("[!.]*")
    whole = (folder / "tokenizer.json").read_bytes()
    damage(folder / name)
    shutil.rmtree(first.folder)
    assert make(spec_of(book), cache) == first
    assert (folder / "tokenizer.json").read_bytes() == whole and str(folder) in caplog.text


def test_what_changes_after_it_was_opened_is_not_trained_on(book: Path, cache: Path):
    first = make(spec_of(book), cache)
    prepare.check(first)
    flipped(first.folder / "tokenizer/tokenizer.json")
    with pytest.raises(InputError, match=r"has changed since it was prepared \(tokenizer/tokenizer.json.*same command"):
        prepare.check(first, full=True)
    assert make(spec_of(book), cache) == first
    prepare.check(first, full=True)


def test_another_tokenizer_is_not_cut_at_blanks(book: Path, tmp_path: Path, texts: list[str]):
    """A byte-level one, whose tokens hold blanks: it must see whole documents."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bare = Tokenizer(models.BPE(unk_token="<unk>"))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    names = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    bare.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=800, special_tokens=names, show_progress=False))
    roles = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), names, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=bare, **roles).save_pretrained(str(tmp_path / "bpe"))
    spec = spec_of(book, data__tokenizer=str(tmp_path / "bpe"))
    prepared = make(spec, tmp_path / "cache")
    assert stream(prepared) == plainly(list(sources.documents(spec.data)), prepared)
    assert bind(spec, prepared).encoder.vocab == prepared.vocab == 800
    assert make(spec, tmp_path / "cache") == prepared


def test_binding_fills_in_what_the_data_decides(book: Path, ready: Path):
    spec = spec_of(book)
    prepared = make(spec, ready)
    bound = bind(spec, prepared)
    assert (bound.data.fingerprint, bound.encoder.vocab) == (prepared.fingerprint, 1000)
    assert bound.data.special.model_dump() == {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    assert bound.name != spec.name and bind(bound, prepared) == bound


def test_a_small_corpus_has_a_smaller_vocabulary(tmp_path: Path):
    (tmp_path / "t.txt").write_text("a few words of text, repeated. " * 60)
    spec = spec_of(tmp_path / "t.txt", encoder__vocab=5000)
    assert bind(spec, make(spec, tmp_path / "cache")).encoder.vocab < 100


def test_too_small_for_one_batch(tmp_path: Path):
    (tmp_path / "t.txt").write_text("some words " * 100)
    with pytest.raises(InputError, match=r"too small for one batch: its \d+ tokens make \d+ rows of length 32, a ba"):
        make(spec_of(tmp_path / "t.txt", batch__size=64), tmp_path / "cache")


@pytest.mark.parametrize("content", ["", " \n\n \n", "\u200b\x07"])
def test_an_empty_corpus(tmp_path: Path, content: str):
    (tmp_path / "t.txt").write_text(content)
    with pytest.raises(InputError, match="empty: there is no text"):
        make(spec_of(tmp_path / "t.txt"), tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("data/*")) and not leftovers(tmp_path / "cache")


def test_faulty_text_leaves_nothing_half_written(book: Path, tmp_path: Path, texts: list[str]):
    raw = "\n\n".join(texts).encode()
    (tmp_path / "bad.txt").write_bytes(raw + b"\xff")
    with pytest.raises(InputError, match=f"offset {len(raw)}"):
        make(spec_of(book, tmp_path / "bad.txt"), tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("data/*")) and not leftovers(tmp_path / "cache")


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EACCES])
def test_a_full_disk_leaves_nothing(book: Path, tmp_path: Path, fault: int, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any) -> None:
        raise OSError(fault, os.strerror(fault))

    with monkeypatch.context() as patch:
        patch.setattr(preprocessing.Shards, "write", fail)
        with pytest.raises(OSError, match=os.strerror(fault)) as caught:
            make(spec_of(book), tmp_path / "cache")
    assert fault != errno.ENOSPC or Path(caught.value.filename).parent == tmp_path / "cache" / "data"
    assert not list((tmp_path / "cache").glob("data/*")) and not leftovers(tmp_path / "cache")
    assert make(spec_of(book), tmp_path / "cache").tokens > 0


CHILD = """
import signal, sys, time
from workbench.data import preprocessing, tokenizer
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
from workbench.data.prepare import prepare
from workbench.spec.parts import DataSpec
from workbench.spec.presets import resolve
tokenizer.SAMPLE = 200_000
write = preprocessing.Shards.write
def slowly(self, ids):
    write(self, ids)
    time.sleep(float(sys.argv[2]))
preprocessing.Shards.write = slowly
spec = resolve("nano", {"data.corpus": (sys.argv[1],), "encoder.vocab": 1000, "batch.size": 4, "data.length": 32})
print(prepare(spec).fingerprint)
"""


def start(path: Path, cache: Path, pause: float = 0.0) -> subprocess.Popen[str]:
    """Prepare in a process of its own, with a pause after each piece that was written."""
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), str(pause)], env={**os.environ, "WORKBENCH_CACHE": str(cache)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    """Enough text that there is time to interrupt."""
    path = tmp_path_factory.mktemp("large") / "large.txt"
    path.write_text("\n\n".join(texts * 10))
    return path


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_leaves_no_half_cache_and_the_next_run_works(large: Path, tmp_path: Path, sign: int):
    child = start(large, tmp_path, 2)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("data/.*/content/tokens-*.bin")) and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(sign)
    _, errors = child.communicate(timeout=60)
    assert child.returncode != 0 and not list(tmp_path.glob("data/[!.]*"))
    if sign == signal.SIGINT:
        assert "KeyboardInterrupt" in errors and not leftovers(tmp_path)
        return
    child = start(large, tmp_path)
    out, errors = child.communicate(timeout=120)
    assert child.returncode == 0 and len(out.strip()) == 16
    assert "encoding" in errors and len(list(tmp_path.glob("data/*/manifest.json"))) == 1
    assert not leftovers(tmp_path)


def test_two_processes_at_once_do_the_work_once(large: Path, tmp_path: Path):
    children = [start(large, tmp_path) for _ in range(2)]
    results = [child.communicate(timeout=120) for child in children]
    assert [child.returncode for child in children] == [0, 0], results
    assert results[0][0] == results[1][0] and not leftovers(tmp_path)
    assert sum("encoding" in errors for _, errors in results) == 1
    assert sum("another process is preparing" in errors for _, errors in results) == 1


def test_whoever_is_second_keeps_what_is_there(tmp_path: Path):
    """Without locks: the folder of the first stays, the second's is thrown away."""
    barrier = threading.Barrier(2)

    def write(number: int) -> None:
        with staged(tmp_path / "made") as folder:
            (folder / "file").write_text(str(number))
            barrier.wait()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, range(2)))
    assert [path.name for path in tmp_path.iterdir()] == ["made"] and (tmp_path / "made/file").read_text() in "01"


def test_progress_is_told_in_bytes_of_the_files(book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    seen: list[tuple[str, int, int]] = []
    prepare.prepare(spec_of(book), lambda *told: seen.append(told), tmp_path / "cache")
    size = book.stat().st_size
    assert [told[0].split()[0] for told in seen if told[1] == size] == ["reading", "encoding"]
    assert {told[2] for told in seen} == {0, size} and capsys.readouterr() == ("", "")
    prepare.prepare(spec_of(book, encoder__vocab=900), cache=tmp_path / "cache")
    shown = capsys.readouterr()
    assert shown.out == "" and len(shown.err.splitlines()) == 3


def test_a_hub_data_set_is_streamed_once_and_a_bit(texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its beginning is enough for the vocabulary: a large one should not come over the network twice."""
    taken: list[int] = []

    def stream_hub(source: sources.Hub, column: str) -> Any:
        taken.append(0)
        for text in texts:
            taken[-1] += 1
            yield text

    monkeypatch.setattr(sources, "_read_hub", stream_hub)
    monkeypatch.setattr(prepare, "HUB_SAMPLE", 20_000)
    seen: list[tuple[str, int, int]] = []
    spec = spec_of("owner/name", data__revision="a" * 40)
    prepared = prepare.prepare(spec, lambda *told: seen.append(told), tmp_path)
    assert taken[1] == prepared.documents == len(texts) and sum(map(len, texts[: taken[0] - 1])) < 20_000
    assert seen[-1] == ("encoding owner/name", sum(map(len, texts)), 0)


def test_docs_are_prepared_from_their_training_side_only() -> None:
    spec = DataSpec()
    assert list(sources.documents(spec)) == list(built_in_text.documents("train"))
    assert sources.identity(sources.resolve(spec)[0]) == ["docs", built_in_text.info().fingerprint]


def test_the_shard_type_follows_the_vocabulary():
    assert preprocessing.token_type(65536) == np.uint16 and preprocessing.token_type(65537) == np.uint32
    assert preprocessing.token_type(2**32) == np.uint32


def test_the_hash_of_a_text_follows_from_its_parts() -> None:
    documents = [f"document {number % 7}" for number in range(50)]

    def of(part: list[str]) -> tuple[int, int]:
        text = preprocessing.Text()
        assert list(text.counted(part)) == part
        return text.documents, text.joined

    whole = of(documents)[1]
    expected = 0  # as it is defined
    for place, document in enumerate(documents):
        number = int.from_bytes(hashlib.sha256(document.encode()).digest())
        expected += number * preprocessing.BASE ** (len(documents) - 1 - place)
    assert whole == expected % preprocessing.PRIME
    for cuts in ([0, 0, 50], [0, 1, 2, 30, 50], list(range(51))):
        parts = [of(documents[start:end]) for start, end in itertools.pairwise(cuts)]
        assert preprocessing.joined(parts) == whole
    documents[3], documents[4] = documents[4], documents[3]
    assert of(documents)[1] != whole


@given(st.lists(st.lists(st.integers(0, 65535), max_size=20), max_size=8), st.integers(1, 9))
@settings(max_examples=30)
def test_files_hold_the_stream_in_equal_parts(blocks: list[list[int]], size: int) -> None:
    whole = np.array([token for block in blocks for token in block], dtype="<u2")
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(preprocessing, "SHARD", size):
        writer = preprocessing.Shards(Path(folder), np.dtype("<u2"))
        for block in blocks:
            writer.write(np.array(block, dtype=np.int64))
        rows = writer.finish()
        files = [(Path(folder) / row["name"]).read_bytes() for row in rows]
        assert sorted(path.name for path in Path(folder).iterdir()) == [row["name"] for row in rows]
    assert b"".join(files) == whole.tobytes()
    assert [row["tokens"] for row in rows] == [
        len(part) for part in np.split(whole, range(size, len(whole), size)) if len(part)
    ]
    assert [row["sha256"] for row in rows] == [hashlib.sha256(raw).hexdigest() for raw in files]
    assert [row["name"] for row in rows] == [f"tokens-{number:05d}.bin" for number in range(len(rows))]


def test_a_real_file_prepares_as_it_lies_there(real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Some hundred documents of a real corpus, against the plain definition."""
    with lzma.open(real_data / "corpus" / "wiki-en-2015-1of4.txt.xz", "rt", encoding="utf-8") as file:
        documents = file.read(1_500_000).split("\n\n")[:-1]
    (tmp_path / "part.txt").write_text("\n\n".join(documents))
    monkeypatch.setattr(tokenizer, "SAMPLE", 500_000)
    prepared = make(spec_of(tmp_path / "part.txt"), tmp_path / "cache")
    assert prepared.documents == len(documents) > 50
    assert stream(prepared) == plainly(documents, prepared)
