"""Files of every format and packing, and how they are read or refused."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import random
import string
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from workbench.data import sources
from workbench.errors import InputError
from workbench.spec.parts import DataSpec

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
