"""Choices and answers from tables of one's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from superglue_made import load

from workbench.errors import InputError


@pytest.fixture
def own(tmp_path: Path) -> Callable[..., Path]:
    def made(name: str, content: str) -> Path:
        (tmp_path / name).write_text(content)
        return tmp_path / name

    return made


def test_a_table_of_choices_needs_no_code(own: Callable[..., Path]) -> None:
    head = "context,question,ending0,ending1,ending2,label\n"
    own("exam.dev.csv", head + "k,l,m,n,o,0\n")
    path = own("exam.train.csv", head + "a,b,c,d,e,2\nf,g,h,i,j,1\n")
    (task,) = load(f"choice:{path}")
    assert task.name == "choice:exam" and task.suite == "table" and list(task.tests) == ["dev"]
    assert task.train.first == ["a b"] * 3 + ["f g"] * 3 and task.train.second == list("cdehij")
    assert task.train.targets == [0, 0, 1, 0, 1, 0] and task.tests["dev"].targets == [1, 0, 0]


def test_a_column_whose_number_is_too_long_is_no_choice(own: Callable[..., Path]) -> None:
    path = own("exam.csv", f"question,choice1,choice{'9' * 5000},label\na,b,c,0\n")
    with pytest.raises(InputError, match="has no columns choice1, choice2 and so on"):
        load(f"choice:{path}")


def test_choices_in_a_list_may_vary_in_number(own: Callable[..., Path]) -> None:
    rows = [{"question": f"q{i}", "choices": ["a", "b", "c"][: 2 + i % 2], "label": i % 2,
             "split": "train" if i < 8 else "test"}
            for i in range(10)]  # fmt: skip
    (task,) = load(f"choice:{own('quiz.jsonl', ''.join(json.dumps(row) + chr(10) for row in rows))}")
    assert [len(each) for each in task.train.questions()] == [2, 3] * 4 and task.tests["test"].targets == [
        1,
        0,
        0,
        1,
        0,
    ]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("premise,choice1,choice2,label\na,b,c,2\n", "line 2: label '2' is not one of 0, 1"),
        ("premise,choice1,label\na,b,0\n", "no columns choice1, choice2 and so on"),
        ("choice1,choice2,label\na,b,0\n", "no column 'premise' or 'question'"),
        ("premise,choice1,choice2\na,b,c\n", "no column 'label'"),
    ],
)
def test_tables_that_are_no_choices_are_refused(content: str, told: str, own: Callable[..., Path]) -> None:
    with pytest.raises(InputError) as caught:
        load(f"choice:{own('bad.csv', content)}")
    assert told in str(caught.value)


def test_folds_are_refused_for_choices(own: Callable[..., Path]) -> None:
    path = own("a.csv", "premise,choice1,choice2,label\na,b,c,1\n")
    with pytest.raises(InputError, match=r"tasks\.folds=3 divides tables with a label"):
        load(f"choice:{path}", folds=3)
