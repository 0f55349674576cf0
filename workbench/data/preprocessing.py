"""Large text encoded in slices, by any number of processes and machines, which share one plan.

    CACHE/slices/KEY-00007/: tokens-00000.bin slice.json seal.json, and held-out.jsonl where text is held out
    CACHE/signatures/KEY-00007/: hashes.bin places.bin repeated.bin slice.json seal.json, of a plan of signatures

A slice has about SLICE bytes. A cut is where a document ends whatever is read before it: after an empty line of plain
text, after a line of JSON, between row groups of Parquet, between files. So the documents of all slices, one after the
other, are the documents of the text, and the same sources are always cut in the same places. CSV, whose quoted fields
may hold line ends, and compressed files are not cut, nor are data sets of the hub.

What a slice holds depends on its text and the vocabulary alone. A process that is killed leaves no part of a slice
that counts, and its lease is taken over.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from workbench.data import filters, formats, near_duplicates, sources, tokenizer
from workbench.data.filters import Removed, documents, unsuitable
from workbench.data.model_files import in_time
from workbench.data.near_duplicates import DUPLICATES, FACTS, REPEATED, flags
from workbench.data.sources import File, Hub, Remote, Source, check_unchanged, size_of
from workbench.data.streams import BLOCK, Advance, head, ignore, only_cr, opened, packing_of
from workbench.data.tokenizer import pieces
from workbench.errors import InputError, LeaseHeld, one_line
from workbench.spec.host import threads_for_each
from workbench.spec.parts import DataSpec
from workbench.store.cache import checked_entry, discard, is_whole, make_folder, staged, write_entry
from workbench.store.lease import acquire

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

# ----------------------------------------
# Encoding of documents to token ids in shard files, on all cores, while text is read and ids are written.

SHARD = 1 << 28  # tokens in a shard file
BATCH = 1 << 21  # characters encoded at once
PIECE = 1 << 14  # characters of a long document encoded by one core
PRIME = 2**255 - 19
BASE = int.from_bytes(hashlib.sha256(b"documents of a text").digest()) % PRIME  # any number that nobody chose


def token_type(vocab: int) -> np.dtype[Any]:
    """Return uint16 if it holds every token id, else uint32."""
    return np.dtype("<u2" if vocab <= 1 << 16 else "<u4")


@dataclass
class Text:
    """Number, bytes and hashes of the documents that pass through `counted`.

    `hash` is the SHA-256 of all documents. `joined` is the sum of each document's SHA-256 times BASE to the power of
    the number of documents after it, modulo PRIME, which follows from the parts of a text wherever it is cut.
    """

    hash: Any = field(default_factory=hashlib.sha256)
    documents: int = 0
    bytes: int = 0
    joined: int = 0

    def counted(self, documents: Iterable[str]) -> Iterator[str]:
        """Yield the documents unchanged, and count and hash each."""
        for document in documents:
            raw = document.encode("utf-8")
            self.hash.update(raw + b"\0")
            self.joined = (self.joined * BASE + int.from_bytes(hashlib.sha256(raw).digest())) % PRIME
            self.documents += 1
            self.bytes += len(raw)
            yield document


def joined(parts: Iterable[tuple[int, int]]) -> int:
    """Return `Text.joined` of a text from the numbers of documents and the `joined` of its parts, in order."""
    total = 0
    for count, part in parts:
        total = (total * pow(BASE, count, PRIME) + part) % PRIME
    return total


@dataclass
class Shards:
    """A writer of token ids to tokens-00000.bin, tokens-00001.bin ..., which `cache.staged` flushes to disk."""

    folder: Path
    dtype: np.dtype[Any]
    done: list[dict[str, Any]] = field(default_factory=list)
    file: Any = None
    hash: Any = field(default_factory=hashlib.sha256)
    tokens: int = 0

    def write(self, ids: NDArray[Any]) -> None:
        """Append ids (n,) to the stream, and begin a new file where one is full."""
        while len(ids):
            if self.file is None:
                self.file = open(self.folder / f"tokens-{len(self.done):05d}.bin", "wb")  # noqa: SIM115 - until close
                self.hash, self.tokens = hashlib.sha256(), 0
            part, ids = ids[: SHARD - self.tokens], ids[SHARD - self.tokens :]
            raw = part.astype(self.dtype, copy=False).tobytes()
            self.file.write(raw)
            self.hash.update(raw)
            self.tokens += len(part)
            if self.tokens == SHARD:
                self.finish()

    def finish(self) -> list[dict[str, Any]]:
        """Close the last shard, and return name, number of tokens and SHA-256 of every shard."""
        if self.file is not None:
            self.file.close()
            shard = {"name": Path(self.file.name).name, "tokens": self.tokens, "sha256": self.hash.hexdigest()}
            self.done.append(shard)
            self.file = None
        return self.done

    close = finish  # of `contextlib.closing`


def encode(documents: Iterable[str], encoder: Tokenizer, sep: int, shards: Shards, name: str) -> None:
    """Write the token ids of documents to shards, while the next batch is read. Raises InputError as `in_time`."""
    batches = _batches(documents, _cuttable(encoder))
    writing: Future[bool] | None = None
    begun = False  # whether a document that goes on in the next batch has ids
    with ThreadPoolExecutor(2) as threads:
        coming = threads.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = threads.submit(next, batches, None)
            texts, ends = batch
            work = partial(encoder.encode_batch_fast, texts, add_special_tokens=False)
            encodings = in_time(work, sum(map(len, texts)), name, mute=False)
            if writing is not None:
                begun = writing.result()
            writing = threads.submit(_write, encodings, ends, sep, shards, begun)
        if writing is not None:
            writing.result()


def _batches(documents: Iterable[str], cut: bool) -> Iterator[tuple[list[str], list[bool]]]:
    """Yield texts of about BATCH characters in all, and for each text whether it is the end of a document.

    A long document that may be cut goes on in the next batches, since ids in the library's form take 100 bytes each.
    """
    texts: list[str] = []
    ends: list[bool] = []
    size = 0
    for document in documents:
        parts = list(pieces(document, PIECE)) if cut else [document]
        for number, part in enumerate(parts, 1):
            texts.append(part)
            ends.append(number == len(parts))
            size += len(part)
            if size >= BATCH:
                yield texts, ends
                texts, ends, size = [], [], 0
    if texts:
        yield texts, ends


def _cuttable(encoder: Tokenizer) -> bool:
    """Return whether cuts at blanks leave the tokens of a text unchanged, so that all cores can encode one book."""
    raw = json.loads(encoder.to_str())
    normalizer, splitter = raw["normalizer"] or {}, raw["pre_tokenizer"] or {}
    if splitter.get("type") == "BertPreTokenizer":
        return bool(normalizer.get("type") == "BertNormalizer")
    # Of the other vocabularies that are trained here: a blank is where words are split, and no step looks beyond it.
    steps = {step["type"] for step in normalizer.get("normalizers", ({"type": "another"},))}
    first = splitter.get("pretokenizers", ({},))[0].get("type")
    return first == "WhitespaceSplit" and steps <= {"NFC", "NFD", "StripAccents", "Lowercase"}


def _write(encodings: list[Encoding], ends: list[bool], sep: int, shards: Shards, begun: bool) -> bool:
    """Write a batch's ids, `sep` after each document with ids; `begun` and the result tell if one goes on."""
    parts: list[NDArray[Any]] = []
    separator = np.array([sep], dtype=shards.dtype)
    has_ids = begun
    for encoding, end in zip(encodings, ends, strict=True):
        ids = encoding.ids
        has_ids = has_ids or bool(ids)
        parts.append(np.array(ids, dtype=shards.dtype))
        if end and has_ids:
            parts.append(separator)
        has_ids = has_ids and not end
    shards.write(np.concatenate(parts))
    return has_ids


# ----------------------------------------
# Slices, and the processes that encode them.

SLICE = 256 << 20  # bytes of input; 70 million tokens, which one core encodes in one to two minutes
WHOLE = 16 << 30  # bytes; text up to here has the vocabulary and fingerprint that it had before slices were introduced
LOOK = 0.2  # seconds between two looks for slices that other processes have finished
PAUSE = 0.5  # seconds between two looks at the worker processes
PATIENCE = 10.0  # seconds for a process to end when nothing is left to do, or after SIGTERM
Child = tuple[subprocess.Popen[bytes], IO[bytes]]  # a process, and the file that takes its messages
log = logging.getLogger("workbench")
MARKS = {".txt": (b"\n\n", b"\n\r\n"), ".train": (b"\n\n", b"\n\r\n"), ".jsonl": (b"\n",)}


Slice = tuple[Source, ...]  # whole sources, or parts of files, that follow each other in the text
SLICES: TypeAdapter[tuple[Slice, ...]] = TypeAdapter(tuple[Slice, ...])


def cut(sources: Sequence[Source]) -> list[Slice]:
    """Return the slices of a text in order; a text of up to SLICE bytes is one slice. Raises InputError."""
    if size_of(sources) <= SLICE:
        return [tuple(sources)]
    slices: list[list[Source]] = [[]]
    size = 0
    for part in (part for source in sources for part in _parts(source)):
        if slices[-1] and (size + part.size > SLICE or isinstance(part, Hub)):
            slices.append([])
            size = 0
        slices[-1].append(part)
        size += part.size
    return [tuple(each) for each in slices]


def _parts(source: Source) -> Iterator[Source]:
    """Yield the parts of a source between two cuts, or the source itself if it is not cut."""
    if (
        not isinstance(source, File | Remote)
        or source.size <= SLICE
        or packing_of(source.path)
        or (suffix := formats.kind_of(source.path)) not in (*MARKS, ".parquet")
    ):
        yield source
        return
    start = 0
    for end, size in _group_cuts(source) if suffix == ".parquet" else _byte_cuts(source, MARKS[suffix]):
        yield replace(source, span=(start, end), size=size)
        start = end


def _byte_cuts(file: File | Remote, marks: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Yield end (-1 for the last) and size of each part: cuts after a mark at least SLICE bytes from the last cut."""
    if only_cr(head(file.path)):
        marks = [mark.replace(b"\n", b"\r") for mark in marks]
    start = 0
    while start + SLICE < file.size and (end := _after_mark(file, start + SLICE, marks)) < file.size:
        yield end, end - start
        start = end
    yield -1, file.size - start


def _after_mark(file: File | Remote, place: int, marks: Sequence[bytes]) -> int:
    """Return the place after the first of `marks` that ends after `place`, or the size of the file if there is none."""
    overlap = max(map(len, marks)) - 1
    with opened(file.path) as content:
        place = max(0, place - overlap)
        content.seek(place)
        block = b""
        while more := content.read(BLOCK):
            block = block[-overlap:] + more if overlap and block else more
            ends = [found + len(mark) for mark in marks if (found := block.find(mark)) >= 0]
            if ends:
                return content.tell() - len(block) + min(ends)
    return file.size


def _group_cuts(file: File | Remote) -> Iterator[tuple[int, int]]:
    """Yield end row group (-1 for the last) and size of each part; compressed sizes are scaled to the file's size."""
    sizes = formats.row_groups(file.path)
    scale = file.size / max(1, sum(sizes))
    start = size = 0
    done = 0
    for number, each in enumerate(sizes):
        if number > start and (size + each) * scale > SLICE:
            part = round((done + size) * scale) - round(done * scale)
            yield number, part
            start, done, size = number, done + size, 0
        size += each
    yield -1, file.size - round(done * scale)


@dataclass(frozen=True)
class Plan:
    """The slices of a text, with the settings and the vocabulary by which they are encoded.

    `root` is the folder of the cache, and `key` the name of the text there. In a plan without a vocabulary the slices
    get signatures instead of tokens. `duplicates` is the name of the folder that lists the documents to leave out as
    near-duplicates (`near_duplicates`); it is "" if all documents stay.
    """

    root: Path
    key: str
    data: DataSpec
    vocabulary: Path | None
    slices: tuple[Slice, ...]
    duplicates: str = ""

    @property
    def path(self) -> Path:
        """The file of the plan."""
        return self.root / "plans" / f"{self.key}.json"

    def folder(self, number: int) -> Path:
        """Return the folder of an encoded slice, or of its signatures, which exists when it is complete."""
        kind = "signatures" if self.vocabulary is None else "slices"
        return self.root / kind / f"{self.key}-{number:05d}"

    def folders(self) -> list[Path]:
        """Return the folders of all slices in order."""
        return [self.folder(number) for number in range(len(self.slices))]

    def lock(self, number: int) -> Path:
        """Return the folder of the lease of a slice, which the process that encodes the slice holds."""
        return self.root / "locks" / self.folder(number).name

    def begin(self) -> None:
        """Write the plan to its file, and remove slices whose files have changed, with a warning. Raises OSError."""
        content = {
            "key": self.key,
            "data": self.data.model_dump(mode="json"),
            "vocabulary": self.vocabulary.name if self.vocabulary else None,
            "slices": SLICES.dump_python(self.slices, mode="json"),
            "duplicates": self.duplicates,
        }
        write_entry(self.path, content)
        for folder in self.folders():
            if folder.exists() and not is_whole(folder, blocks=4):
                discard(folder)

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Return the plan in a file of the cache. Raises InputError if there is none."""
        try:
            value = checked_entry(path)
            root = path.absolute().parents[1]
            slices, data = SLICES.validate_python(value["slices"]), DataSpec.model_validate(value["data"])
            vocabulary = root / "tokenizers" / value["vocabulary"] if value["vocabulary"] else None
            return cls(root, value["key"], data, vocabulary, slices, value["duplicates"])
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(
                f"{path} is no plan of a text's slices, which data prepare writes ({one_line(error)}); give that "
                f"command again"
            ) from None


def encode_missing(plan: Plan, advance: Advance = ignore) -> None:
    """Encode all slices that no other process encodes, and wait until every slice is there.

    `advance` gets the bytes read here or found encoded. Raises InputError or OSError.
    """
    left = list(range(len(plan.slices)))
    while left:
        before = len(left)
        for number in list(left):
            if plan.folder(number).is_dir():
                advance(size_of(plan.slices[number]))
            elif not _encode_alone(plan, number, advance):
                continue
            left.remove(number)
        if left and len(left) == before:
            time.sleep(LOOK)


def _encode_alone(plan: Plan, number: int, advance: Advance) -> bool:
    """Encode a slice, unless another process holds its lease. Return whether the slice is there now."""
    make_folder(plan.lock(number))
    try:
        lease = acquire(plan.lock(number), patience=0)
    except (LeaseHeld, FileNotFoundError):  # the folder is removed by a process that found every slice encoded
        return False
    with lease:
        if not plan.folder(number).is_dir():
            (_encode if plan.vocabulary else _sign)(plan, number, advance)
    return True


def _encode(plan: Plan, number: int, advance: Advance) -> None:
    assert plan.vocabulary is not None
    near = flags(plan.root / DUPLICATES / plan.duplicates, number) if plan.duplicates else None
    with staged(plan.folder(number)) as temporary:
        read = partial(documents, plan.data, plan.slices[number], advance, near=near)
        facts, _ = encode_into(temporary, plan.data, plan.vocabulary, read)
        check_unchanged(plan.slices[number])
        (temporary / FACTS).write_text(json.dumps(facts), encoding="utf-8")


def encode_into(
    folder: Path, data: DataSpec, vocabulary: Path, read: Callable[..., Iterator[str]]
) -> tuple[dict[str, Any], str]:
    """Write the tokens and held-out parts of what `read` gives; return facts, and the SHA-256 of the documents."""
    encoder, sep = tokenizer.fast(vocabulary), tokenizer.special(vocabulary).sep
    text, by_source, removed = Text(), Counter[str](), Removed()
    with closing(Shards(folder, token_type(tokenizer.size(encoder)))) as shards:
        with filters.writing(folder) if data.held_out else nullcontext(None) as aside:
            documents = text.counted(read(aside=aside, words=by_source, removed=removed))
            encode(documents, encoder, sep, shards, data.tokenizer)
        facts = {
            "documents": text.documents, "bytes": text.bytes, "text": f"{text.joined:x}", "sources": dict(by_source),
            "shards": shards.finish(), "removed": removed,
        }  # fmt: skip
    return facts, text.hash.hexdigest()


def _sign(plan: Plan, number: int, advance: Advance) -> None:
    assert plan.data.near_duplicates is not None
    found = plan.slices[number]
    with staged(plan.folder(number)) as temporary:
        read = (document for source in found for document in sources.read(source, plan.data.column, advance))
        suitable = (None if unsuitable(plan.data, document) else document for document in read)
        entries, repeated = near_duplicates.write(temporary, suitable, plan.data.near_duplicates)
        check_unchanged(found)
        (temporary / REPEATED).write_bytes(repeated.tobytes())
        facts = {"documents": len(repeated), "entries": entries}
        (temporary / FACTS).write_text(json.dumps(facts), encoding="utf-8")


def remove_locks(plan: Plan) -> None:
    """Remove the lease folders of all slices, when every slice is encoded."""
    for number in range(len(plan.slices)):
        shutil.rmtree(plan.lock(number), ignore_errors=True)


def encode_with(plan: Plan, workers: int, advance: Advance) -> None:
    """Encode a plan's missing slices by `workers` processes, and what a killed one left. Raises InputError, OSError."""
    if workers > 1:
        _share(plan, min(workers, len(plan.slices)), advance)
        advance = ignore  # all slices were counted before
    encode_missing(plan, advance)


def _share(plan: Plan, workers: int, advance: Advance) -> None:
    """Start the processes, and wait until they have ended. An exception here ends them."""
    with ExitStack() as files:
        children: list[Child] = []
        try:
            for _ in range(workers):
                children.append(_started(plan, workers, files.enter_context(tempfile.TemporaryFile())))
            _wait(plan, children, advance)
        finally:
            for child, _ in children:
                child.terminate()
            until = time.monotonic() + PATIENCE
            for child, _ in children:
                try:
                    child.wait(max(0.0, until - time.monotonic()))
                except subprocess.TimeoutExpired:  # such as one that was stopped; nothing is lost by killing it
                    child.kill()
                    child.wait()


def _started(plan: Plan, workers: int, messages: IO[bytes]) -> Child:
    """Start a process with its share of the cores (RAYON_NUM_THREADS is read by the library of tokenizers)."""
    return subprocess.Popen(
        [sys.executable, "-m", "workbench", "encode-slices", str(plan.path), "--parent", str(os.getpid())],
        env=os.environ | {"RAYON_NUM_THREADS": str(threads_for_each(workers))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=messages,
    ), messages


def _wait(plan: Plan, children: Sequence[Child], advance: Advance) -> None:
    """Report progress until all processes end, or all slices are there and one hangs. Raises the error of one."""
    left, running, last = set(range(len(plan.slices))), list(children), time.monotonic()
    while running:
        if not left and time.monotonic() - last > PATIENCE:
            log.warning("all slices are there, and a worker does not answer; it is ended")
            return
        time.sleep(PAUSE)
        for number in [number for number in left if plan.folder(number).is_dir()]:
            left.remove(number)
            advance(size_of(plan.slices[number]))
            last = time.monotonic()
        for child in [child for child in running if child[0].poll() is not None]:
            running.remove(child)
            _judge(*child)


def _judge(child: subprocess.Popen[bytes], messages: IO[bytes]) -> None:
    """Raise the error with which a process ended; one that was killed is reported, and the others go on."""
    code = child.returncode
    messages.seek(0)
    lines = messages.read().decode(errors="replace").strip().splitlines()
    last = lines[-1].removeprefix("workbench: ") if lines else ""
    if code == 2:
        raise InputError(last)
    if code == 74:
        raise OSError(errno.EIO, last)
    for line in lines:
        log.warning("%s", line.removeprefix("workbench: "))
    if code:
        log.warning("a worker ended early, with %s", f"signal {-code}" if code < 0 else f"exit code {code}")
