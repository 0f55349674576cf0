"""Files of every format and packing, how they are read or refused, and texts that are prepared in slices."""

from __future__ import annotations

import bz2
import csv
import gzip
import hashlib
import io
import json
import lzma
import random
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from workbench.data import prepare, sources
from workbench.data.prepare import Prepared
from workbench.errors import InputError
from workbench.progress import silent
from workbench.spec.parts import DataSpec
from workbench.spec.presets import resolve
from workbench.spec.run_spec import RunSpec

DOCUMENTS = ["Once upon a time,\nthere was a “naïve” façade.", 'He said: "a, b"; and\tleft.', "Ünïcödé 🤗 日本", "last"]


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


PACK: dict[str, Callable[[bytes], bytes]] = {
    "": lambda raw: raw, ".gz": gzip.compress, ".xz": lambda raw: lzma.compress(raw, preset=0), ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}  # fmt: skip


def unbroken(count: int) -> str:
    """Return letters without a blank, always the same."""
    return "".join(random.Random(0).choices(string.ascii_letters, k=count))


def read(*names: Any, **options: Any) -> list[str]:
    return list(sources.documents(DataSpec(corpus=tuple(str(name) for name in names), **options)))


def refused(*names: Any, **options: Any) -> str:
    """The message, which must be one line."""
    with pytest.raises(InputError) as caught:
        read(*names, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


Small = Callable[[int], None]


def spec_of(path: Path, **changes: object) -> RunSpec:
    base = {"data.corpus": (str(path),), "encoder.vocab": 800, "batch.size": 4, "data.length": 32}
    return resolve("nano", base | {key.replace("__", "."): value for key, value in changes.items()})


def make(spec: RunSpec, cache: Path, workers: int = 1) -> Prepared:
    return prepare.prepare(spec, silent, cache, workers)


def content(cache: Path) -> dict[str, str]:
    """The hash of every file of a cache, without those of processes that were killed."""
    kept = [path for path in cache.rglob("*") if path.is_file() and "/." not in str(path.relative_to(cache.parent))]
    return {str(path.relative_to(cache)): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}
