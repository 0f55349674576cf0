"""Sentences whose words carry a tag: parts of speech from CoNLL-U files, named entities from IOB2 files.

CoNLL-U: tab-separated columns; the word form is column 2 and the universal part of speech column 4. Multiword tokens
(`7-8`) and empty nodes (`51.1`) are passed over, so the words are the syntactic words that carry the tags.

IOB2: one word and its tag a line, in columns separated by tabs or blanks. Where the columns begin with a number the
word is column 2 and the tag column 3 (Universal NER); otherwise the word is column 1 and the tag the last column
(CoNLL-2003, WNUT). An entity that begins with I-, as in the older IOB1, is written as B-, which is how conlleval
counts it.

Comments begin with `#`, and a blank line ends a sentence. In IOB2 a `#` may be a word too: a line is a comment there
when it reads `# NAME = ...` or does not end in a tag. Files may be packed (.gz, .xz, .zst).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from workbench.data.streams import lines, unpacked_suffix
from workbench.errors import InputError

FORMATS = {".conllu": "pos", ".iob2": "ner", ".iob": "ner", ".bio": "ner", ".conll": "ner"}
LONGEST = 1000  # characters of a word or tag
TAG = re.compile(r"O|[BI]-\S+")
COMMENT = re.compile(r"#\s*\S+\s*=")
NO_WORD = re.compile(r"\d+[-.]\d+")  # the number of a multiword token or of an empty node


@dataclass(frozen=True)
class Sentence:
    """The words of a sentence and the tag of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


def format_of(path: Path) -> str:
    """ ".conllu", ".iob2" or another of FORMATS, "" for a file of another kind; packings are looked through."""
    suffix = unpacked_suffix(path)
    return suffix if suffix in FORMATS else ""


def read(path: Path) -> list[Sentence]:
    """Every sentence of a file, in order. Raises InputError naming file and line."""
    pos = FORMATS[format_of(path)] == "pos"
    word_of, is_comment = (_part_of_speech, _is_hash) if pos else (_entity, _is_remark)
    found = [_sentence(block, path, word_of) for block in _blocks(path, is_comment)]
    sentences = [sentence for sentence in found if sentence.words]
    if not sentences:
        raise InputError(f"{path} holds no tagged sentences")
    return sentences


Lines = list[tuple[int, str]]  # line numbers and lines


def _blocks(path: Path, is_comment: Callable[[str], bool]) -> Iterator[Lines]:
    """The lines between blank lines, without comments."""
    block: Lines = []
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            yield block
            block = []
        elif not is_comment(line):
            block.append((number, line))
    yield block


def _is_hash(line: str) -> bool:
    return line.startswith("#")


def _is_remark(line: str) -> bool:
    """Whether a line of IOB2 is a comment or marks the start of a document."""
    if line.startswith("#"):
        return bool(COMMENT.match(line)) or not TAG.fullmatch(line.split()[-1])
    return line.startswith("-DOCSTART-")


def _sentence(block: Lines, path: Path, word_of: Callable[[str], tuple[str, str] | str | None]) -> Sentence:
    words, tags = [], []
    for number, line in block:
        found = word_of(line)
        if isinstance(found, str):
            raise InputError(f"{path}, line {number}: {found}")
        if found is None:
            continue
        if max(map(len, found)) > LONGEST:
            raise InputError(f"{path}, line {number}: a word or tag has more than {LONGEST:,} characters")
        words.append(found[0])
        tags.append(found[1])
    return Sentence(tuple(words), tuple(_as_iob2(tags) if word_of is _entity else tags))


def _part_of_speech(line: str) -> tuple[str, str] | str | None:
    """Word and tag of a line of CoNLL-U, None where the line is no word, or what is wrong with it."""
    columns = line.split("\t")
    if len(columns) != 10:
        return f"{len(columns)} columns where CoNLL-U has 10, separated by tabs"
    number, form, tag = columns[0], columns[1].strip(), columns[3].strip()
    if NO_WORD.fullmatch(number):
        return None
    if not number.isdecimal():
        return f"a line of CoNLL-U begins with the number of the word, got {number[:40]!r}"
    if not form:
        return "column 2 holds no word"
    if tag in ("", "_"):
        return "column 4 holds no part of speech"
    return form, tag


def _entity(line: str) -> tuple[str, str] | str | None:
    """Word and tag of a line of IOB2, or what is wrong with it."""
    columns = line.split("\t") if "\t" in line else line.split()
    columns = [column.strip() for column in columns]
    if len(columns) >= 3 and columns[0].isdecimal() and TAG.fullmatch(columns[2]):
        word, tag = columns[1], columns[2]
    elif len(columns) >= 2:
        word, tag = columns[0], columns[-1]
    else:
        return "one column where IOB2 has a word and its tag"
    if not word:
        return "there is no word before the tag"
    if not TAG.fullmatch(tag):
        return f"tag {tag[:40]!r} is not O, B-TYPE or I-TYPE, as IOB2 has them"
    return word, tag


def _as_iob2(tags: list[str]) -> list[str]:
    """The tags with B- at every I- that continues no entity of its type."""
    made: list[str] = []
    for tag in tags:
        goes_on = bool(made) and made[-1][2:] == tag[2:]
        made.append("B-" + tag[2:] if tag.startswith("I-") and not goes_on else tag)
    return made


def spans(tags: list[str] | tuple[str, ...]) -> set[tuple[int, int, str]]:
    """Entities as (first word, word after the last, type), in the way of conlleval: a stray I- begins an entity."""
    found, start = set(), 0
    fixed = [*_as_iob2(list(tags)), "O"]
    for place, tag in enumerate(fixed):
        before = fixed[place - 1] if place else "O"
        if before != "O" and not tag.startswith("I-"):
            found.add((start, place, before[2:]))
        if tag.startswith("B-"):
            start = place
    return found
