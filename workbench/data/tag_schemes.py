"""Tags that mark spans of words, such as named entities: their schemes, and the spans that they stand for.

A tag is O, or a letter, a hyphen and the type of the span: B-PER. In IOB2 a span begins with B- and goes on with I-.
In IOB1 (CoNLL-2003 as it was released) it begins with I-, and with B- only where it follows a span of the same type.
In BIOES it ends with E-, and S- marks a span of one word; BILOU has the letters L and U for these.

Spans are read as `conlleval` and seqeval's default mode read them, which accept every sequence: an I- or E- that
continues no span of its type begins one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

SCHEMES = ("IOB2", "IOB1", "BIOES", "BILOU")
TAG = re.compile(r"O|[BIESLU]-\S+")

Span = tuple[int, int, str]  # first word, word after the last, type


def spans(tags: Sequence[str]) -> set[Span]:
    """Return the spans that the tags of a sentence stand for, in any of the schemes."""
    result = set()
    start, kind, last = 0, "", ""  # of the open span: its first word, its type ("" for none), its latest letter
    for place, tag in enumerate([*tags, "O"]):
        letter, inside = tag[0].translate(AS_BIOES), tag[2:]
        if kind and (inside != kind or letter in "BSO" or last in "ES"):
            result.add((start, place, kind))
            kind = ""
        if not kind:
            start, kind = place, inside
        last = letter
    return result


AS_BIOES = str.maketrans("LU", "ES")
AS_BILOU = str.maketrans("ES", "LU")


def encode(spans_of_sentence: Iterable[Span], length: int, scheme: str) -> list[str]:
    """Return the tags of a sentence of `length` words under a scheme; spans must not overlap."""
    tags, ended = ["O"] * length, (-1, "")
    for start, end, kind in sorted(spans_of_sentence):
        letters = ["B", *"I" * (end - start - 1)]
        if scheme == "IOB1" and ended != (start, kind):
            letters[0] = "I"
        if scheme in ("BIOES", "BILOU"):
            letters[-1] = "S" if len(letters) == 1 else "E"
        if scheme == "BILOU":
            letters = [letter.translate(AS_BILOU) for letter in letters]
        tags[start:end] = [f"{letter}-{kind}" for letter in letters]
        ended = (end, kind)
    return tags


def scheme_of(sentences: Sequence[Sequence[str]]) -> str:
    """Return the scheme of tagged sentences: by the letters that only it has, else the one that more tags follow."""
    letters = {tag[0] for tags in sentences for tag in tags}
    for letter, scheme in {"E": "BIOES", "S": "BIOES", "L": "BILOU", "U": "BILOU"}.items():
        if letter in letters:
            return scheme
    return min(("IOB2", "IOB1"), key=lambda scheme: sum(len(deviations(tags, scheme)) for tags in sentences))


def deviations(tags: Sequence[str], scheme: str) -> list[int]:
    """Return the words whose tag is not the one that the scheme has for the spans of the sentence."""
    right = encode(spans(tags), len(tags), scheme)
    return [place for place, (tag, other) in enumerate(zip(tags, right, strict=True)) if tag != other]


def as_iob2(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the tags of a sentence in IOB2, with the same spans."""
    return tuple(encode(spans(tags), len(tags), "IOB2"))


def marks_spans(tags: Iterable[str]) -> bool:
    """Return whether a set of tags is of a scheme: O with typed tags, whatever else there is, or typed tags alone.

    Parts of speech and the bare letters B, I and O have no types and mark no spans.
    """
    names = set(tags)
    typed = {tag for tag in names if tag != "O" and TAG.fullmatch(tag)}
    return bool(typed) and ("O" in names or typed == names)
