"""Tagged sentences: CoNLL-U and IOB2 as they are found, and files that are not what their name says."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from workbench.data.tagged import Sentence, format_of, read, spans
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
        ("uner.iob2", "# sent_id = 1\n# text = Ann O\n1\tAnn\tB-PER\tx\ty\n2\tLee\tI-PER\tx\ty\n3\t#\tO\tx\ty\n"),
        ("wnut.conll", "Ann\tB-PER\nLee\tI-PER\n#\tO\n"),
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


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.conllu", "", "a.conllu holds no tagged sentences"),
        ("a.conllu", "# only = this\n\n", "holds no tagged sentences"),
        ("a.conllu", "1 Sie sie PRON\n", "line 1: 1 columns, and CoNLL-U has 10"),
        ("a.conllu", "1\ta\t_\t_\t_\t_\t_\t_\t_\t_\n", "line 1: column 4 holds no part of speech"),
        ("a.conllu", "1\t \t_\tX\t_\t_\t_\t_\t_\t_\n", "line 1: column 2 holds no word"),
        (
            "a.conllu",
            "x\ta\t_\tX\t_\t_\t_\t_\t_\t_\n",
            "column 1 must be the number of the word in CoNLL-U, and is 'x'",
        ),
        ("a.conllu", f"1\t{'a' * 2000}\t_\tX\t_\t_\t_\t_\t_\t_\n", "more than 1,000 characters"),
        ("a.iob2", "Ann\n", "line 1: one column, and IOB2 has a word and its tag"),
        ("a.iob2", "\tO\n", "no word before the tag"),
        ("a.iob2", "\nAnn\tE-PER\n", "line 2: tag 'E-PER' is not O, B-TYPE or I-TYPE"),
        ("a.iob2", "1\tAnn\tB-\n", "tag 'B-' is not O"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(name: str, content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read(file(tmp_path, name, content))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_bytes(b"1\t\xff\t_\tX\n")
    with pytest.raises(InputError, match="not UTF-8"):
        read(tmp_path / "a.conllu")
