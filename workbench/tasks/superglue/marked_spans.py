"""Texts with two marked spans as rows of token ids, in which the positions of the spans are known.

The text is cut at blanks and at the ends of the spans, and each part is tokenized by itself, so that fast and slow
tokenizers give the same alignment (`workbench.tasks.pieces`). Of a text that is longer than a row, the pieces that are
nearest to a span are kept, so that both spans are always read.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from workbench.data.tokenizer import load_published_tokenizer
from workbench.tasks.finetuning.token_batches import Encoded
from workbench.tasks.pieces import Splitter, aligned, pieces_of_words, splitter, unknown
from workbench.tasks.task import Examples, Span, Spans, Task


def encode_marked(folder: Path, task: Task, length: int) -> dict[str, Encoded]:
    """Return the parts of a task whose rows have spans, "train" first, as rows of at most `length` token ids.

    Raises InputError for a folder without a usable tokenizer, or rows that are too short.
    """
    reader = splitter(folder, load_published_tokenizer(folder), length, "a task of marked spans")
    parts = {"train": task.train, **task.tests}
    return {part: _marked(reader, rows, task.array(rows)) for part, rows in parts.items()}


def _marked(reader: Splitter, examples: Examples, targets: Any) -> Encoded:
    """Return examples with spans as rows of token ids."""
    assert examples.spans is not None
    parts = [parts_of(text, spans) for text, spans in zip(examples.first, examples.spans, strict=True)]
    words = [[text[start:end] for start, end in row] for text, row in zip(examples.first, parts, strict=True)]
    known = pieces_of_words(reader, sorted({word for row in words for word in row}))
    pieces, firsts = aligned(known, words, unknown(reader))
    rows, places = [], []
    for ids, first, row, spans in zip(pieces, firsts, parts, examples.spans, strict=True):
        ends = np.append(first, len(ids))
        inside = [_pieces_in(span, row, ends) for span in spans]
        kept = nearest(len(ids), inside, reader.room)
        rows.append(np.concatenate([reader.before, ids[kept], reader.after]).astype(np.int64))
        places.append(len(reader.before) + np.searchsorted(kept, np.array(inside)))
    spans_of_rows = np.array(places, dtype=np.int64).reshape(-1, 2, 2)
    return Encoded(rows, None, targets, reader.tokenizer.pad_token_id or 0, spans_of_rows)


def parts_of(text: str, spans: Spans) -> list[Span]:
    """Return the words of a text, cut where a span begins or ends, each by its first character and its end."""
    borders = sorted({border for span in spans for border in span})
    parts = []
    for word in re.finditer(r"\S+", text):
        inner = [border for border in borders if word.start() < border < word.end()]
        ends = [word.start(), *inner, word.end()]
        parts += list(pairwise(ends))
    return parts


def _pieces_in(span: Span, parts: list[Span], ends: Any) -> Span:
    """Return the first piece and the end of the pieces of a span; `ends` (parts + 1,) bounds those of the parts."""
    within = [number for number, (start, end) in enumerate(parts) if span[0] <= start and end <= span[1]]
    return int(ends[within[0]]), int(ends[within[-1] + 1])


def nearest(count: int, spans: list[Span], room: int) -> Any:
    """Return the indices of at most `room` of `count` pieces, in order: those of the spans, then the nearest to one."""

    def distance(piece: int) -> tuple[int, int]:
        inside = [piece - start for start, end in spans if start <= piece < end]
        if inside:
            return 0, min(inside)
        return 1, min(start - piece if piece < start else piece - end + 1 for start, end in spans)

    return np.array(sorted(sorted(range(count), key=distance)[:room]), dtype=np.int64)
