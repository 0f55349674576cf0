"""Parts of a corpus that are held out from pre-training, by a hash of their text: equal parts are on one side."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench.rng import seed_of

NAME = "held-out.jsonl"
PIECE = 1 << 14  # characters; longer documents are divided at line ends, so that a corpus of one document has parts too
MOST = 1 << 24  # characters of held-out text that are kept at most

Aside = Callable[[str], None]


def without(document: str, share: float, aside: Aside | None = None) -> str:
    """Return a document without its held-out parts, "" if nothing is left, and call `aside` with each of these parts.

    `share` is the fraction of all parts that are held out, from 0 to 1.
    """
    if not share:
        return document
    remaining = []
    for part in _parts(document):
        if seed_of(0, "held out", part.strip()) < share * 2**63:
            if aside is not None:
                aside(part)
        else:
            remaining.append(part)
    return "".join(remaining).strip("\n")


def _parts(document: str) -> Iterator[str]:
    """Yield a document as one part, or if it is longer than PIECE characters, as several parts of about that length."""
    if len(document) <= PIECE:
        yield document
        return
    lines: list[str] = []
    size = 0
    for line in document.splitlines(keepends=True):
        lines.append(line)
        size += len(line)
        if size >= PIECE:
            yield "".join(lines)
            lines, size = [], 0
    if lines:
        yield "".join(lines)


@contextmanager
def writing(folder: Path) -> Iterator[Aside]:
    """Yield a function that writes a part to the folder's file of held-out text, up to MOST characters in all."""
    size = 0
    with open(folder / NAME, "w", encoding="utf-8") as file:

        def put(part: str) -> None:
            nonlocal size
            size += len(part)
            if size <= MOST:
                file.write(json.dumps(part) + "\n")

        yield put


def read(folder: Path) -> list[str]:
    """Return the held-out parts of a prepared corpus in the order of the text; [] if nothing was held out."""
    path = folder / NAME
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
