"""Tagged sentences: CoNLL-U and columns as they are found, faults by line, and spans of tags against seqeval."""

from __future__ import annotations

import gzip
import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.data.tagged_sentences import (
    Sentence,
    as_iob2,
    deviations,
    encode,
    format_of,
    marks_spans,
    read,
    read_raw,
    scheme_of,
    spans,
)
from workbench.errors import InputError

CONLLU = """# sent_id = 1
# text = Sie kommt zum Haus.
1\tSie\tsie\tPRON\t_\t_\t2\tnsubj\t_\t_
2\tkommt\tkommen\tVERB\t_\t_\t0\troot\t_\t_
3-4\tzum\t_\t_\t_\t_\t_\t_\t_\t_
3\tzu\tzu\tADP\t_\t_\t5\tcase\t_\t_
4\tdem\tder\tDET\t_\t_\t5\tdet\t_\t_
4.1\tleer\t_\tNOUN\t_\t_\t_\t_\t_\t_
5\tHaus\tHaus\tNOUN\t_\t_\t2\tobl\t_\tSpaceAfter=No
6\t.\t.\tPUNCT\t_\t_\t2\tpunct\t_\t_


1\t10 000\t_\tNUM\t_\t_\t0\troot\t_\t_
"""


def file(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["a.conllu", "a.iob2.gz"])
def test_a_pipe_is_refused_and_nobody_is_waited_for(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match="is not a regular file but a folder, pipe"):
        read(tmp_path / name)


def test_conllu_gives_syntactic_words(tmp_path: Path) -> None:
    first, second = read(file(tmp_path, "a.conllu", CONLLU))
    assert first == Sentence(
        ("Sie", "kommt", "zu", "dem", "Haus", "."), ("PRON", "VERB", "ADP", "DET", "NOUN", "PUNCT")
    )
    assert second == Sentence(("10 000",), ("NUM",))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("uner.iob2", "# newdoc\n# text = Ann O\n1\tAnn\tB-PER\tx\ty\n2\tLee\tI-PER\tx\ty\n3\t#\tO\tx\ty\n"),
        ("wnut.conll", "Ann\tB-PER\nLee\tI-PER\n#\tO\n"),
        ("a.test.annotated", "Ann\tI-PER\nLee\tI-PER\n#\tO\n"),
        ("conll2003.iob", "-DOCSTART- -X- -X- O\n\nAnn NNP B-NP I-PER\nLee NNP I-NP I-PER\n# NN I-NP O\n"),
    ],
)
def test_columns_of_entities_are_found(name: str, content: str, tmp_path: Path) -> None:
    assert read(file(tmp_path, name, content)) == [Sentence(("Ann", "Lee", "#"), ("B-PER", "I-PER", "O"))]


def test_stray_and_changed_entities_begin_anew() -> None:
    assert spans(("I-PER", "I-PER", "I-LOC", "O", "B-LOC", "B-LOC", "I-LOC")) == {
        (0, 2, "PER"), (2, 3, "LOC"), (4, 5, "LOC"), (5, 7, "LOC"),
    }  # fmt: skip
    assert spans(()) == set() and spans(("O",)) == set()


def test_packed_files_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.conllu.gz").write_bytes(gzip.compress(CONLLU.replace("\n", "\r\n").encode()))
    assert read(tmp_path / "a.conllu.gz") == read(file(tmp_path, "b.conllu", CONLLU))
    assert format_of(Path("x.CONLLU.xz")) == ".conllu" and format_of(Path("x.csv")) == format_of(Path("iob2")) == ""


DANE = """# sent_id = 1
1\tAnn\tAnn\tPROPN\tNP\t_\t0\troot\t_\tSpaceAfter=No|name=B-PER
2\tLee\tLee\tPROPN\tNP\t_\t1\tflat\t_\tname=I-PER
3\tgår\tgå\tVERB\tVA\t_\t1\tdep\t_\tname=O|SpaceAfter=No
"""


@pytest.mark.parametrize(
    ("column", "tags"),
    [
        ("", ("PROPN", "PROPN", "VERB")), ("upos", ("PROPN", "PROPN", "VERB")), ("xpos", ("NP", "NP", "VA")),
        ("ner", ("B-PER", "I-PER", "O")), ("NER", ("B-PER", "I-PER", "O")),
    ],
)  # fmt: skip
def test_columns_of_conllu_are_chosen_by_name(column: str, tags: tuple[str, ...], tmp_path: Path) -> None:
    (sentence,) = read_raw(file(tmp_path, "ddt.conllu", DANE), column)
    assert sentence == Sentence(("Ann", "Lee", "går"), tags) and sentence.lines == (2, 3, 4)


CHUNKS = "-DOCSTART- -X- O O\n\nEU NNP B-NP I-ORG\n# # I-NP O\n. . O O\n\n# text = no words here\nCall VB B-VP O\n"


@pytest.mark.parametrize(
    ("column", "tags"), [("", ("I-ORG", "O", "O")), ("2", ("NNP", "#", ".")), ("3", ("B-NP", "I-NP", "O"))]
)
def test_columns_are_chosen_by_number(column: str, tags: tuple[str, ...], tmp_path: Path) -> None:
    first, second = read_raw(file(tmp_path, "eng.testa", CHUNKS), column)
    assert first == Sentence(("EU", "#", "."), tags) and second.words == ("Call",)


def test_spans_of_every_scheme_are_read_as_iob2(tmp_path: Path) -> None:
    for content in ("a S-X\nb B-X\nc E-X\n", "a U-X\nb B-X\nc L-X\n", "a I-X\nb B-X\nc I-X\n"):
        (sentence,) = read(file(tmp_path, "a.conll", content))
        assert sentence.tags == ("B-X", "B-X", "I-X")


def test_sentences_without_words_are_kept_where_asked(tmp_path: Path) -> None:
    empty = "# sent_id = 2\n\n# sent_id = 3\n1-2\tzum\t" + "\t".join("_" * 8) + "\n\n# a remark alone\n"
    path = file(tmp_path, "a.conllu", CONLLU + "\n" + empty)
    assert [each.lines[0] for each in read_raw(path) if not each.words] == [15, 17]
    assert len(read(path)) == 2


@pytest.mark.parametrize(
    ("name", "column", "content", "message"),
    [
        ("a.conllu", "", "", "a.conllu holds no tagged sentences"),
        ("a.conllu", "", "# only = this\n\n", "holds no tagged sentences"),
        ("a.conllu", "", "1 Sie sie PRON\n", "line 1: 1 columns, and CoNLL-U has 10"),
        ("a.conllu", "", "1\ta\t_\t_\t_\t_\t_\t_\t_\t_\n", "line 1: column 4 holds no part of speech"),
        ("a.conllu", "", "1\t \t_\tX\t_\t_\t_\t_\t_\t_\n", "line 1: column 2 holds no word"),
        ("a.conllu", "", "x\ta\t_\tX\t_\t_\t_\t_\t_\t_\n", "column 1 must be the number of the word in .*, and is 'x'"),
        ("a.conllu", "", f"1\t{'a' * 2000}\t_\tX\t_\t_\t_\t_\t_\t_\n", "more than 1,000 characters"),
        ("a.iob2", "", "Ann\n", "line 1: one column, and there must be a word and its tag"),
        ("a.iob2", "", "\tO\n", "no word before the tag"),
        ("a.iob2", "", "\nAnn\tX-PER\n", "line 2: tag 'X-PER' is not O, B-TYPE or I-TYPE"),
        ("a.iob2", "", "1\tAnn\tB-\n", "tag 'B-' is not O"),
        ("a.txt", "", "a O\nb PER\n\nc B-X\nd X-Y\n", "line 2: tag 'PER' is not O, B-TYPE .*the first of 2 lines"),
        ("a.conllu", "chunk", DANE, "a.conllu#chunk: the tags of CoNLL-U are pos, xpos and ner"),
        ("a.conllu", "ner", DANE.replace("name=", "x="), r"line 2: column 10 holds no entity.*first of 3 lines"),
        ("a.conll", "", DANE, "has the columns of CoNLL-U; give it the ending .conllu, or name a column"),
        ("a.txt", "5", CHUNKS, "a.txt#5: a column of tags has a number from 2 to 4 here"),
        ("a.txt", "1", CHUNKS, "number from 2 to 4"),
        ("a.txt", "pos", CHUNKS, "number from 2 to 4"),
        ("a.txt", "", "a X\nb\nc Y\nd\n", r"line 2: one column, .* \(the first of 2 lines that cannot be read\)"),
        ("a.txt", "", "a B I-X\nb O\n", "line 2: 2 columns, and the first word of the file has 3"),
        ("a.txt", "2", "a\tX\tY\nb\t\tY\n", "line 2: column 2 holds no tag"),
        ("a.txt", "", "a Y\nb " + "x" * 2000 + "\n", "line 2: a word or tag has more than 1,000 characters"),
        ("a.txt", "", "-DOCSTART- O\n\n", "holds no tagged sentences"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    name: str, column: str, content: str, message: str, tmp_path: Path
) -> None:
    path = file(tmp_path, name, content)
    with pytest.raises(InputError, match=message):
        read_raw(path, column) if column else read(path)


def test_a_hashtag_with_an_equals_sign_is_a_word(tmp_path: Path) -> None:
    path = tmp_path / "tweets.conll"
    path.write_text("# id = 1\nsee\tO\n#a=b\tO\n#x=\tB-LOC\n#\tO\n\n# text = tabs\there\nend\tO\n\n")
    assert [sentence.words for sentence in read_raw(path)] == [("see", "#a=b", "#x=", "#"), ("end",)]


def test_a_no_break_space_belongs_to_its_word(tmp_path: Path) -> None:
    path = file(tmp_path, "a.txt", "10\u00a0000  O \nkr.\u3000 B-X\n\u00a0b O\n")
    assert read_raw(path)[0].words == ("10\u00a0000", "kr.\u3000", "b") and read_raw(path)[0].tags == ("O", "B-X", "O")
    with pytest.raises(InputError, match="line 1: one column"):
        read_raw(file(tmp_path, "b.txt", "\u00a0 O\n"))


STARTS = ["-DOCSTART- O", "-DOCSTART-\tO", "-DOCSTART-", " -DOCSTART- (1)", "1\t-DOCSTART-\tO", "-docstart- o"]


@pytest.mark.parametrize("start", [*STARTS, "-DOCSTART- -X- O O"])
def test_the_start_of_a_document_ends_a_sentence_and_is_no_word(start: str, tmp_path: Path) -> None:
    path = tmp_path / "t.conll"
    path.write_text(f"{start}\nEU B-ORG\nJohn B-PER\n{start}\nSmith I-PER\n\n{start}\n\nAnna B-PER\n{start}\n")
    assert [sentence.words for sentence in read(path)] == [("EU", "John"), ("Smith",), ("Anna",)]
    assert read(path)[1].tags == ("B-PER",)


def test_lines_that_end_in_carriage_returns_alone_are_the_same_sentences(tmp_path: Path) -> None:
    content = "-DOCSTART- O\n\na B-X\nb O\n\n# c = d\nc O\n"
    for name, end in (("unix", "\n"), ("mac", "\r"), ("windows", "\r\n")):
        (tmp_path / f"{name}.conll").write_bytes(content.replace("\n", end).encode())
    unix, mac, windows = (read(tmp_path / f"{name}.conll") for name in ("unix", "mac", "windows"))
    assert len(unix) == 2 and unix == mac == windows


# ---- spans and schemes ----


TYPES = ("PER", "LOC", "A-B")
WORDS_OF = {"IOB2": "BI", "IOB1": "BI", "BIOES": "BIES", "BILOU": "BILU"}


def tags_of(letters: str) -> st.SearchStrategy[list[str]]:
    """Return sequences of tags in any order, most of which follow no scheme."""
    typed = [f"{letter}-{kind}" for letter in letters for kind in TYPES]
    return st.lists(st.sampled_from(["O", *typed]), max_size=12)


@st.composite
def some_spans(draw: st.DrawFn) -> tuple[int, set[tuple[int, int, str]]]:
    """Return a number of words and spans of them that do not overlap."""
    length = draw(st.integers(0, 12))
    ends = sorted(draw(st.sets(st.integers(0, length), max_size=8)))
    chosen = [(a, b, draw(st.sampled_from((*TYPES, "")))) for a, b in itertools.pairwise(ends)]
    return length, {span for span in chosen if span[2]}


def seqeval() -> Any:
    return pytest.importorskip("seqeval.metrics.sequence_labeling", reason="seqeval is not installed")


@given(tags=tags_of("BIES"))
def test_spans_are_those_of_seqevals_default_mode(tags: list[str]) -> None:
    found = {(first, last + 1, kind) for kind, first, last in seqeval().get_entities(tags)}
    assert spans(tags) == found


@given(tags=tags_of("BILU"))
def test_the_letters_of_bilou_stand_for_those_of_bioes(tags: list[str]) -> None:
    renamed = [tag.replace("L-", "E-", 1).replace("U-", "S-", 1) if tag[0] in "LU" else tag for tag in tags]
    assert spans(tags) == spans(renamed)


@given(drawn=some_spans())
@pytest.mark.parametrize("scheme", WORDS_OF)
def test_spans_survive_every_scheme(scheme: str, drawn: tuple[int, set[tuple[int, int, str]]]) -> None:
    length, wanted = drawn
    tags = encode(wanted, length, scheme)
    assert spans(tags) == wanted and {tag[0] for tag in tags} <= {"O", *WORDS_OF[scheme]}
    assert deviations(tags, scheme) == [] and as_iob2(tags) == tuple(encode(wanted, length, "IOB2"))


@given(drawn=some_spans())
@pytest.mark.parametrize("scheme", WORDS_OF)
def test_tags_are_those_of_seqevals_strict_schemes(scheme: str, drawn: tuple[int, set[tuple[int, int, str]]]) -> None:
    seqeval()
    from seqeval import scheme as schemes

    name = {"BIOES": "IOBES", "BILOU": "BILOU"}.get(scheme, scheme)
    length, wanted = drawn
    read = schemes.Entities([encode(wanted, length, scheme)], getattr(schemes, name)).entities[0]
    assert {(each.start, each.end, each.tag) for each in read} == wanted


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        ([["B-A", "I-A", "O"]], "IOB2"),
        ([["I-A", "I-A", "B-A", "O"], ["I-B"]], "IOB1"),
        ([["I-A", "O"], ["B-A", "I-A"], ["B-A"]], "IOB2"),  # one tag that deviates from IOB2, two from IOB1
        ([["S-A", "O"]], "BIOES"),
        ([["B-A", "E-A", "O"]], "BIOES"),
        ([["B-A", "L-A"]], "BILOU"),
        ([["U-A"]], "BILOU"),
        ([["O"]], "IOB2"),
    ],
)
def test_a_scheme_is_known_by_its_letters_or_by_what_follows_it(sentences: list[list[str]], scheme: str) -> None:
    assert scheme_of(sentences) == scheme


def test_tags_that_do_not_follow_a_scheme_are_found() -> None:
    assert deviations(["O", "I-A", "I-A", "B-B", "I-A"], "IOB2") == [1, 4]
    assert deviations(["B-A", "O", "E-B", "S-A", "I-A"], "BIOES") == [0, 2, 4]
    assert deviations(["B-A", "I-A"], "IOB1") == [0]


@pytest.mark.parametrize(
    ("tags", "typed"),
    [
        (("O", "B-A"), True), (("B-A", "I-A"), True), (("O", "B-A", "oops"), True), (("O",), False),
        (("B", "I", "O"), False), (("NOUN", "VERB"), False), (("NOUN", "B-A"), False), ((), False),
    ],
)  # fmt: skip
def test_parts_of_speech_mark_no_spans(tags: tuple[str, ...], typed: bool) -> None:
    assert marks_spans(tags) is typed
