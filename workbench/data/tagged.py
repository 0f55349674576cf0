"""Sentences with a tag for each word: parts of speech from CoNLL-U files, named entities from IOB2 files.

CoNLL-U: tab-separated columns; the word form is column 2 and the universal part of speech column 4. Multiword tokens
(`7-8`) and empty nodes (`51.1`) are skipped, so that the words are the syntactic words, which have the tags.

IOB2: each line has one word and its tag, in columns separated by tabs or blanks. If column 1 is a number, the word is
column 2 and the tag is column 3 (Universal NER); otherwise the word is column 1 and the tag is the last column
(CoNLL-2003, WNUT). An entity that begins with I-, as in the older IOB1, is read as one that begins with B-, as in
conlleval.

Comments begin with `#`, and a blank line ends a sentence. In IOB2, `#` may also be a word: there, a line is a comment
if it has the form `# NAME = ...` or does not end in a tag. Files may be compressed (.gz, .xz, .zst).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from workbench.data.streams import lines, unpacked_suffix
from workbench.errors import InputError

FORMATS = {".conllu": "pos", ".iob2": "ner", ".iob": "ner", ".bio": "ner", ".conll": "ner"}
LONGEST = 1000  # characters in a word or tag
TAG = re.compile(r"O|[BI]-\S+")
COMMENT = re.compile(r"#\s*\S+\s*=")
NO_WORD = re.compile(r"\d+[-.]\d+")  # the number of a multiword token or of an empty node


@dataclass(frozen=True)
class Sentence:
    """The words of a sentence, and one tag for each word."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


def format_of(path: Path) -> str:
    """Return the suffix of a file if it is one of FORMATS, such as ".conllu", else ""; compression is disregarded."""
    suffix = unpacked_suffix(path)
    return suffix if suffix in FORMATS else ""


def read(path: Path) -> list[Sentence]:
    """Return the sentences of a file, in order. Raises InputError naming the file and the line."""
    pos = FORMATS[format_of(path)] == "pos"
    word_of, is_comment = (_part_of_speech, _is_hash) if pos else (_entity, _is_remark)
    blocks = [_sentence(block, path, word_of) for block in _blocks(path, is_comment)]
    sentences = [sentence for sentence in blocks if sentence.words]
    if not sentences:
        raise InputError(f"{path} holds no tagged sentences")
    return sentences


Lines = list[tuple[int, str]]  # line numbers and lines


def _blocks(path: Path, is_comment: Callable[[str], bool]) -> Iterator[Lines]:
    """Yield the numbered lines of each block between blank lines, without comments."""
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
    """Return whether a line of IOB2 is a comment or marks the start of a document."""
    if line.startswith("#"):
        return bool(COMMENT.match(line)) or not TAG.fullmatch(line.split()[-1])
    return line.startswith("-DOCSTART-")


def _sentence(block: Lines, path: Path, word_of: Callable[[str], tuple[str, str] | str | None]) -> Sentence:
    words, tags = [], []
    for number, line in block:
        parsed = word_of(line)
        if isinstance(parsed, str):
            raise InputError(f"{path}, line {number}: {parsed}")
        if parsed is None:
            continue
        if max(map(len, parsed)) > LONGEST:
            raise InputError(f"{path}, line {number}: a word or tag has more than {LONGEST:,} characters")
        words.append(parsed[0])
        tags.append(parsed[1])
    return Sentence(tuple(words), tuple(_as_iob2(tags) if word_of is _entity else tags))


def _part_of_speech(line: str) -> tuple[str, str] | str | None:
    """Return word and tag of a line of CoNLL-U, None if it has no syntactic word, or a text that says what is wrong."""
    columns = line.split("\t")
    if len(columns) != 10:
        return f"{len(columns)} columns, and CoNLL-U has 10, separated by tabs"
    number, form, tag = columns[0], columns[1].strip(), columns[3].strip()
    if NO_WORD.fullmatch(number):
        return None
    if not number.isdecimal():
        return f"column 1 must be the number of the word in CoNLL-U, and is {number[:40]!r}"
    if not form:
        return "column 2 holds no word"
    if tag in ("", "_"):
        return "column 4 holds no part of speech"
    return form, tag


def _entity(line: str) -> tuple[str, str] | str | None:
    """Return word and tag of a line of IOB2, or a text that says what is wrong."""
    columns = line.split("\t") if "\t" in line else line.split()
    columns = [column.strip() for column in columns]
    if len(columns) >= 3 and columns[0].isdecimal() and TAG.fullmatch(columns[2]):
        word, tag = columns[1], columns[2]
    elif len(columns) >= 2:
        word, tag = columns[0], columns[-1]
    else:
        return "one column, and IOB2 has a word and its tag"
    if not word:
        return "there is no word before the tag"
    if not TAG.fullmatch(tag):
        return f"tag {tag[:40]!r} is not O, B-TYPE or I-TYPE, the tags of IOB2"
    return word, tag


def _as_iob2(tags: list[str]) -> list[str]:
    """Return the tags with B- instead of I- where no entity of the same type precedes."""
    fixed: list[str] = []
    for tag in tags:
        continues = bool(fixed) and fixed[-1][2:] == tag[2:]
        fixed.append("B-" + tag[2:] if tag.startswith("I-") and not continues else tag)
    return fixed


def spans(tags: list[str] | tuple[str, ...]) -> set[tuple[int, int, str]]:
    """Return the entities as (first word, word after the last, type); as in conlleval, a stray I- begins an entity."""
    entities, start = set(), 0
    fixed = [*_as_iob2(list(tags)), "O"]
    for place, tag in enumerate(fixed):
        before = fixed[place - 1] if place else "O"
        if before != "O" and not tag.startswith("I-"):
            entities.add((start, place, before[2:]))
        if tag.startswith("B-"):
            start = place
    return entities
