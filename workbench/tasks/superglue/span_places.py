"""Where the two spans of a row are in its text, by their words and the number of their first word or by characters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.errors import InputError
from workbench.tasks.rows import checked_text
from workbench.tasks.task import Span, Spans

MOVED = "a span that is not at its index, and is read at the nearest place with its words"
ABSENT = "a span whose words are not in the text, and as many words at its index are read"


def spans_of(columns: Mapping[str, Any], text: str, where: str, faults: list[str]) -> Spans:
    """Return both spans of a row by characters; what is wrong with them is added to `faults`.

    The columns `span1_text`, `span1_index` (the number of its first word, counted at blanks) and so on stand in the
    row, or in its column `target`. Without an index the first occurrence is taken. Raises InputError for a span that
    is nowhere.
    """
    target = columns.get("target")
    source = target if isinstance(target, Mapping) else columns
    first, second = (_span(source, f"span{number}", text, where, faults) for number in (1, 2))
    return first, second


def _span(entry: Mapping[str, Any], name: str, text: str, where: str, faults: list[str]) -> Span:
    """Return one span by characters. Raises InputError."""
    words = checked_text(entry.get(f"{name}_text"), f"{name}_text", where).strip()
    if not words:
        raise InputError(f"{where}: {name}_text is empty, so there is no span to read")
    given = entry.get(f"{name}_index") is not None
    index = _number(entry, f"{name}_index", "word", where) if given else None
    matches = [match.span() for match in re.finditer(re.escape(words), text, re.IGNORECASE)]
    whole = [(start, end) for start, end in matches if _is_whole(text, start, end)]
    places = list(re.finditer(r"\S+", text))
    if index is None:
        if not matches:
            raise InputError(f"{where}: {name}_text {words!r:.80} is not in the text")
        return (whole or matches)[0]
    if index >= len(places):
        raise InputError(f"{where}: {name}_index is {index}, and the text has {len(places)} words")
    word = places[index]
    if at := next((span for span in whole + matches if word.start() <= span[0] < word.end()), None):
        return at
    if whole:
        faults.append(MOVED)
        return min(whole, key=lambda span: abs(span[0] - word.start()))
    faults.append(ABSENT)
    last = min(len(places), index + len(words.split())) - 1
    return word.start(), places[last].end()


def in_two_sentences(columns: Mapping[str, Any], sentences: Sequence[str], where: str) -> tuple[str, Spans]:
    """Return two sentences as one text, and the span of a word in each, as WiC's `start1`, `end1` and so on say.

    Raises InputError for a span that is not in its sentence or holds only blanks.
    """
    spans, before = list[Span](), 0
    for number, sentence in enumerate(sentences, 1):
        start, end = (_number(columns, f"{side}{number}", "character", where) for side in ("start", "end"))
        word = sentence[start:end]
        if not start < end <= len(sentence) or not word.strip():
            raise InputError(
                f"{where}: start{number} and end{number} are {start} and {end}, where sentence{number}, of "
                f"{len(sentence)} characters, has no word"
            )
        start, end = start + len(word) - len(word.lstrip()), end - len(word) + len(word.rstrip())
        spans.append((before + start, before + end))
        before += len(sentence) + 1
    return " ".join(sentences), (spans[0], spans[1])


def _number(columns: Mapping[str, Any], name: str, what: str, where: str) -> int:
    """Return the number of a word or character in a column. Raises InputError."""
    value = columns.get(name)
    value = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"{where}: {name} is {value!r:.40}, and must be the number of a {what}, from 0")
    return value


def _is_whole(text: str, start: int, end: int) -> bool:
    """Return whether a span neither begins nor ends inside a word."""
    inside = [text[place - 1 : place + 1] for place in (start, end) if 0 < place < len(text)]
    return not any(pair.isalnum() for pair in inside)
