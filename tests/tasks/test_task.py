"""Tasks as plain data: rows, questions, parts held out, and fingerprints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from glue_lines import HEADERS, load, rte, write, write_both

from workbench import tasks
from workbench.data.tagged_sentences import Sentence
from workbench.spec.parts import TasksSpec
from workbench.tasks.common.examples import Examples, Task, fingerprinted, held_out, numbered


def test_rows_held_out_come_from_training_and_are_no_longer_learnt(keyword: Task) -> None:
    def rows(part: Examples) -> list[tuple[str, object]]:
        return list(zip(part.first, part.targets, strict=True))

    found = held_out(keyword, 0.25)
    asked = found.tests["held-out"]
    assert list(found.tests) == ["held-out"] and len(asked) == round(0.25 * len(keyword.train))
    assert sorted(rows(found.train) + rows(asked)) == sorted(rows(keyword.train))
    assert found.fingerprint != keyword.fingerprint and found == held_out(keyword, 0.25)
    assert held_out(keyword, 0.0) is keyword


def test_rows_cap_training_only_and_change_the_fingerprint(tmp_path: Path) -> None:
    lines = [f"{i}\ta {i}\tb {i}\t{'entailment' if i % 2 else 'not_entailment'}" for i in range(50)]
    write_both(tmp_path, "RTE", HEADERS["RTE"], *lines)
    (whole,), (few,), (again,) = (load(tmp_path, "RTE", rows=n).tasks for n in (None, 10, 10))
    assert (len(whole.train), len(few.train), len(few.tests["dev"])) == (50, 10, 50)
    assert few == again and few.fingerprint != whole.fingerprint
    assert set(few.train.first) < set(whole.train.first)
    kept = {text: (b, t) for text, b, t in zip(whole.train.first, whole.train.second or [], whole.train.targets)}  # noqa: B905
    for text, second, target in zip(few.train.first, few.train.second or [], few.train.targets, strict=True):
        assert kept[text] == (second, target)


def test_fingerprint_covers_every_text_and_target(tmp_path: Path) -> None:
    seen = set()
    for number, row in enumerate(("0\ta\tb\tentailment", "0\ta\tc\tentailment", "0\ta\tb\tnot_entailment")):
        folder = tmp_path / str(number)
        rte(folder)
        write(folder / "RTE" / "dev.tsv", HEADERS["RTE"], row)
        seen.add(load(folder, "RTE").tasks[0].fingerprint)
    assert len(seen) == 3


def choice(questions: int) -> Task:
    """Return a choice whose questions have two and three answers in turn, the first of them right."""
    groups = [number for number in range(questions) for _ in range(2 + number % 2)]
    targets = [int(row == 0 or groups[row] != groups[row - 1]) for row in range(len(groups))]
    rows = Examples([f"q{n}" for n in groups], [f"a{n}" for n in range(len(groups))], targets, groups)
    return Task("c", "table", ("no", "yes"), "accuracy", ("accuracy",), 1.0, rows, {"dev": rows}, choice=True)


def test_a_question_is_kept_or_left_out_with_all_of_its_answers() -> None:
    task = choice(30)
    assert [len(rows) for rows in task.units(task.train)] == [2, 3] * 15
    for part in (fingerprinted(task, 7).train, held_out(task, 0.25).train, held_out(task, 0.25).tests["held-out"]):
        answers = {group: sum(other == group for other in part.groups or ()) for group in part.groups or ()}
        assert all(count == 2 + group % 2 for group, count in answers.items())
        assert sum(part.targets) == len(answers)
    assert len(fingerprinted(task, 7).train.questions()) == 7
    assert fingerprinted(task, 30).train == task.train and fingerprinted(task, 7) == fingerprinted(task, 7)


def test_a_part_is_held_out_however_small_the_share_and_never_all() -> None:
    task = choice(3)
    for share, count in ((0.01, 1), (0.99, 2)):
        assert len(held_out(task, share).tests["held-out"].questions()) == count


def test_targets_become_arrays_of_their_kind() -> None:
    rows = Examples(["a", "b"], None, [1, 0])
    task = Task("t", "table", ("x", "y", "z"), "accuracy", ("accuracy",), 3.0, rows, {"dev": rows})
    assert task.kind == "classification" and task.outputs == 3 and task.array(rows).dtype == np.int64
    several = replace(task, multilabel=True)
    assert several.kind == "multilabel" and several.outputs == 3
    assert several.array(Examples(["a", "b"], None, [[0, 2], []])).tolist() == [[1, 0, 1], [0, 0, 0]]
    number = replace(task, labels=())
    assert number.kind == "regression" and number.outputs == 1 and number.array(rows).dtype == np.float64
    assert choice(2).kind == "choice" and choice(2).outputs == 1
    assert task.units(rows) == [[0], [1]]


def test_settings_of_a_score_are_those_that_change_it() -> None:
    rows = Examples(["a"], None, [0])
    task = Task("t", "table", ("x",), "accuracy", ("accuracy",), 3.0, rows, {"dev": rows})
    plain = task.settings(TasksSpec())
    assert plain["epochs"] == 3.0 and "lm_weight" not in plain  # older scores have no such setting
    assert task.settings(TasksSpec(epochs=5.0))["epochs"] == 5.0
    assert task.settings(TasksSpec(lm_weight=0.5))["lm_weight"] == 0.5
    assert task.settings(TasksSpec(glue="elsewhere")) == plain


def test_rows_of_unequal_numbers_are_no_examples() -> None:
    with pytest.raises(AssertionError):
        Examples(["a", "b"], ["c"], [0, 1])
    tagged = numbered([Sentence(("a", "b"), ("Y", "X")), Sentence(("c",), ("Y",))], ("X", "Y"))
    assert tagged.words == [["a", "b"], ["c"]] and tagged.targets == [[1, 0], [1]] and tagged.count() == 3
    assert tagged.take([1]).targets == [[1]]


# ---- which rows a score is of ----


def text_rows(name: str) -> list[str]:
    return ["text,label", *(f"{name} number {n} of {'xy'[n % 2]},{'xy'[n % 2]}" for n in range(30))]


def pair_rows(name: str) -> list[str]:
    return ["sentence1,sentence2,score", *(f"{name} a {n},{name} b {n},{n / 2}" for n in range(30))]


def choice_rows(name: str) -> list[str]:
    return ["premise,choice1,choice2,label", *(f"{name} is {n},left {n},right {n},{n % 2}" for n in range(30))]


def span_rows(name: str) -> list[str]:
    return ["text,span1_text,span2_text,label", *(f"{name} sees {n},{name},{n},{'xy'[n % 2]}" for n in range(30))]


def word_rows(name: str) -> list[str]:
    return [line for n in range(30) for line in (f"{name}{n} NOUN", "runs VERB", "")]


KINDS = {
    "{}": (".csv", text_rows), "choice:{}": (".csv", choice_rows), "spans:{}": (".csv", span_rows),
    "similarity:{}": (".csv", pair_rows), "tag:{}": (".conll", word_rows), "linear:{}": (".csv", text_rows),
}  # fmt: skip


@pytest.mark.parametrize("form", KINDS)
def test_every_kind_is_tested_on_test_or_else_on_dev(form: str, tmp_path: Path) -> None:
    """Settings may have been chosen on dev, so a score is of it only where there is no other part; one rule for all."""
    suffix, rows = KINDS[form]
    for part in ("train", "valid", "test"):
        (tmp_path / f"set.{part}{suffix}").write_text("\n".join(rows(part)) + "\n")
    (tmp_path / f"alone{suffix}").write_text("\n".join(rows("w")) + "\n")

    def tested(name: str) -> list[str]:
        (task,) = tasks.read(TasksSpec(names=(form.format(tmp_path / f"{name}{suffix}"),))).tasks
        return list(task.tests)  # type: ignore[attr-defined]

    assert tested("set.train") == ["test", "dev"]
    (tmp_path / f"set.test{suffix}").unlink()
    assert tested("set.train") == ["dev"]
    if form != "similarity:{}":  # of frozen states, whose only part is all of a table
        assert tested("alone") == ["test"]
