"""A text that is prepared in slices: the same as in one piece, for any number of processes and kills."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from workbench.data import held_out, prepare, shards, tokenizer
from workbench.data.corpus import Corpus
from workbench.data.prepare import Prepared
from workbench.data.progress_bar import silent
from workbench.data.slices import cutting, encode_slices
from workbench.errors import InputError
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec
from workbench.store.cache import differences

Small = Callable[[int], None]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of 1.2 MB in 4,000 documents, of which some occur twice."""
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 9))) for _ in range(2000)]
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_text("\n\n".join(" ".join(draw.choices(words, k=draw.randint(1, 90))) for _ in range(4000)))
    return path


@pytest.fixture
def sliced(monkeypatch: pytest.MonkeyPatch) -> Small:
    """Set the size of slices."""
    monkeypatch.setattr(tokenizer, "SAMPLE", 200_000)
    return lambda size: monkeypatch.setattr(cutting, "SLICE", size)


def spec_of(path: Path, **changes: object) -> RunSpec:
    base = {"data.corpus": (str(path),), "encoder.vocab": 800, "batch.size": 4, "data.length": 32}
    return resolve("nano", base | {key.replace("__", "."): value for key, value in changes.items()})


def make(spec: RunSpec, cache: Path, workers: int = 1) -> Prepared:
    return prepare.prepare(spec, silent, cache, workers)


def stream(prepared: Prepared) -> list[int]:
    manifest = json.loads((prepared.folder / "manifest.json").read_text())
    return [int(i) for s in manifest["shards"] for i in np.fromfile(prepared.folder / s["name"], manifest["dtype"])]


def content(cache: Path) -> dict[str, str]:
    """The hash of every file of a cache, without those of processes that were killed."""
    kept = [path for path in cache.rglob("*") if path.is_file() and "/." not in str(path.relative_to(cache.parent))]
    return {str(path.relative_to(cache)): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}


def facts(prepared: Prepared) -> tuple[object, ...]:
    return prepared.fingerprint, prepared.tokens, prepared.documents, prepared.bytes, prepared.words, prepared.sources


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_slices_change_nothing_of_a_text(book: Path, tmp_path: Path, sliced: Small, share: float) -> None:
    spec = spec_of(book, data__held_out=share)
    whole = make(spec, tmp_path / "whole")
    sliced(100_000)
    cut = make(spec, tmp_path / "cut")
    assert len(list((tmp_path / "cut/slices").iterdir())) > 8
    assert facts(cut) == facts(whole) and stream(cut) == stream(whole)
    assert held_out.read(cut.folder) == held_out.read(whole.folder) and (share > 0) == bool(held_out.read(cut.folder))
    one, other = Corpus(whole, 32, seed=3), Corpus(cut, 32, seed=3)
    assert one.rows == other.rows and (one.batch(5, 64).ids == other.batch(5, 64).ids).all()
    assert not list(differences(tmp_path / "cut")) and not list((tmp_path / "cut/locks").glob("*-*"))


def test_no_copy_is_made(book: Path, tmp_path: Path, sliced: Small) -> None:
    sliced(100_000)
    made = make(spec_of(book), tmp_path)
    assert {path.name for path in made.folder.iterdir()} == {"manifest.json", "seal.json", "tokenizer"}


def test_a_large_text_has_a_fingerprint_that_does_not_depend_on_the_slices(
    book: Path, tmp_path: Path, sliced: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text is not read as a whole, and its vocabulary is that of a sample."""
    monkeypatch.setattr(cutting, "WHOLE", 1000)
    words = make(spec_of(book), tmp_path / "first").tokenizer  # one slice: as before
    given = spec_of(book, data__tokenizer=str(words))
    made = []
    for size in (60_000, 100_000, 500_000):
        sliced(size)
        made.append(make(given, tmp_path / f"cache {size}"))
    assert len({each.fingerprint for each in made}) == 1 and len({tuple(stream(each)) for each in made}) == 1
    sliced(100_000)
    monkeypatch.setattr(prepare, "HUB_SAMPLE", 50_000)
    sampled = make(spec_of(book), tmp_path / "sampled")
    assert sampled.documents == made[0].documents and sampled.bytes == made[0].bytes
    monkeypatch.setattr(prepare, "HUB_SAMPLE", 30_000)
    assert make(spec_of(book), tmp_path / "other").fingerprint != sampled.fingerprint


def test_the_hash_of_a_text_follows_from_its_parts() -> None:
    documents = [f"document {number % 7}" for number in range(50)]

    def of(part: list[str]) -> tuple[int, int]:
        text = shards.Text()
        assert list(text.counted(part)) == part
        return text.documents, text.joined

    whole = of(documents)[1]
    expected = 0  # as it is defined
    for place, document in enumerate(documents):
        number = int.from_bytes(hashlib.sha256(document.encode()).digest())
        expected += number * shards.BASE ** (len(documents) - 1 - place)
    assert whole == expected % shards.PRIME
    for cuts in ([0, 0, 50], [0, 1, 2, 30, 50], list(range(51))):
        parts = [of(documents[start:end]) for start, end in itertools.pairwise(cuts)]
        assert shards.joined(parts) == whole
    documents[3], documents[4] = documents[4], documents[3]
    assert of(documents)[1] != whole


def test_processes_make_the_same_bytes(book: Path, tmp_path: Path, sliced: Small) -> None:
    sliced(50_000)
    make(spec_of(book), tmp_path / "alone")
    make(spec_of(book), tmp_path / "shared", workers=3)
    assert content(tmp_path / "shared") == content(tmp_path / "alone")


def test_a_damaged_slice_alone_is_made_again(
    book: Path, tmp_path: Path, sliced: Small, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sliced(100_000)
    made = make(spec_of(book), tmp_path)
    before = content(tmp_path)
    slice_ = sorted((tmp_path / "slices").iterdir())[3]
    path = slice_ / "tokens-00000.bin"
    path.write_bytes(path.read_bytes()[:-2] + b"\xff\xff")
    with pytest.raises(InputError, match="has changed since it was prepared"):
        prepare.check(made)
    encoded: list[int] = []
    real = encode_slices._encode
    monkeypatch.setattr(
        encode_slices, "_encode", lambda plan, number, *rest: (encoded.append(number), real(plan, number, *rest))
    )
    assert make(spec_of(book), tmp_path) == made and encoded == [3] and content(tmp_path) == before
    (slice_ / "slice.json").write_text("{}")
    assert make(spec_of(book), tmp_path) == made and encoded == [3, 3] and content(tmp_path) == before
    assert str(slice_) in caplog.text


@pytest.mark.parametrize("workers", [1, 2])
def test_faulty_text_ends_in_one_sentence(book: Path, tmp_path: Path, sliced: Small, workers: int) -> None:
    path = tmp_path / "bad.txt"
    raw = book.read_bytes()
    path.write_bytes(raw[:600_000] + b"\xff" + raw[600_000:])
    words = make(spec_of(book), tmp_path / "words").tokenizer
    sliced(50_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "WHOLE", 1000)  # a text that is not read as a whole before
        with pytest.raises(InputError, match=r"bad.txt.* is not UTF-8: byte 0xff at offset 600000"):
            make(spec_of(path, data__tokenizer=str(words)), tmp_path / "cache", workers)
    assert not list((tmp_path / "cache").glob("data/*")) and not list((tmp_path / "cache/slices").glob(".*"))


def test_a_file_that_changes_meanwhile_is_refused(
    book: Path, tmp_path: Path, sliced: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(book.read_bytes())
    sliced(100_000)
    real = encode_slices.encode

    def changing(*args: object) -> None:
        real(*args)  # type: ignore[arg-type]
        os.utime(path, ns=(1, time.time_ns()))

    monkeypatch.setattr(encode_slices, "encode", changing)
    with pytest.raises(InputError, match="was changed while it was read"):
        make(spec_of(path), tmp_path / "cache")


COMMAND = """
import sys
from workbench.data import tokenizer
from workbench.data.slices import cutting
tokenizer.SAMPLE, cutting.SLICE = 200_000, 20_000
from workbench.cli import main
sys.argv = ["workbench", "data", "prepare", "--corpus", sys.argv[1], "--workers", "2", "--json",
            "--set", "encoder.vocab=800", "--set", "batch.size=4"]
main()
"""


def start(book: Path, cache: Path) -> subprocess.Popen[str]:
    """Prepare by two workers, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(book)], env={**os.environ, "WORKBENCH_CACHE": str(cache)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def workers_of(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


@pytest.mark.slow
def test_ten_kills_over_two_workers_change_no_byte(book: Path, tmp_path: Path) -> None:
    """By turns a worker, the whole command with its workers, and the command alone, at any time of their work."""
    done = start(book, tmp_path / "calm")
    out, errors = done.communicate(timeout=300)
    assert done.returncode == 0, errors
    cache, draw, kills = tmp_path / "killed", random.Random(5), 0
    command = start(book, cache)
    while kills < 10:
        count = len(list(cache.glob("slices/[!.]*")))
        deadline = time.monotonic() + 120
        while command.poll() is None and len(list(cache.glob("slices/[!.]*"))) < min(count + 1 + kills % 3, 60):
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
            command = start(book, cache)
        else:
            command.kill()
            command.communicate(timeout=60)
            command = start(book, cache)
        kills += 1
    again, errors = command.communicate(timeout=300)
    assert command.returncode == 0, errors
    assert json.loads(again)["fingerprint"] == json.loads(out)["fingerprint"]
    assert content(cache) == content(tmp_path / "calm")
