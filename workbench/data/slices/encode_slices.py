"""Encoding the slices of a plan: each by one process, which holds its lease, into a sealed folder of the cache.

    CACHE/slices/KEY-00007/: tokens-00000.bin slice.json seal.json, and held-out.jsonl where text is held out
    CACHE/signatures/KEY-00007/: hashes.bin places.bin repeated.bin slice.json seal.json, of a plan of signatures

What a slice holds depends on its text and the vocabulary alone. A process that is killed leaves no part of a slice
that counts, and its lease is taken over.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from workbench.data import held_out, sources, tokenizer
from workbench.data.shards import Shards, Text, encode, token_type
from workbench.data.slices import signatures
from workbench.data.slices.documents import Removed, documents, unsuitable
from workbench.data.slices.slice_plan import Plan
from workbench.data.sources import check_unchanged
from workbench.data.streams import Advance, ignore
from workbench.errors import LeaseHeld
from workbench.store.atomic import read_object
from workbench.store.cache import discard, is_whole, make_folder, staged
from workbench.store.lease import acquire

FACTS, FLAGS = "slice.json", "left-out.bin"
DUPLICATES = "duplicates"  # folder of the cache with the flags of texts
READ = 1 << 16  # flags read at once
LOOK = 0.2  # seconds between two looks for slices that other processes have finished


def discard_damaged(plan: Plan) -> None:
    """Remove encoded slices whose files have changed, with a warning, so that they are made again."""
    for number in range(len(plan.slices)):
        folder = plan.folder(number)
        if folder.exists() and not is_whole(folder, blocks=4):
            discard(folder)


def encode_missing(plan: Plan, advance: Advance = ignore) -> None:
    """Encode all slices that no other process has encoded or is encoding, and wait until every slice is there.

    `advance` is called with the bytes that are read here, or found to be encoded by another process. Raises InputError
    for text that cannot be read, and OSError if the disk fails.
    """
    left = list(range(len(plan.slices)))
    while left:
        before = len(left)
        for number in list(left):
            if plan.folder(number).is_dir():
                advance(plan.slices[number].size)
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
    try:
        if not plan.folder(number).is_dir():
            (_encode if plan.vocabulary else _sign)(plan, number, advance)
    finally:
        lease.release()
    return True


def _encode(plan: Plan, number: int, advance: Advance) -> None:
    """Write the tokens of a slice, and the facts on its text."""
    assert plan.vocabulary is not None
    encoder, special = tokenizer.fast(plan.vocabulary), tokenizer.special(plan.vocabulary)
    text, by_source, removed = Text(), Counter[str](), Removed()
    found = plan.slices[number].sources
    dtype = token_type(tokenizer.size(encoder))
    with staged(plan.folder(number)) as temporary, closing(Shards(temporary, dtype)) as shards:
        with held_out.writing(temporary) if plan.data.held_out else nullcontext(None) as aside:
            near = flags(plan.root / DUPLICATES / plan.duplicates, number) if plan.duplicates else None
            read = documents(plan.data, found, advance, aside=aside, words=by_source, removed=removed, near=near)
            encode(text.counted(read), encoder, special.sep, shards, plan.data.tokenizer)
        check_unchanged(found)
        facts = {
            "documents": text.documents, "bytes": text.bytes, "text": f"{text.joined:x}", "sources": dict(by_source),
            "shards": shards.finish(), "removed": removed,
        }  # fmt: skip
        (temporary / FACTS).write_text(json.dumps(facts), encoding="utf-8")


def _sign(plan: Plan, number: int, advance: Advance) -> None:
    """Write the signatures of a slice, by which near-duplicates are found."""
    assert plan.data.near_duplicates is not None
    found = plan.slices[number].sources
    with staged(plan.folder(number)) as temporary:
        read = (document for source in found for document in sources.read(source, plan.data.column, advance))
        suitable = (None if unsuitable(plan.data, document) else document for document in read)
        entries, repeated = signatures.write(temporary, suitable, plan.data.near_duplicates)
        check_unchanged(found)
        (temporary / signatures.REPEATED).write_bytes(repeated.tobytes())
        facts = {"documents": len(repeated), "entries": entries}
        (temporary / FACTS).write_text(json.dumps(facts), encoding="utf-8")


def flags(folder: Path, number: int | None = None) -> Iterator[bool]:
    """Yield for each document of a slice, or of the whole text without a number, whether it is a near-duplicate."""
    counts = read_object(folder / FACTS)["documents"]
    start, end = (0, sum(counts)) if number is None else (sum(counts[:number]), sum(counts[: number + 1]))
    with open(folder / FLAGS, "rb") as file:
        file.seek(start)
        for place in range(start, end, READ):
            yield from map(bool, file.read(min(READ, end - place)))


def facts_of(plan: Plan) -> list[dict[str, Any]]:
    """Return the facts on each slice in order. Raises OSError or ValueError if one cannot be read."""
    return [read_object(plan.folder(number) / FACTS) for number in range(len(plan.slices))]


def held_out_parts(plan: Plan) -> Iterator[str]:
    """Yield the held-out parts of all slices in the order of the text."""
    for number in range(len(plan.slices)):
        yield from held_out.read(plan.folder(number))


def remove_locks(plan: Plan) -> None:
    """Remove the folders by which processes took slices, when every slice is there, and so none is needed any more."""
    for number in range(len(plan.slices)):
        shutil.rmtree(plan.lock(number), ignore_errors=True)
