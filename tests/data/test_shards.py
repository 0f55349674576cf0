"""Token shards: the stream that they hold, their type, and the hash of a text."""

from __future__ import annotations

import hashlib
import itertools
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data import shards
from workbench.errors import InputError


def test_the_shard_type_follows_the_vocabulary():
    assert shards.token_type(65536) == np.uint16 and shards.token_type(65537) == np.uint32
    assert shards.token_type(2**32) == np.uint32
    with pytest.raises(InputError, match="4294967297 tokens is larger than a token shard can hold"):
        shards.token_type(2**32 + 1)


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


@given(st.lists(st.lists(st.integers(0, 65535), max_size=20), max_size=8), st.integers(1, 9))
@settings(max_examples=30)
def test_files_hold_the_stream_in_equal_parts(blocks: list[list[int]], size: int) -> None:
    whole = np.array([token for block in blocks for token in block], dtype="<u2")
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(shards, "SHARD", size):
        writer = shards.Shards(Path(folder), np.dtype("<u2"))
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


@given(st.lists(st.text("ab ", min_size=1, max_size=30), max_size=6), st.integers(1, 40))
@settings(max_examples=50)
def test_batches_join_to_the_documents(documents: list[str], size: int) -> None:
    """Each text of a batch says whether its document ends there, wherever batches and long documents are divided."""
    with mock.patch.object(shards, "BATCH", size), mock.patch.object(shards, "PIECE", 4):
        batches = list(shards._batches(documents, cut=True))
    found, document = [], ""
    for texts, ends in batches:
        for text, end in zip(texts, ends, strict=True):
            document += text
            if end:
                found.append(document)
                document = ""
    assert found == documents and document == ""
    assert all(sum(map(len, texts[:-1])) < size for texts, _ in batches)
