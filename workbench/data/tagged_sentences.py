"""Sentences with a tag for each word: parts of speech, named entities and chunks, from CoNLL-U and from columns.

CoNLL-U (files that end in `.conllu`): ten columns separated by tabs. The word form is column 2. The tag is the
universal part of speech of column 4 (`pos`), the language's own of column 5 (`xpos`), or the named entity that DaNE
keeps in column 10 (`ner`), as `name=B-PER`. Multiword tokens (`7-8`) and empty nodes (`51.1`) are skipped, so that the
words are the syntactic words, which have the tags.

Columns (all other files): a word in each line, in columns separated by tabs or by blanks, the same number in all lines;
no-break spaces separate nothing. The word is column 1, and the tag is the last column (CoNLL-2000 and -2003, WNUT). If
column 1 numbers the words of each sentence from 1, the word is column 2, and the tag column 3 where that holds tags of
spans (Universal NER).

A blank line ends a sentence, and so does a line of columns that begins with `-DOCSTART-`, perhaps after a number, which
is no word. Comments begin with `#`. In columns `#` may also be a word: there, a line is a comment if it has the form
`# NAME = ...` (but not `#a=b` before a tab), or not the number of columns of the first word. Files may be compressed
(.gz, .xz, .zst).

A tag of a span is O, or a letter, a hyphen and the type of the span: B-PER. In IOB2 a span begins with B- and goes on
with I-. In IOB1 (CoNLL-2003 as it was released) it begins with I-, and with B- only where it follows a span of the same
type. In BIOES it ends with E-, and S- marks a span of one word; BILOU has the letters L and U for these. Spans are read
as `conlleval` and seqeval's default mode read them, which accept every sequence: an I- or E- that continues no span of
its type begins one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workbench.data.streams import lines, unpacked_suffix
from workbench.errors import InputError

FORMATS = {".conllu": "pos", ".iob2": "ner", ".iob": "ner", ".bio": "ner", ".conll": "ner"}
CONLLU = ".conllu"
CONLLU_COLUMNS = 10
UPOS, XPOS, MISC = 3, 4, 9  # columns of CoNLL-U, from 0
CONLLU_TAGS = {"pos": UPOS, "upos": UPOS, "xpos": XPOS, "ner": MISC}
LONGEST = 1000  # characters in a word or tag
COMMENT = re.compile(r"#\s*\S+\s*=")
OF_SENTENCE = re.compile(r"#\s*(sent_id|text)\s*=")
DOCUMENT = re.compile(r"\s*(\d+\s+)?-DOCSTART-", re.IGNORECASE)
NO_WORD = re.compile(r"\d+[-.]\d+")  # the number of a multiword token or of an empty node


@dataclass(frozen=True)
class Sentence:
    """The words of a sentence, one tag for each word, and the line in the file of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    lines: tuple[int, ...] = field(default=(), compare=False)


Block = tuple[list[tuple[int, str]], int]  # numbered lines between blank lines, and the line of a sentence's name, or 0
Parsed = tuple[str, str] | str | None  # word and tag; what is wrong with a line; None for a line without a word


def format_of(path: Path) -> str:
    """Return the suffix of a file if it is one of FORMATS, such as ".conllu", else ""; compression is disregarded."""
    suffix = unpacked_suffix(path)
    return suffix if suffix in FORMATS else ""


def tags_of(path: Path) -> str:
    """Return what the tags of a file are by its suffix: parts of speech (`pos`), else named entities (`ner`)."""
    return FORMATS.get(format_of(path), "ner")


def read(path: Path) -> list[Sentence]:
    """Return a file's sentences, with parts of speech or entities in IOB2 by its suffix. Raises InputError."""
    sentences = [sentence for sentence in read_raw(path) if sentence.words]
    if tags_of(path) == "pos":
        return sentences
    refuse_untyped(path, sentences)
    return [Sentence(each.words, as_iob2(each.tags), each.lines) for each in sentences]


def holds_columns(path: Path) -> bool:
    """Return whether a file's first sentence has equal columns, two or more; also for a damaged file of its ending."""
    try:
        opening = list(itertools.islice(lines(path), LONGEST))
    except InputError:
        return bool(format_of(path))
    first = next((numbered for numbered, _ in _blocks(opening, _remarks(opening)) if numbered), [])
    widths = {len(_split(line)) for _, line in first}
    return len(widths) == 1 and min(widths) > 1


def refuse_untyped(path: Path, sentences: list[Sentence]) -> None:
    """Raise InputError, which names the line, if a tag is neither O nor a letter with a type."""
    places = [place for each in sentences if each.words for place in zip(each.lines, each.tags, strict=True)]
    what = "tag {!r} is not O, B-TYPE or I-TYPE (or E-, S-, L-, U-TYPE)"
    _refuse(path, [(line, what.format(tag[:40])) for line, tag in places if not TAG.fullmatch(tag)])


def read_raw(path: Path, column: str = "") -> list[Sentence]:
    """Return the sentences of a file with the tags of a column as they are written. Raises InputError.

    `column` is a word of CONLLU_TAGS, or the number of a column from 1; by default it is chosen as described above. A
    sentence that the file names, but without words, is returned with no words and the line of its name.
    """
    conllu, text = unpacked_suffix(path) == CONLLU, list(lines(path))
    blocks = list(_blocks(text, (lambda line: line.startswith("#")) if conllu else _remarks(text)))
    parse = _of_conllu(path, column) if conllu else _of_columns(path, column, blocks)
    wrong: list[tuple[int, str]] = []
    sentences = [_sentence(block, parse, wrong) for block in blocks if any(block)]
    _refuse(path, wrong)
    if not any(sentence.words for sentence in sentences):
        raise InputError(f"{path} holds no tagged sentences")
    return sentences


def _refuse(path: Path, wrong: list[tuple[int, str]]) -> None:
    """Raise InputError with what is wrong in the first of some lines, and how many there are."""
    if wrong:
        number, what = wrong[0]
        more = f" (the first of {len(wrong):,} lines that cannot be read)" if len(wrong) > 1 else ""
        raise InputError(f"{path}, line {number}: {what}{more}")


def _blocks(text: list[str], is_comment: Callable[[str], bool]) -> Iterator[Block]:
    numbered: list[tuple[int, str]] = []
    name = 0  # the line of a comment that only sentences have
    for number, line in enumerate(text, 1):
        if not line.strip() or (is_comment(line) and DOCUMENT.match(line)):
            yield numbered, name
            numbered, name = [], 0
        elif not is_comment(line):
            numbered.append((number, line))
        elif OF_SENTENCE.match(line):
            name = number
    yield numbered, name


def _sentence(block: Block, parse: Callable[[str], Parsed], wrong: list[tuple[int, str]]) -> Sentence:
    """Return the words of a block; lines that cannot be read are added to `wrong`, with the reason."""
    numbered, name = block
    words, tags, numbers = [], [], []
    for number, line in numbered:
        parsed = parse(line)
        if isinstance(parsed, str):
            wrong.append((number, parsed))
        elif parsed is not None and max(map(len, parsed)) > LONGEST:
            wrong.append((number, f"a word or tag has more than {LONGEST:,} characters"))
        elif parsed is not None:
            words.append(parsed[0])
            tags.append(parsed[1])
            numbers.append(number)
    return Sentence(tuple(words), tuple(tags), tuple(numbers or [name or numbered[0][0]]))


def _of_conllu(path: Path, column: str) -> Callable[[str], Parsed]:
    """Return the function that parses a line of CoNLL-U. Raises InputError if it has no such column."""
    place = CONLLU_TAGS.get(column.lower() or "pos")
    if place is None:
        raise InputError(f"{path}#{column}: the tags of CoNLL-U are pos, xpos and ner (name=... in column 10)")

    def parse(line: str) -> Parsed:
        columns = line.split("\t")
        if len(columns) != CONLLU_COLUMNS:
            return f"{len(columns)} columns, and CoNLL-U has 10, separated by tabs"
        if NO_WORD.fullmatch(columns[0]):
            return None
        if not columns[0].isdecimal():
            return f"column 1 must be the number of the word in CoNLL-U, and is {columns[0][:40]!r}"
        word, tag = columns[1].strip(), columns[place].strip()
        if not word:
            return "column 2 holds no word"
        if place == MISC:
            tag = next((item[len("name=") :] for item in tag.split("|") if item.startswith("name=")), "")
        if tag in ("", "_"):
            return f"column {place + 1} holds no {'entity, as in name=B-PER' if place == MISC else 'part of speech'}"
        return word, tag

    return parse


def _split(line: str) -> list[str]:
    """Return the columns of a line, separated by tabs or else by blanks; a no-break space belongs to its word."""
    if "\t" in line:
        return [column.strip() for column in line.split("\t")]
    return [column for column in line.strip().split(" ") if column]


def _remarks(text: list[str]) -> Callable[[str], bool]:
    """Return the function that recognises comments and starts of documents."""
    words = (line for line in text if line.strip() and not line.startswith("#") and not DOCUMENT.match(line))
    width = len(_split(next(words, "")))

    def is_comment(line: str) -> bool:
        if not line.startswith("#"):
            return DOCUMENT.match(line) is not None
        columns = _split(line)
        hashtag = "\t" in line and not re.search(r"\s", columns[0])  # such as `#a=b`
        return len(columns) != width or bool(COMMENT.match(line) and not hashtag)

    return is_comment


def _of_columns(path: Path, column: str, blocks: list[Block]) -> Callable[[str], Parsed]:
    """Return the function that parses a line of a file in columns. Raises InputError if it has no such column."""
    opening = [_split(line) for _, line in next((numbered for numbered, _ in blocks if numbered), [])]
    width = len(opening[0]) if opening else 0
    counted = [columns[0] for columns in opening if not NO_WORD.fullmatch(columns[0])]
    numbered = width >= 3 and counted == [str(number) for number in range(1, len(counted) + 1)]
    typed = numbered and all(TAG.fullmatch(columns[2]) for columns in opening if len(columns) == width)
    if numbered and not (typed or column) and width == CONLLU_COLUMNS:
        raise InputError(f"{path} has the columns of CoNLL-U; give it the ending .conllu, or name a column: {path}#4")
    if column and not (column.isdecimal() and 2 <= int(column) <= width):
        raise InputError(f"{path}#{column}: a column of tags has a number from 2 to {width} here")
    place = int(column) - 1 if column else 2 if typed else width - 1

    def parse(line: str) -> Parsed:
        columns = _split(line)
        if len(columns) < 2:
            return "one column, and there must be a word and its tag"
        if len(columns) != width:
            return f"{len(columns)} columns, and the first word of the file has {width}"
        if numbered and NO_WORD.fullmatch(columns[0]):
            return None
        if not columns[numbered].strip():
            return "there is no word before the tag"
        return (columns[numbered], columns[place]) if columns[place] else f"column {place + 1} holds no tag"

    return parse


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
    """Return the scheme of tagged sentences: by letters of one scheme alone, else the scheme that more tags follow."""
    letters = {tag[0] for tags in sentences for tag in tags}
    for letter, scheme in {"E": "BIOES", "S": "BIOES", "L": "BILOU", "U": "BILOU"}.items():
        if letter in letters:
            return scheme
    return min(("IOB2", "IOB1"), key=lambda scheme: sum(len(deviations(tags, scheme)) for tags in sentences))


def deviations(tags: Sequence[str], scheme: str) -> list[int]:
    """Return the words whose tag differs from the scheme's tag for the spans of the sentence."""
    right = encode(spans(tags), len(tags), scheme)
    return [place for place, (tag, other) in enumerate(zip(tags, right, strict=True)) if tag != other]


def as_iob2(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the tags of a sentence in IOB2, with the same spans."""
    return tuple(encode(spans(tags), len(tags), "IOB2"))


def marks_spans(tags: Iterable[str]) -> bool:
    """Return whether tags mark spans: O with typed tags, or typed tags alone, unlike parts of speech."""
    names = set(tags)
    typed = {tag for tag in names if tag != "O" and TAG.fullmatch(tag)}
    return bool(typed) and ("O" in names or typed == names)
