"""Tables with several labels a row: how they are read, learned and measured, beside scikit-learn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.linear_model
import sklearn.metrics
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from task_data import read

from workbench.errors import InputError
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks import load as load_suite
from workbench.tasks.common import baselines
from workbench.tasks.common import classification as module
from workbench.tasks.common.contract import Model, take
from workbench.tasks.common.examples import Task
from workbench.tasks.common.metrics import judged, metric

WORDS = ("bada", "kefe", "logo", "mini")
SPEC = TasksSpec(lr=3e-3, layer_decay=0.9, length=32, dropout=0.0, seeds=1)


def rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """A label for each of four words that a text may hold."""
    draw = np.random.default_rng(seed)
    made = []
    for number in range(count):
        words = [word for word in WORDS if draw.random() < 0.4]
        made.append({"text": " ".join(["batu", *words, "mitu", "lotu"][: 3 + len(words)]), "labels": words,
                     "split": ("train", "train", "train", "test")[number % 4]})  # fmt: skip
    return made


def write_lines(path: Path, made: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


def write_tsv(path: Path, made: list[dict[str, Any]], mark: str) -> Path:
    lines = [f"{row['text']}\t{mark.join(row['labels'])}\t{row['split']}" for row in made]
    path.write_text("\n".join(["text\tlabels\tsplit", *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return read(write_lines(tmp_path_factory.mktemp("several") / "words.jsonl", rows(240)))


@pytest.mark.parametrize("mark", ["|", ",", " | ", ", "])
def test_lists_and_separated_fields_are_the_same_task(mark: str, tmp_path: Path) -> None:
    lines = read(write_lines(tmp_path / "words.jsonl", rows(40)))
    assert lines.multilabel and lines.labels == WORDS and lines.metric == "average_precision"
    assert lines.train.targets == [
        [WORDS.index(word) for word in row["labels"]] for row in rows(40) if row["split"] == "train"
    ]
    pq.write_table(pa.Table.from_pylist(rows(40)), tmp_path / "words.parquet")
    others = [
        read(tmp_path / "words.parquet"),
        read(write_tsv(tmp_path / "words.tsv", rows(40), mark), kind="multilabel"),
    ]
    assert all(replace(other, notes=lines.notes) == lines for other in others)  # notes name the file


def test_commas_belong_to_labels_where_the_column_is_separated_by_bars(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("text\tlabels\tsplit\na\tone, two|three\ttrain\nb\tone, two\ttrain\nc\t\ttest\nd\tthree||\ttest\n")
    made = read(path, kind="multilabel")
    assert made.labels == ("one, two", "three") and made.train.targets == [[0, 1], [0]]
    assert made.tests["test"].targets == [[], [1]]


def test_one_label_for_all_can_be_learned_where_rows_may_have_none(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("text\tlabels\tsplit\na\tx\ttrain\nb\t\ttrain\nc\tx\ttest\n")
    assert read(path, kind="multilabel").labels == ("x",)
    path.write_text("text\tlabels\tsplit\na\t\ttrain\nb\t\ttrain\nc\tx\ttest\n")
    with pytest.raises(InputError, match="every row to train on has no label, so nothing can be learned"):
        read(path, kind="multilabel")


def test_lists_are_refused_where_one_label_is_asked_for(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "words.jsonl", rows(40))
    with pytest.raises(InputError, match="a label must be a word or a number"):
        read(path, kind="classification")
    with pytest.raises(InputError, match="linear probes do not have several labels a row"):
        load_suite(TasksSpec(names=f"linear:{path}"), tmp_path)


def test_the_hashed_split_trains_on_every_label(tmp_path: Path) -> None:
    made = [
        {key: row[key] for key in ("text", "labels")} | {"text": f"{row['text']} {i}"} for i, row in enumerate(rows(80))
    ]
    made[7]["labels"] = [*made[7]["labels"], "only here"]
    found = read(write_lines(tmp_path / "words.jsonl", made))
    assert {label for labels in found.train.targets for label in labels} == set(range(5))
    assert len(found.train) + len(found.tests["test"]) == 80


def write_parts(folder: Path, train: list[Any], dev: list[Any], suffix: str) -> Path:
    for part, labels in (("train", train), ("dev", dev)):
        made = [{"text": f"{part} {number}", "label": label} for number, label in enumerate(labels)]
        path = folder / f"t.{part}{suffix}"
        if suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(made), path)
        elif suffix == ".jsonl":
            write_lines(path, made)
        else:
            mark = "," if suffix == ".csv" else "\t"
            path.write_text(
                "".join(f"{row['text']}{mark}{row['label']}\n" for row in [{"text": "text", "label": "label"}, *made])
            )
    return folder / f"t.train{suffix}"


@pytest.mark.parametrize(
    ("suffix", "train", "dev", "labels", "targets"),
    [
        (".csv", ["0.0", "1.0"], ["1", "0"], ("0.0", "1.0"), [1, 0]),
        (".tsv", ["-1", "12"], [" 12.000 ", "-1.0"], ("-1", "12"), [1, 0]),
        (".csv", ["True", "False"], ["false", " TRUE"], ("False", "True"), [0, 1]),
        (".jsonl", [True, False], ["True", False], ("false", "true"), [1, 0]),
        (".jsonl", [0, 1.0], ["1", 0.0], ("0", "1"), [1, 0]),
        (".parquet", ["0", "1"], ["1.0", "0"], ("0", "1"), [1, 0]),
        (".csv", ["+1", "-1", "0."], ["1", "-0.00", "-1"], ("+1", "-1", "0."), [0, 2, 1]),
        (".csv", ["1_0.5", "2_0"], ["2_0", "1_0.5"], ("1_0.5", "2_0"), [1, 0]),
        (".csv", ["caf\u00e9", "x"], ["cafe\u0301", "x"], ("caf\u00e9", "x"), [0, 1]),
        (".csv", ["01", "1", "1.10", "1.1", "Y", "y"], ["1.0", "01"], ("01", "1", "1.1", "1.10", "Y", "y"), [1, 0]),
    ],
)  # fmt: skip
def test_one_label_has_one_spelling(
    suffix: str, train: list[Any], dev: list[Any], labels: tuple[str, ...], targets: list[int], tmp_path: Path
) -> None:
    task = read(write_parts(tmp_path, train, dev, suffix))
    assert task.labels == labels and task.tests["dev"].targets == targets and not any("label" in n for n in task.notes)


def test_lists_hold_each_label_once(tmp_path: Path) -> None:
    task = read(write_parts(tmp_path, [["1.0", "b"], [1, "1.0"]], [["1"], []], ".jsonl"))
    assert task.labels == ("1.0", "b") and task.train.targets == [[0, 1], [0]]
    assert task.tests["dev"].targets == [[0], []]


@pytest.mark.parametrize(
    ("train", "dev"), [(["1", "2"], ["01", "02"]), (["a", "b"], ["A", "B"]), (["0", "1"], ["-1", "-1"])]
)
def test_rows_of_which_none_can_be_right_are_refused(train: list[str], dev: list[str], tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=f"no row of the part 'dev' can be right: .*'{dev[0]}'.* and .*'{train[0]}', '{train[1]}'"
    ):
        read(write_parts(tmp_path, train, dev, ".csv"))


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_words_that_programs_write_for_no_value_are_labels_and_texts(suffix: str, tmp_path: Path) -> None:
    words = ["nan", "NA", "null", "None", "NaN", "N/A", "inf"]
    task = read(write_parts(tmp_path, [*words, "dan"], words[::-1], suffix))
    assert set(task.labels) == {*words, "dan"} and [task.labels[n] for n in task.tests["dev"].targets] == words[::-1]
    path = tmp_path / "texts.csv"
    path.write_text("text,label,split\nnan,a,train\nNA,b,train\nnull,a,dev\n")
    assert read(path).train.first == ["nan", "NA"] and read(path).tests["dev"].first == ["null"]


@pytest.mark.parametrize(
    ("suffix", "labels", "message"),
    [
        (".parquet", [0.5, float("nan")], "row 2: there is no label"),
        (".parquet", ["a", None], "row 2: there is no label"),
        (".tsv", ["0.5", "NaN", "1"], "line 3: label 'NaN' is not a finite number"),
    ],
)
def test_a_missing_label_is_refused(suffix: str, labels: list[Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read(write_parts(tmp_path, labels, labels, suffix))


def test_nan_among_numbers_is_a_label_if_the_kind_says_so(tmp_path: Path) -> None:
    path = write_parts(tmp_path, ["0", "1", "nan"], ["nan"], ".csv")
    assert read(path, kind="classification").labels == ("0", "1", "nan")
    with pytest.raises(InputError, match="'nan' is not a finite number"):
        read(path, kind="regression")


MATRICES = st.integers(2, 5).flatmap(
    lambda k: st.integers(2, 25).flatmap(
        lambda n: st.tuples(
            arrays.arrays(np.int64, (n, k), elements=st.integers(0, 1)),
            arrays.arrays(np.float64, (n, k), elements=st.integers(-8, 8).map(lambda x: x / 4)),
        )
    )
)


@settings(max_examples=50)
@given(MATRICES)
def test_metrics_are_those_of_counts(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    true, outputs = drawn
    found = judged("multilabel", ("macro_f1", "micro_f1", "average_precision"), outputs, true.astype(np.float32))
    predicted = outputs > 0
    hits = (predicted & (true == 1)).sum(0)
    sizes = predicted.sum(0) + true.sum(0)
    assert found["micro_f1"] == pytest.approx(2 * hits.sum() / sizes.sum() if sizes.sum() else 0.0)
    assert found["macro_f1"] == pytest.approx(
        np.mean([2 * h / s if s else 0.0 for h, s in zip(hits, sizes, strict=True)])
    )
    precisions = []
    for label in range(true.shape[1]):
        right = true[:, label] == 1
        if right.any():  # for each right row: of the rows with at least its score, the share that is right
            shares = [
                (right & (outputs[:, label] >= s)).sum() / (outputs[:, label] >= s).sum() for s in outputs[right, label]
            ]
            precisions.append(np.mean(shares))
    assert found["average_precision"] == pytest.approx(np.mean(precisions) if precisions else 0.0)


def test_the_loss_is_the_binary_cross_entropy_of_each_label(task: Task) -> None:
    outputs = torch.randn(5, 4, dtype=torch.float64)
    targets = torch.tensor(task.array(task.train.take(list(range(5)))), dtype=torch.float64)
    probabilities = 1 / (1 + torch.exp(-outputs))
    each = [
        -np.log(p if t else 1 - p)
        for p, t in zip(probabilities.flatten().tolist(), targets.flatten().tolist(), strict=True)
    ]
    assert module.task_loss(outputs, targets, task, False).item() == pytest.approx(sum(each) / 20)
    assert module.task_loss(outputs, targets, task, True).item() == pytest.approx(sum(each) / 4)


def test_an_encoder_learns_several_labels(encoder: Path, task: Task) -> None:
    score = take(task, Model(encoder, SPEC.model_copy(update={"epochs": 20}), 0), Host(device="cpu"))
    assert set(score.values["test"]) == {"average_precision", "macro_f1", "micro_f1"}
    assert score.value == score.values["test"]["average_precision"] > 90
    assert score.values["test"]["micro_f1"] > 70 and score.test_rows == 60


def test_baselines_are_the_shares_of_labels_and_a_linear_model_of_words(task: Task) -> None:
    true = task.array(task.tests["test"])
    assert baselines.majority(task) == pytest.approx(100 * true.mean(0).mean())  # precision of a constant is the share
    assert baselines.bag_of_words(task) == pytest.approx(100)
    known = baselines.vocabulary(task.train, 50_000)
    inputs = baselines.matrix(task.train, known)
    ours = inputs @ baselines._fit(inputs, task.array(task.train), "multilabel")
    for label in range(4):
        oracle = sklearn.linear_model.LogisticRegression(C=baselines.STRENGTH, tol=1e-8, max_iter=2000)
        oracle.fit(inputs[:, 1:], task.array(task.train)[:, label])
        assert np.allclose(ours[:, label], oracle.decision_function(inputs[:, 1:]), atol=0.05)


def test_the_majority_predicts_labels_that_most_rows_have(tmp_path: Path) -> None:
    lines = [{"text": f"t {i}", "labels": ["often"] + ["seldom"] * (i % 4 == 0), "split": "train" if i % 2 else "test"}
             for i in range(40)]  # fmt: skip
    made = read(write_lines(tmp_path / "t.jsonl", lines), metric="micro_f1")
    assert made.labels == ("often", "seldom") and made.metric == "micro_f1"
    assert baselines.majority(made) == pytest.approx(100 * 2 * 20 / (20 + 20 + 10))


@pytest.mark.parametrize(("labels", "metric"), [("xy", "f1"), ("xyz", "macro_f1"), ("xyz", "average_precision")])
def test_the_headline_metric_of_a_table_can_be_chosen(labels: str, metric: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text,label\n" + "".join(f"text {i},{labels[i % len(labels)]}\n" for i in range(60)))
    usual, made = read(path), read(path, metric=metric)
    assert (usual.metric, made.metric) == ("accuracy", metric) and made.metrics == usual.metrics
    assert made.fingerprint != usual.fingerprint and set(made.metrics) >= {"accuracy", "macro_f1", "average_precision"}


def test_a_metric_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text,label\n" + "".join(f"text {i},{'xyz'[i % 3]}\n" for i in range(60)))
    with pytest.raises(InputError, match=r"tasks\.metric=f1: .* is a classification with 3 labels, which is mea"):
        read(path, metric="f1")
    with pytest.raises(InputError, match="linear probes do not have average precision"):
        load_suite(TasksSpec(names=f"linear:{path}", metric="average_precision"), tmp_path)


def test_rows_with_unseen_labels_and_repeated_texts_are_counted_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "odd.csv"
    lines = ["a,x,train", "b,y,train", "c,z,dev", "a,x,dev", "d,x,dev", "e,w,test", "b,x,test"]
    path.write_text("\n".join(["text,label,split", *lines]) + "\n")
    made = read(path)
    assert made.labels == ("x", "y", "w", "z") and made.tests["dev"].targets == [3, 0, 0]
    unseen, repeated = made.notes
    assert unseen == (
        f"2 rows of the 5 to test on have a label that no row to train on has, such as 'w', which counts as "
        f"wrong: {path}, line 7; {path}, line 4"
    )
    assert repeated.startswith("2 rows of the 5 to test on have the same text as a row to train on, so the score")
    assert repeated.endswith(f"{path}, line 8; {path}, line 5")
    assert [record.getMessage() for record in caplog.records] == [f"odd: {note}" for note in made.notes]
    assert metric("accuracy", np.zeros(3), made.array(made.tests["dev"])) == pytest.approx(2 / 3)


def test_notes_stand_in_the_score(encoder: Path, tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text("text,label,split\n" + "".join(f"bada {i},{'xy'[i % 2]},train\nbada {i},x,dev\n" for i in range(8)))
    made = read(path)
    score = take(made, Model(encoder, SPEC.model_copy(update={"epochs": 1}), 0), Host(device="cpu"))
    assert score.to_json()["notes"] == list(made.notes) and made.notes[0].endswith("and 5 more")
