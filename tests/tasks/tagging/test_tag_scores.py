"""Scores of tagging against seqeval and scikit-learn."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tagged_made import SPEC

from workbench.tasks.common.examples import Tagged
from workbench.tasks.tagging import Tagging, by_type, columns, fingerprinted, points


def read_columns(text: str) -> tuple[list[list[str]], list[list[str]]]:
    blocks = [[line.split(" ") for line in block.split("\n") if line] for block in text.split("\n\n") if block.strip()]
    return [[row[1] for row in block] for block in blocks], [[row[2] for row in block] for block in blocks]


SPANS = ("B-A", "B-B", "I-A", "I-B", "O")

ROWS = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=9), min_size=1, max_size=6
)


@settings(deadline=None)
@given(rows=ROWS)
def test_span_scores_are_seqevals_to_the_last_digit(rows: list[list[tuple[int, int]]]) -> None:
    seqeval = pytest.importorskip("seqeval.metrics", reason="seqeval is not installed")
    gold = Tagged([["w"] * len(row) for row in rows], [[true for true, _ in row] for row in rows])
    task = Tagging("n", SPANS, 5, "IOB2", gold, {"test": gold})
    predicted = np.array([guess for row in rows for _, guess in row])
    found = points(task, gold, predicted)
    true, guess = read_columns(columns(task, gold, predicted))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # F1 is undefined where there are no spans
        wanted = [f(true, guess) for f in (seqeval.f1_score, seqeval.precision_score, seqeval.recall_score,
                                           seqeval.accuracy_score)]  # fmt: skip
        report = seqeval.classification_report(true, guess, output_dict=True)
    assert list(found) == ["entity_f1", "entity_precision", "entity_recall", "accuracy"]
    assert list(found.values()) == [100 * value for value in wanted]
    types = by_type(task, gold, predicted)
    assert set(types) == set(report) - {"micro avg", "macro avg", "weighted avg"}
    for kind, values in types.items():
        other = report[kind]
        assert values["gold"] == other["support"]
        for ours, theirs in (("f1", "f1-score"), ("precision", "precision"), ("recall", "recall")):
            assert values[ours] == 100 * other[theirs]


@settings(deadline=None)
@given(rows=ROWS)
def test_scores_of_words_are_scikit_learns_to_the_last_digit(rows: list[list[tuple[int, int]]]) -> None:
    from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support

    gold = Tagged([["w"] * len(row) for row in rows], [[true for true, _ in row] for row in rows])
    task = Tagging("n", ("C", "D", "E", "A", "B"), 3, "", gold, {"test": gold})  # two tags occur in tests only
    predicted = np.array([guess % 3 for row in rows for _, guess in row])
    found = points(task, gold, predicted)
    true, guess = ([tag for tags in side for tag in tags] for side in read_columns(columns(task, gold, predicted)))
    macro = f1_score(true, guess, average="macro", zero_division=0)
    assert found == {"accuracy": 100 * accuracy_score(true, guess), "macro_f1": 100 * macro}
    types = by_type(task, gold, predicted)
    each = precision_recall_fscore_support(true, guess, labels=list(types), zero_division=0)
    for (values, *numbers), name in zip(zip(types.values(), *each, strict=True), types, strict=True):
        right = [100 * number for number in numbers[:3]]
        assert [values["precision"], values["recall"], values["f1"]] == pytest.approx(right), name
        assert values["gold"] == numbers[3]


def test_blanks_of_a_word_do_not_make_columns() -> None:
    rows = Tagged([["10 000", "a"], ["b"]], [[0, 1], [1]])
    task = Tagging("n", ("A", "B"), 2, "", rows, {"test": rows})
    assert columns(task, rows, np.array([0, 0, 1])) == "10_000 A A\na B A\n\nb B B\n\n"


def test_baselines_are_the_most_frequent_tags(tmp_path: Path) -> None:
    train, test = (
        Tagged([["a", "b", "a"], ["a", "c", "c"]], [[0, 1, 0], [1, 1, 1]]),
        Tagged([["a", "c", "d"]], [[0, 1, 0]]),
    )
    task = fingerprinted(Tagging("n", ("A", "B"), 2, "", train, {"test": test}), SPEC)
    assert task.baselines(tmp_path) == pytest.approx({"majority": 100 / 3, "word-lookup": 200 / 3})
    assert task.baselines(tmp_path) == pytest.approx({"majority": 100 / 3, "word-lookup": 200 / 3})  # from the cache
