"""Encoding of documents to token ids in shard files, on all cores, while text is read and ids are written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbench.data.hugging_face import in_time
from workbench.data.tokenizer import pieces
from workbench.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

SHARD = 1 << 28  # tokens in a shard file
BATCH = 1 << 21  # characters encoded at once
PIECE = 1 << 14  # characters of a long document encoded by one core
PRIME = 2**255 - 19
BASE = int.from_bytes(hashlib.sha256(b"documents of a text").digest()) % PRIME  # any number that nobody chose


def token_type(vocab: int) -> np.dtype[Any]:
    """Return uint16 if it holds every token id, else uint32. Raises InputError if neither does."""
    if vocab > 1 << 32:
        raise InputError(f"a vocabulary of {vocab} tokens is larger than a token shard can hold ({1 << 32})")
    return np.dtype("<u2" if vocab <= 1 << 16 else "<u4")


class Text:
    """Number, bytes and hashes of the documents that pass through `counted`.

    `hash` is the SHA-256 of all documents. `joined` is the sum of each document's SHA-256 times BASE to the power of
    the number of documents after it, modulo PRIME, which follows from the parts of a text wherever it is cut.
    """

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.documents = self.bytes = self.joined = 0

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
    for documents, part in parts:
        total = (total * pow(BASE, documents, PRIME) + part) % PRIME
    return total


class Shards:
    """A writer of token ids to tokens-00000.bin, tokens-00001.bin ..., which `cache.staged` flushes to disk."""

    def __init__(self, folder: Path, dtype: np.dtype[Any]) -> None:
        self.folder, self.dtype = folder, dtype
        self.done: list[dict[str, Any]] = []
        self.file: Any = None
        self.hash, self.tokens = hashlib.sha256(), 0

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

    def close(self) -> None:
        """Close the open file, complete or not."""
        if self.file is not None:
            self.file.close()


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
