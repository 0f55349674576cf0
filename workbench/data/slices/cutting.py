"""Cutting sources into slices of about SLICE bytes, each of which is encoded on its own.

A cut is where a document ends whatever is read before it: after an empty line of plain text, after a line of JSON,
between row groups of Parquet, between files. So the documents of all slices, one after the other, are the documents of
the text, and the same sources are always cut in the same places. CSV, whose quoted fields may hold line ends, and
compressed files are not cut, nor are data sets of the hub.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from workbench.data import formats
from workbench.data.sources import File, Hub, Remote, Source
from workbench.data.streams import BLOCK, PACKINGS, head, only_cr, opened

SLICE = 256 << 20  # bytes of input; 70 million tokens, which one core encodes in one to two minutes
WHOLE = 16 << 30  # bytes; text up to here has the vocabulary and fingerprint that it had before slices were introduced
MARKS = {".txt": (b"\n\n", b"\n\r\n"), ".train": (b"\n\n", b"\n\r\n"), ".jsonl": (b"\n",)}


@dataclass(frozen=True)
class Slice:
    """Whole sources, or parts of files, that follow each other in the text."""

    sources: tuple[Source, ...]

    @property
    def size(self) -> int:
        """The number of bytes, without data sets of the hub, whose sizes are not known."""
        return sum(source.size for source in self.sources)


def cut(sources: Sequence[Source]) -> list[Slice]:
    """Return the slices of a text in order; a text of up to SLICE bytes is one slice. Raises InputError."""
    if sum(source.size for source in sources) <= SLICE:
        return [Slice(tuple(sources))]
    slices: list[list[Source]] = [[]]
    size = 0
    for part in (part for source in sources for part in _parts(source)):
        if slices[-1] and (size + part.size > SLICE or isinstance(part, Hub)):
            slices.append([])
            size = 0
        slices[-1].append(part)
        size += part.size
    return [Slice(tuple(each)) for each in slices]


def is_small(sources: Sequence[Source]) -> bool:
    """Return whether all of a text may be read once more, for its vocabulary and its hash."""
    return sum(source.size for source in sources) <= WHOLE and not any(isinstance(each, Hub) for each in sources)


def _parts(source: Source) -> Iterator[Source]:
    """Yield the parts of a source between two cuts, or the source itself if it is not cut."""
    if not isinstance(source, File | Remote) or source.size <= SLICE:
        yield source
        return
    start = 0
    for end, size in _cuts(source):
        yield replace(source, span=(start, end), size=size)
        start = end


def _cuts(file: File | Remote) -> Iterator[tuple[int, int]]:
    """Yield the end of each part of a file, a byte or a row group, and the bytes of the part; the last end is -1."""
    suffix = formats.kind_of(file.path)
    packed = file.path.suffix.lower() in PACKINGS
    if suffix in MARKS and not packed:
        marks = MARKS[suffix]
        yield from _byte_cuts(
            file, [mark.replace(b"\n", b"\r") for mark in marks] if only_cr(head(file.path)) else marks
        )
    elif suffix == ".parquet" and not packed:
        yield from _group_cuts(file)
    else:
        yield -1, file.size


def _byte_cuts(file: File | Remote, marks: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Yield cuts after the first of `marks` that is at least SLICE bytes from the cut before."""
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
    """Yield cuts between row groups of a Parquet file, with the compressed sizes of the groups, scaled to the file."""
    sizes = formats.row_groups(file.path)
    if not sizes:
        yield -1, file.size
        return
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
