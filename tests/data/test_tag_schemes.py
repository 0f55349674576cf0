"""Spans of tags, against seqeval on any sequence, and the schemes in which the same spans are written."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.data.tagged_sentences import SCHEMES, as_iob2, deviations, encode, marks_spans, scheme_of, spans

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
@pytest.mark.parametrize("scheme", SCHEMES)
def test_spans_survive_every_scheme(scheme: str, drawn: tuple[int, set[tuple[int, int, str]]]) -> None:
    length, wanted = drawn
    tags = encode(wanted, length, scheme)
    assert spans(tags) == wanted and {tag[0] for tag in tags} <= {"O", *WORDS_OF[scheme]}
    assert deviations(tags, scheme) == [] and as_iob2(tags) == tuple(encode(wanted, length, "IOB2"))


@given(drawn=some_spans())
@pytest.mark.parametrize("scheme", ["IOB1", "IOB2", "BIOES", "BILOU"])
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
