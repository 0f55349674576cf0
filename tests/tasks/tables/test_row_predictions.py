"""Predictions for the rows of tables: scikit-learn gives the metrics of the score from them, to the last digit."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
from scipy.stats import pearsonr, spearmanr

from workbench import tasks
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.common import classification
from workbench.tasks.common.classification import prediction_files
from workbench.tasks.common.contract import Model, take
from workbench.tasks.common.examples import Examples, Task
from workbench.tasks.common.metrics import judged

RANDOM = np.random.default_rng(0)
COUNT = 200
TEXTS = ["plain", 'a "quoted", text', "two\nlines", "tab\tand | bar", "ø 東京"]


def made(labels: tuple[str, ...], targets: list[Any], metrics: tuple[str, ...], **more: Any) -> Task:
    rows = Examples([TEXTS[n % 5] for n in range(COUNT)], None, targets)
    return Task("my", "table", labels, metrics[0], metrics, 3.0, rows, {"dev": rows}, predictions="csv", **more)


def read(task: Task, outputs: Any, **more: Any) -> pd.DataFrame:
    files = prediction_files(task, "dev", task.tests["dev"], outputs, **more)
    assert list(files) == [".dev.csv"]
    return pd.read_csv(io.StringIO(files[".dev.csv"]), keep_default_na=False, dtype=str)


@pytest.mark.parametrize("count", [2, 5])
def test_a_classification(count: int) -> None:
    labels = ("no", 'a, "b"\nc', "x|y", "NA", "ø")[:count]
    metrics = ("accuracy", "matthews", "macro_f1", "average_precision")
    task = made(labels, RANDOM.integers(0, count, COUNT).tolist(), metrics)
    outputs = RANDOM.normal(size=(COUNT, count)).round(1).astype(np.float32)
    table = read(task, outputs)
    assert table["text"].tolist() == task.train.first
    gold, guess = table["gold"].tolist(), table["predicted"].tolist()
    columns = labels if count > 2 else labels[1:]
    precisions = [
        sklearn.metrics.average_precision_score(
            [each == label for each in gold], table[f"probability of {label}"].astype("float32")
        )
        for label in columns
    ]
    assert judged(task.kind, metrics, outputs, task.array(task.train)) == {
        "accuracy": sklearn.metrics.accuracy_score(gold, guess),
        "matthews": sklearn.metrics.matthews_corrcoef(gold, guess),
        "macro_f1": sklearn.metrics.f1_score(gold, guess, average="macro", labels=list(labels)),
        "average_precision": np.mean(precisions),
    }


@pytest.mark.parametrize("labels", [("a", "b", "c"), ("a", "b|a", 'c, "d"')])
def test_several_labels_a_row(labels: tuple[str, ...]) -> None:
    """They are separated by `|`, or a list where a label has that character itself."""
    targets = [np.flatnonzero(RANDOM.random(3) < 0.4).tolist() for _ in range(COUNT)]
    task = made(labels, targets, ("average_precision", "macro_f1", "micro_f1"), multilabel=True)
    split = json.loads if "b|a" in labels else lambda field: field.split("|")
    outputs = RANDOM.normal(size=(COUNT, 3)).astype(np.float32)
    table = read(task, outputs)

    def marks(column: str) -> Any:
        return np.array([[label in split(field) for label in task.labels] for field in table[column]]).astype(int)

    scores = table[[f"output for {label}" for label in task.labels]].astype("float32").to_numpy()
    assert judged(task.kind, task.metrics, outputs, task.array(task.train)) == {
        "average_precision": sklearn.metrics.average_precision_score(marks("gold"), scores, average="macro"),
        "macro_f1": sklearn.metrics.f1_score(marks("gold"), marks("predicted"), average="macro"),
        "micro_f1": sklearn.metrics.f1_score(marks("gold"), marks("predicted"), average="micro"),
    }


def test_numbers_and_folds() -> None:
    targets = RANDOM.uniform(1, 5, COUNT).round(1).tolist()
    task = made((), targets, ("spearman", "pearson"), span=(1.0, 5.0))
    outputs = RANDOM.random((COUNT, 1)).astype(np.float32)
    table = read(task, outputs, folds=[n % 4 for n in range(COUNT)])
    gold, output = ([float(field) for field in table[column]] for column in ("gold", "output"))
    assert judged(task.kind, task.metrics, outputs, task.array(task.train)) == {
        "spearman": spearmanr(output, gold).statistic, "pearson": pearsonr(output, gold).statistic,
    }  # fmt: skip
    assert np.allclose(table["predicted"].astype(float), 1 + 4 * outputs[:, 0]) and table["fold"].tolist()[:5] == [
        *"01230"
    ]


def test_choices_have_a_question_and_no_label_of_their_own() -> None:
    rows = Examples(["why"] * 4, ["a", "b", "c", "d"], [0, 1, 1, 0], [0, 0, 1, 1])
    task = Task("c", "table", ("wrong", "right"), "accuracy", ("accuracy",), 1.0, rows, {"dev": rows}, choice=True,
                predictions="csv")  # fmt: skip
    table = read(task, np.array([[0.5], [0.25], [1], [2]], dtype=np.float32))
    assert [list(row) for row in table.itertuples(index=False)] == [
        ["why", "a", "0", "0", "", "0.5"], ["why", "b", "0", "1", "", "0.25"],
        ["why", "c", "1", "1", "", "1.0"], ["why", "d", "1", "0", "", "2.0"],
    ]  # fmt: skip


@pytest.mark.parametrize("folds", [None, 3])
def test_a_score_has_them(folds: int | None, encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "my.csv").write_text("text,label\n" + "".join(f"ba da {n},{'xy'[n % 2]}\n" for n in range(60)))
    spec = TasksSpec(names=(str(tmp_path / "my.csv"),), epochs=1.0, length=16, seeds=1, folds=folds)
    (task,) = tasks.load(spec).tasks
    assert isinstance(task, Task)
    score = take(task, Model(encoder, spec, 0), Host(device="cpu", threads=1))
    ((ending, content),) = score.files.items()
    table = pd.read_csv(io.StringIO(content))
    assert ending == (".out-of-fold.csv" if folds else ".test.csv") and len(table) == score.test_rows
    assert 100 * sklearn.metrics.accuracy_score(table["gold"], table["predicted"]) == score.value
    if folds:
        assert set(table["fold"]) == {0, 1, 2} and len(table) == 60


def test_large_tables_and_tasks_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    task = made(("a", "b"), [0, 1] * (COUNT // 2), ("accuracy",))
    outputs = np.zeros((COUNT, 2), dtype=np.float32)
    monkeypatch.setattr(classification, "MOST", COUNT)
    assert list(read(task, outputs)) == ["text", "gold", "predicted"]
    glue = Task("CoLA", "glue", ("0", "1"), "accuracy", ("accuracy",), 3.0, task.train, task.tests)
    assert prediction_files(glue, "dev", glue.tests["dev"], outputs) == {}
