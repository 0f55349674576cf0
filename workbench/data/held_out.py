"""Parts of a corpus that pre-training does not see, chosen by their own words: the same text is never on both sides."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench.rng import seed_of

NAME = "held-out.jsonl"
PIECE = 1 << 14  # characters; a longer document is divided at line ends, so that a corpus of one document has parts too
MOST = 1 << 24  # characters that are kept of what is held out

Aside = Callable[[str], None]


def without(document: str, share: float, aside: Aside | None = None) -> str:
    """Return a document without its held-out parts, each of which goes to `aside`; "" where nothing is left."""
    if not share:
        return document
    kept = []
    for part in _parts(document):
        if seed_of(0, "held out", part.strip()) < share * 2**63:
            if aside is not None:
                aside(part)
        else:
            kept.append(part)
    return "".join(kept).strip("\n")


def _parts(document: str) -> Iterator[str]:
    """Yield the document, or where it is long, runs of its lines of about PIECE characters."""
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
    """Yield what puts a part into the folder's file of held-out text, as long as there is room in it."""
    size = 0
    with open(folder / NAME, "w", encoding="utf-8") as file:

        def put(part: str) -> None:
            nonlocal size
            size += len(part)
            if size <= MOST:
                file.write(json.dumps(part) + "\n")

        yield put


def read(folder: Path) -> list[str]:
    """Return the held-out parts of a prepared corpus, in the order of the text; none where nothing was held out."""
    path = folder / NAME
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
