"""Tasks as plain data: rows, questions, parts held out, and fingerprints."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
from glue_files import HEADERS, load, rte, write
from hypothesis import given
from hypothesis import strategies as st
from task_data import read

from workbench import tasks
from workbench.data.tagged_sentences import Sentence
from workbench.errors import InputError
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.store.run_directory import RunDir
from workbench.tasks import load as load_suite
from workbench.tasks.common import baselines
from workbench.tasks.common.contract import Model, score_name, take
from workbench.tasks.common.examples import (
    PART,
    Examples,
    Task,
    divided,
    held_out,
    limited,
    numbered,
    of_folds,
    over_folds,
)
from workbench.tasks.common.fine_tuning import Unfinished


def test_rows_held_out_come_from_training_and_are_no_longer_learnt(keyword: Task) -> None:
    def rows(part: Examples) -> list[tuple[str, object]]:
        return list(zip(part.first, part.targets, strict=True))

    found = held_out(keyword, 0.25)
    asked = found.tests["held-out"]
    assert list(found.tests) == ["held-out"] and len(asked) == round(0.25 * len(keyword.train))
    assert sorted(rows(found.train) + rows(asked)) == sorted(rows(keyword.train))
    assert found.fingerprint != keyword.fingerprint and found == held_out(keyword, 0.25)
    assert held_out(keyword, 0.0) is keyword


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
    for part in (limited(task, 7).train, held_out(task, 0.25).train, held_out(task, 0.25).tests["held-out"]):
        answers = {group: sum(other == group for other in part.groups or ()) for group in part.groups or ()}
        assert all(count == 2 + group % 2 for group, count in answers.items())
        assert sum(part.targets) == len(answers)
    assert len(limited(task, 7).train.questions()) == 7
    assert limited(task, 30).train == task.train and limited(task, 7) == limited(task, 7)


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
    assert tagged.words == [["a", "b"], ["c"]] and tagged.targets == [[1, 0], [1]]
    assert tagged.take([1]).targets == [[1]]


KINDS = {  # the ending of a file, its header, and the form of its rows
    "{}": (".csv", "text,label", "{word} number {n} of {label},{label}"),
    "choice:{}": (".csv", "premise,choice1,choice2,label", "{word} is {n},left {n},right {n},{right}"),
    "spans:{}": (".csv", "text,span1_text,span2_text,label", "{word} sees {n},{word},{n},{label}"),
    "similarity:{}": (".csv", "sentence1,sentence2,score", "{word} a {n},{word} b {n},{n}.5"),
    "tag:{}": (".conll", "", "{word}{n} NOUN\nruns VERB\n"),
    "linear:{}": (".csv", "text,label", "{word} number {n} of {label},{label}"),
}


@pytest.mark.parametrize("form", KINDS)
def test_every_kind_is_tested_on_test_or_else_on_dev(form: str, tmp_path: Path) -> None:
    """Settings may have been chosen on dev, so a score is of it only where there is no other part; one rule for all."""
    suffix, head, row = KINDS[form]
    for name, word in (("set.train", "train"), ("set.valid", "valid"), ("set.test", "test"), ("alone", "w")):
        rows = [row.format(word=word, n=n, label="xy"[n % 2], right=n % 2) for n in range(30)]
        (tmp_path / f"{name}{suffix}").write_text("\n".join([head, *rows]) + "\n")

    def tested(name: str) -> list[str]:
        (task,) = tasks.read(TasksSpec(names=(form.format(tmp_path / f"{name}{suffix}"),))).tasks
        return list(task.tests)  # type: ignore[attr-defined]

    assert tested("set.train") == ["test", "dev"]
    (tmp_path / f"set.test{suffix}").unlink()
    assert tested("set.train") == ["dev"]
    if form != "similarity:{}":  # of frozen states, whose only part is all of a table
        assert tested("alone") == ["test"]


SPEC = TasksSpec(lr=3e-3, layer_decay=0.9, length=32, dropout=0.0, seeds=1, epochs=4)
CPU = Host(device="cpu")


def whole(pairs: list[tuple[str, Any]], **changes: Any) -> Task:
    """A task without tests, of texts and labels."""
    texts, targets = (list(column) for column in zip(*pairs, strict=True))
    usual = Task(
        "t", "table", ("a", "b", "c"), "accuracy", ("accuracy", "macro_f1"), 3.0, Examples(texts, None, targets), {}
    )
    return replace(usual, **changes)


ROWS = st.lists(st.tuples(st.integers(0, 30).map(lambda n: f"text {n}"), st.integers(0, 2)), min_size=12, max_size=90)


@given(ROWS, st.integers(2, 5))
def test_every_row_is_tested_once_beside_its_copies_and_never_trained_on(
    pairs: list[tuple[str, int]], count: int
) -> None:
    try:
        task = divided(whole(pairs), count)
    except InputError as error:
        assert "different texts" in str(error)
        return
    tested = [row for rows in task.folds for row in rows]
    assert len(tested) == len(set(tested)) and len(task.folds) == count and all(task.folds)
    assert task.tests[PART].first == [task.train.first[row] for row in tested]
    texts: dict[int, set[str]] = {}
    for part in of_folds(task):
        assert not set(part.train.first) & set(part.tests[PART].first)
        assert len(part.train) + len(part.tests[PART]) == len(pairs)
        assert set(part.tests[PART].targets) <= set(part.train.targets)  # no label is tested that was not trained on
        assert part.folds == ()
    for text, label in pairs:
        texts.setdefault(label, set()).add(text)
    left = set(range(len(pairs))) - set(tested)
    alone = {text for those in texts.values() if len(those) == 1 for text in those}
    assert alone <= {task.train.first[row] for row in left} and bool(task.notes) == bool(left)


def test_folds_are_of_one_size_and_have_the_shares_of_the_labels() -> None:
    pairs = [(f"text {n}", 0 if n % 10 else 1 + n % 20 // 10) for n in range(1000)]
    task = divided(whole(pairs), 7)
    assert {len(rows) for rows in task.folds} == {142, 143}
    for rows in task.folds:
        counts = Counter(task.train.targets[row] for row in rows)
        assert counts[0] in range(127, 131) and counts[1] in (7, 8) and counts[2] in (7, 8)


def test_folds_depend_on_texts_alone() -> None:
    pairs = [(f"text {n}", n % 3) for n in range(60)]
    one, other = (divided(whole(rows), 4) for rows in (pairs, pairs[::-1]))
    sides = [[sorted(part.tests[PART].first) for part in of_folds(task)] for task in (one, other)]
    assert sides[0] == sides[1]
    assert one.fingerprint != divided(whole(pairs), 5).fingerprint != whole(pairs).fingerprint


def test_several_labels_a_row_are_dealt_out_by_the_rarest() -> None:
    pairs = [(f"text {n}", [0] + [1] * (n % 10 == 0) + [2] * (n == 7)) for n in range(60)]
    task = divided(whole(pairs, multilabel=True, metric="macro_f1", metrics=("macro_f1",)), 3)
    assert [sum(1 in task.train.targets[row] for row in rows) for rows in task.folds] == [2, 2, 2]
    assert sum(map(len, task.folds)) == 59  # the only row with label 2 is trained on in every fold
    assert task.notes == ("1 row with a label of too few texts can be trained on in every fold, and tested in none",)


def write_rows(path: Path, count: int = 40, **more: Any) -> Path:
    """A classification that the word bada decides."""
    words = [f"{'bada' if i % 2 else 'kefe'} logo {'mini ' * (i % 5)}ketu" for i in range(count)]
    lines = [{"text": f"{words[i]} {'abcdefghij'[i % 10]}{i}", "label": "ny"[i % 2], **more} for i in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_table_is_divided_if_asked(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "t.jsonl")
    task = read(path, folds=5)
    assert (len(task.train), len(task.tests[PART]), len(task.folds)) == (40, 40, 5) and list(task.tests) == [PART]
    assert list(read(path).tests) == ["test"] and read(path).folds == ()
    few = read(path, folds=5, rows=20)
    assert len(few.train) == 20 and {row for rows in few.folds for row in rows} == set(range(20))
    (loaded,) = load_suite(TasksSpec(names=str(path), folds=5), tmp_path).tasks
    assert set(loaded.baselines()) == {"majority", "bag-of-words"}


def test_what_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"tasks\.folds=5 divides a table that has no rows to test on, and .* has parts"
    ):
        read(write_rows(tmp_path / "split.jsonl", split="train"), folds=5)
    with pytest.raises(InputError, match=r"tasks\.folds=50 needs 50 different texts, and t has 40 that can be tested"):
        read(write_rows(tmp_path / "t.jsonl"), folds=50)
    with pytest.raises(InputError, match=r"linear probes do not have tasks\.folds"):
        load_suite(TasksSpec(names=f"linear:{tmp_path / 't.jsonl'}", folds=5), tmp_path)


def test_a_search_holds_out_rows_and_has_no_folds(tmp_path: Path) -> None:
    task = held_out(read(write_rows(tmp_path / "t.jsonl"), folds=5), 0.25)
    assert task.folds == () and list(task.tests) == ["held-out"] and len(task.train) == 30


def test_labels_are_pooled_and_orders_are_averaged() -> None:
    draw = np.random.default_rng(0)
    metrics = ("accuracy", "macro_f1", "matthews", "average_precision")
    task = whole([(f"t {n}", n % 3) for n in range(60)], metrics=metrics)
    targets = [draw.integers(0, 3, size) for size in (13, 9, 20)]
    outputs = [draw.normal(size=(len(each), 3)) + shift for each, shift in zip(targets, (0, 5, -5), strict=True)]
    found = over_folds(task, outputs, targets)
    predicted, true = np.concatenate([each.argmax(1) for each in outputs]), np.concatenate(targets)
    assert found["accuracy"] == sklearn.metrics.accuracy_score(true, predicted)
    assert found["macro_f1"] == sklearn.metrics.f1_score(true, predicted, average="macro")
    assert found["matthews"] == sklearn.metrics.matthews_corrcoef(true, predicted)
    each = []
    for fold, right in zip(outputs, targets, strict=True):
        powers = np.exp(fold - fold.max(1, keepdims=True))
        shares = powers / powers.sum(1, keepdims=True)
        ones = [sklearn.metrics.average_precision_score(right == c, shares[:, c]) for c in np.unique(right)]
        each.append(np.mean(ones))
    assert found["average_precision"] == pytest.approx(np.mean(each)) and list(found) == list(metrics)


def test_a_score_is_that_of_a_fine_tuning_for_each_fold(encoder: Path, tmp_path: Path) -> None:
    task = read(write_rows(tmp_path / "t.jsonl"), folds=3)
    seen: list[tuple[int, int]] = []
    score = take(task, Model(encoder, SPEC, 1, lambda step, steps: seen.append((step, steps))), CPU)
    right = total = steps = 0
    for part in of_folds(task):
        one = take(part, Model(encoder, SPEC, 1), CPU)
        right += round(one.value * one.test_rows / 100)
        total, steps = total + one.test_rows, steps + one.steps
    assert score.value == pytest.approx(100 * right / total) and score.values[PART]["accuracy"] == score.value
    assert (score.test_rows, score.train_rows, score.steps, score.details["folds"]) == (40, 40, steps, 3)
    assert len(score.details["items"]) == total and score.details["items"].count("+") == right
    assert [step for step, _ in seen] == list(range(1, steps + 1)) and {count for _, count in seen} == {steps}
    assert score.data == task.fingerprint


def test_baselines_are_measured_over_the_same_folds(tmp_path: Path) -> None:
    task = read(write_rows(tmp_path / "t.jsonl"), folds=4)
    each = [(baselines.bag_of_words(part), len(part.tests[PART])) for part in of_folds(task)]
    assert baselines.bag_of_words(task) == pytest.approx(sum(value * rows for value, rows in each) / 40)
    most = [(baselines.majority(part), len(part.tests[PART])) for part in of_folds(task)]
    assert baselines.majority(task) == pytest.approx(sum(value * rows for value, rows in most) / 40)


def test_several_labels_a_row_have_baselines_over_folds(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    lines = [{"text": f"bada kefe {i}", "label": ["x", "y", "z"][: i % 4]} for i in range(40)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    task = read(path, folds=4)
    found = baselines.of_task(task, tmp_path)
    assert list(found) == ["majority", "bag-of-words"] and found["majority"] == baselines.majority(task)


def test_folds_of_a_regression_are_averaged(encoder: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    lines = [{"text": "bada " * (1 + i % 8) + f"kefe {i}", "label": i % 8 + 0.5} for i in range(60)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    task = read(path, folds=3)
    score = take(task, Model(encoder, SPEC, 0), CPU)
    each = [take(part, Model(encoder, SPEC, 0), CPU).values[PART] for part in of_folds(task)]
    for metric in ("spearman", "pearson"):
        assert score.values[PART][metric] == pytest.approx(np.mean([values[metric] for values in each]))


def test_killed_in_its_second_fold_it_ends_with_the_score_of_an_undisturbed_one(encoder: Path, tmp_path: Path) -> None:
    """Each fold has a state of its own, so that no fold goes on from the weights of another."""
    task, every_step = read(write_rows(tmp_path / "t.jsonl"), folds=3), Host(device="cpu", save_every=1)
    whole = take(task, Model(encoder, SPEC, 0), CPU)
    (tmp_path / "run").mkdir()
    state = Unfinished(RunDir(tmp_path / "run"), score_name(task, SPEC, 0), {"encoder": "0" * 16})
    taken: list[int] = []

    def progress(step: int, steps: int) -> None:
        taken.append(step)
        if step == whole.steps // 2 and len(taken) == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take(task, Model(encoder, SPEC, 0, progress, state), every_step)
    (left,) = (tmp_path / "run" / "unfinished").iterdir()
    assert left.name == f"{Path(state.score).stem}-fold1"
    score = take(task, Model(encoder, SPEC, 0, progress, state), every_step)
    assert replace(score, seconds=0.0) == replace(whole, seconds=0.0)
    assert taken.count(whole.steps // 2 - 1) == 1 and taken.count(1) == 2  # the second fold went on, the first is anew
    assert list((tmp_path / "run" / "unfinished").iterdir()) == []
