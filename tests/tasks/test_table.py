"""A person's own table: formats, columns, kinds, splits, and one clear sentence for everything that is wrong."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from superglue_made import load
from task_data import labelled, read, refused

from workbench import progress, tasks
from workbench.errors import InputError
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks import table
from workbench.tasks.common import classification
from workbench.tasks.common.baselines import bag_of_words
from workbench.tasks.common.classification import prediction_files
from workbench.tasks.common.contract import Model, take
from workbench.tasks.common.examples import Examples, Task
from workbench.tasks.common.metrics import judged


def rows_of(task: Task) -> list[tuple[str, Any]]:
    parts = [task.train, *task.tests.values()]
    return sorted((text, target) for part in parts for text, target in zip(part.first, part.targets, strict=True))


def forty(labels: tuple[Any, ...] = ("pos", "neg")) -> list[dict[str, Any]]:
    return [{"text": f"text number {i}", "label": labels[i % len(labels)]} for i in range(40)]


def csv_file(path: Path, rows: list[dict[str, Any]]) -> Path:
    lines = [",".join(rows[0]), *(",".join(str(value) for value in row.values()) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_every_format_gives_the_same_task(tmp_path: Path) -> None:
    rows = forty()
    csv_file(tmp_path / "mine.csv", rows)
    for ending in ("tsv", "txt", "label"):
        tabs = "".join(f"{r['text']}\t{r['label']}\n" for r in rows)
        (tmp_path / f"mine.{ending}").write_text(f"text\tlabel\n{tabs}")
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "mine.parquet")
    found = [read(tmp_path / f"mine{suffix}") for suffix in table.FORMATS]
    assert found[0].labels == ("neg", "pos") and found[0].name == "mine" and found[0].suite == "table"
    assert all(task == found[0] for task in found)
    assert rows_of(found[0]) == sorted((r["text"], ("neg", "pos").index(r["label"])) for r in rows)


def test_csv_may_be_quoted_and_tsv_never_is(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('split,text,label\ntrain,"one, ""two""\nthree",x\ntrain,b,y\ndev,c,x\n')
    assert read(tmp_path / "a.csv").train.first == ['one, "two"\nthree', "b"]
    (tmp_path / "a.tsv").write_text('split\ttext\tlabel\ntrain\t" lone quote\tx\ntrain\tb\ty\ndev\tc "\tx\n')
    assert read(tmp_path / "a.tsv").train.first == ['" lone quote', "b"]


def test_columns_by_name_by_header_and_in_pairs(tmp_path: Path) -> None:
    rows = [
        {"id": i, "Premise": f"p {i}", "Hypothesis": f"h {i}", "remark": f"r {i}", "gold": "ab"[i % 2], "label": "same"}
        for i in range(30)
    ]
    path = csv_file(tmp_path / "mine.csv", rows)
    pair = read(path, label="gold")
    assert pair.train.second is not None and pair.train.first[0][2:] == pair.train.second[0][2:]
    assert pair.train.first[0].startswith("p ") and pair.train.second[0].startswith("h ")
    single = read(path, text="remark", label="gold")
    assert single.train.second is None and single.train.first[0].startswith("r ")
    named = read(path, text="remark", pair="Premise", label="gold")
    assert named.train.second is not None and named.train.second[0].startswith("p ")


@pytest.mark.parametrize(
    ("labels", "kind", "regression"),
    [
        ((0.5, 1.0, 2.25), None, True),
        ((1, 2, 3), None, False),
        ((1, 2, 3), "regression", True),
        ((0.5, 1.5), "classification", False),
        (("yes", "no"), None, False),
    ],
)
def test_kind_by_labels_or_as_told(tmp_path: Path, labels: tuple[Any, ...], kind: Any, regression: bool) -> None:
    task = read(csv_file(tmp_path / "mine.csv", forty(labels)), kind=kind)
    assert task.regression == regression
    if regression:
        assert task.span == (min(labels), max(labels)) and task.metric == "spearman"
        assert {target for _, target in rows_of(task)} == {float(x) for x in labels}
    else:
        assert task.labels == tuple(str(x) for x in sorted(labels)) and task.metric == "accuracy"


def test_whole_number_labels_stand_in_their_own_order(tmp_path: Path) -> None:
    assert read(csv_file(tmp_path / "m.csv", forty((10, 9, -1)))).labels == ("-1", "9", "10")
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(r) + "\n" for r in forty((1.0, 2, "3", True))))
    assert read(tmp_path / "m.jsonl").labels == ("1", "2", "3", "true")


def test_a_split_column_decides(tmp_path: Path) -> None:
    rows = [
        r | {"split": ("train", "train", "validation", "test")[i % 4]} for i, r in enumerate(forty(("a", "b", "a")))
    ]
    task = read(csv_file(tmp_path / "mine.csv", rows))
    assert list(task.tests) == ["test", "dev"], "the headline is that of the first part"
    assert (len(task.train), len(task.tests["dev"]), len(task.tests["test"])) == (20, 10, 10)
    assert task.tests["dev"].first == [r["text"] for r in rows if r["split"] == "validation"]


@pytest.mark.parametrize(("name", "row"), [("train.csv", "a b,x\nc b,y\n"), ("train.conll", "a O\nb B-X\n\n")])
def test_a_task_is_not_called_after_a_folder_whose_name_is_not_utf8(
    name: str, row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    monkeypatch.chdir(folder)
    rows = "".join(row.replace("b", f"b{number}") for number in range(30))
    Path(name).write_text(("text,label\n" if name.endswith("csv") else "") + rows)
    with pytest.raises(InputError, match=r"caf\\udce9' is called after a file or folder whose name is not valid UTF-8"):
        tasks.read(TasksSpec(names=f"tag:{name}" if name.endswith("conll") else name, rows=4))


@pytest.mark.parametrize(
    ("names", "read", "unread"),
    [
        ("Train.csv TEST.CSV more.csv", "Train.csv TEST.CSV", ""),
        ("my.train.csv my.DEV.csv my.dev.csv my.validation.csv", "my.train.csv my.dev.csv",
         "my.DEV.csv, my.validation.csv are not read, but my.train.csv, my.dev.csv"),
        ("train.tsv test.csv dev.tsv.gz", "train.tsv", "dev.tsv.gz, test.csv are not read, but train.tsv"),
        ("a_train.jsonl b_test.jsonl a_tested.jsonl", "a_train.jsonl", ""),
    ],
)  # fmt: skip
def test_files_beside_a_table_are_read_or_named(
    names: str, read: str, unread: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for each in names.split():
        (tmp_path / each).touch()
    files = table.siblings(tmp_path / names.split()[0])
    assert [file.name for file in files.values()] == read.split()
    assert f"csv: {unread}" in caplog.text or f"tsv: {unread}" in caplog.text if unread else not caplog.text


@pytest.mark.parametrize(
    ("train", "dev", "name"),
    [("my.train", "my.valid", "my"), ("my_train", "my_dev", "my"), ("train", "dev", "reviews")],
)
def test_sibling_files(tmp_path: Path, train: str, dev: str, name: str) -> None:
    folder = tmp_path / "reviews"
    folder.mkdir()
    csv_file(folder / f"{train}.csv", forty())
    csv_file(folder / f"{dev}.csv", forty()[:7])
    task = read(folder / f"{train}.csv")
    assert (task.name, len(task.train), {k: len(v) for k, v in task.tests.items()}) == (name, 40, {"dev": 7})


TABLES = st.lists(st.tuples(st.integers(0, 60), st.sampled_from("abc")), min_size=30, max_size=80)


@settings(max_examples=40, deadline=None)
@given(TABLES)
def test_the_hashed_split(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, str]]) -> None:
    """No text on both sides, no row lost, every label trained on, and a row keeps its side as others come."""
    rows = [{"text": f"text {n}", "label": label} for n, label in pairs]
    path = tmp_path_factory.mktemp("t") / "mine.csv"
    try:
        task = read(csv_file(path, rows))
    except InputError as error:
        assert "rows to test on" in str(error) or "nothing can be learned" in str(error)
        return
    train, dev = task.train, task.tests["test"]
    assert rows_of(task) == sorted((r["text"], task.labels.index(r["label"])) for r in rows)
    assert set(task.labels) == {label for _, label in pairs}
    only = [label for label in range(len(task.labels)) if label not in dev.targets]
    moved = {text for text, label in zip(train.first, train.targets, strict=True) if label in only}
    assert not set(dev.first) & (set(train.first) - moved)
    more = [{"text": f"another {n}", "label": "abc"[n % 3]} for n in range(60)]
    later = read(csv_file(path, rows + more))
    assert set(dev.first) - moved <= set(later.tests["test"].first)


def test_the_hashed_split_takes_about_a_fifth(tmp_path: Path) -> None:
    task = read(csv_file(tmp_path / "m.csv", [{"text": f"t {i}", "label": i % 2} for i in range(2000)]))
    assert 320 < len(task.tests["test"]) < 480


@pytest.mark.parametrize(
    ("text", "spec", "message"),
    [
        ("text,label\na,x\nb,y\n", {"label": "lable"}, r"no column 'lable' \(tasks\.label\); did you mean 'label'\?"),
        ("text,label\na,x\nb,y\n", {"text": "body"}, r"no column 'body' \(tasks\.text\); there are label, text"),
        ("words,label\na,x\n", {},
         r"no column 'text' for tasks\.text; its columns are words, label; give one of them with --set"),
        ("text,truth\na,x\n", {}, r"no column 'label' for tasks\.label; its columns are text, truth"),
        ("text,label\na,x\n", {"pair": "text"}, r"needs tasks\.text"),
        ("text,label\na,x\n", {"text": "label"}, r"texts 'label' and label 'label' must be different columns"),
        ("x,a,b\n", {"label": "1", "text": "2", "pair": "2"}, r"texts '2' and '2' and label '1' must be different"),
        ("a," * 20_000 + "b\n", {"label": "x"}, r"two columns called 'a'"),
        ("text,label\na,x\n ,y\n", {}, r"m\.csv, line 3: column 'text' holds no text"),
        ("text,label\na,x\nb,\n", {}, r"m\.csv, line 3: there is no label"),
        ("text,label\na,1.5\nb,NaN\n", {}, r"m\.csv, line 3: label 'NaN' is not a finite number"),
        ("text,label\na,x\nb\n", {}, r"m\.csv, line 3: 1 fields where the header has 2"),
        ("text,text,label\na,b,x\n", {}, r"two columns called 'text'"),
        ('text,label\n"a,x\n', {}, r"m\.csv, line \d cannot be read"),
        ("text,label\n", {}, r"m\.csv holds no rows"),
        ("", {}, r"m\.csv holds no rows"),
        ("text,label,split\na,x,train\nb,x,train\nc,x,dev\n", {}, r"has the label 'x', so nothing can be learned"),
        ("text,label,split\na,1.5,train\nb,1.5,train\nc,2,dev\n", {}, r"has the label 1\.5, so nothing can be learned"),
        ("text,label,split\na,x,train\nb,y,train\n", {},
         r"needs rows to train on and rows to test on, and has 2 of train"),
        ("text,label,split\na,x,dev\nb,y,test\n", {}, r"and has 1 of test, 1 of dev"),
        ("text,label,split\na,x,train\nb,y,holdout\n", {}, r"line 3: split 'holdout' is not one of train"),
        ("text,label,split\na,1,train\nb,two,train\nc,1,dev\n", {"kind": "regression"},
         r"m\.csv, line 3: label 'two' is not a finite number"),
        ("text,label,split\na,1,train\nb,inf,train\nc,1,dev\n", {"kind": "regression"},
         r"m\.csv, line 3: label 'inf' is not a finite number"),
        ("text,label,split\na,0.5,train\nb,-Infinity,train\nc,1,dev\n", {},
         r"line 3: label '-Infinity' is not a finite number"),
        ("text,label,split\na,0.5,train\nb,1e308,train\nc,1,dev\n", {},
         r"line 3: the size of label '1e308' is above 1e\+30"),
        ("text,label,split\na,0.5,train\nb,1,train\nc,-1e31,dev\n", {},
         r"line 4: the size of label '-1e31' is above 1e\+30"),
        ("text,label,split\na,1e20,train\nb,1.000001e20,train\nc,0.5,dev\n", {}, "too close together"),
        ("text,label,split\na,0.0,train\nb,1e-300,train\nc,0.5,dev\n", {}, "too close together"),
        (f"text,label,split\na,{'9' * 400},train\nb,two,train\n", {}, "line 2: the label has 400 characters, and 200"),
        ('{"text": "a", "label": 1}\n{"text": "b"\n', {}, r"m\.jsonl, line 2 is not JSON"),
        ('{"text": "a", "label": 1}\n\n["b"]\n', {}, r"m\.jsonl, line 3 is not a JSON object"),
        ('{"text": "a", "label": 1}\n{"label": 2}\n', {}, r"m\.jsonl, line 2: column 'text' holds no text"),
        ('{"text": "a", "label": 1}\n{"text": 7, "label": 2}\n', {}, r"m\.jsonl, line 2: column 'text' holds no text"),
        ('{"text": "a", "label": null}\n', {}, r"m\.jsonl, line 1: there is no label"),
        ('{"text": "a", "label": NaN}\n', {}, r"m\.jsonl, line 1: there is no label"),
        *((f'{{"text": "a", "label": {huge}}}\n', {}, r"line 1: the absolute value of the label is above 1e\+30")
          for huge in ("Infinity", "9" * 400)),
        ('{"text": "a", "label": [[1]]}\n', {}, r"line 1: a label must be a word or a number, got \[1\]"),
        ('{"text": "a", "label": {"b": 1}}\n', {}, r"line 1: a label must be a word or a number, got \{'b'"),
        ('{"text": "a", "label": [1, null]}\n', {}, r"line 1: there is no label"),
        ('{"text": "a", "label": [1]}\n{"text": "a", "label": 1}\n', {}, "line 2: the label is a single one, and a"),
        ('{"text": "a \\ud800", "label": 1}\n', {}, "line 1: column 'text' holds half of a surrogate pair"),
        ('{"text": "a", "label": "\\ud800"}\n', {}, "line 1: the label holds half of a surrogate pair"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, spec: dict[str, Any], message: str) -> None:
    path = tmp_path / ("m.jsonl" if text.startswith("{") else "m.csv")
    path.write_text(text)
    with pytest.raises(InputError, match=message) as raised:
        read(path, **spec)
    assert "\n" not in str(raised.value)


def test_the_largest_labels_that_are_allowed_are_learnt_without_a_warning(tmp_path: Path) -> None:
    """A warning of numpy would be an error here."""
    rows = [{"text": f"text number {i}", "label": (-1) ** i * (0.5 + i) * 1e28} for i in range(40)]
    found = tasks.load(
        TasksSpec(names=str(csv_file(tmp_path / "huge.csv", rows)), kind="regression"), tmp_path / "cache"
    ).tasks[0]
    assert found.regression and all(abs(value) <= 100 for value in found.baselines().values())


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_bytes(b"text,label\n\xff,1\n")
    with pytest.raises(InputError, match=r"m\.csv is not UTF-8: byte 11"):
        read(tmp_path / "m.csv")
    (tmp_path / "m.parquet").write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match=r"m\.parquet cannot be read as parquet"):
        read(tmp_path / "m.parquet")
    with pytest.raises(InputError, match="there is no such file"):
        tasks.load(TasksSpec(names=str(tmp_path / "absent.csv")))


def test_a_table_comes_with_baselines_and_two_of_one_name_are_refused(tmp_path: Path) -> None:
    rows = [{"text": f"{'good' if i % 3 else 'bad'} film {i}", "label": int(i % 3 > 0)} for i in range(100)]
    path = csv_file(tmp_path / "mine.csv", rows)
    (task,) = tasks.load(TasksSpec(names=str(path)), tmp_path / "cache").tasks
    dev = task.tests["test"].targets
    assert task.baselines()["majority"] == pytest.approx(100 * sum(dev) / len(dev))
    assert task.baselines()["bag-of-words"] == 100.0
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(InputError, match="two tasks have the name 'mine'"):
        tasks.load(TasksSpec(names=(str(path), str(csv_file(other / "mine.csv", rows)))), tmp_path / "cache")


# ---- Choices and answers from tables of one's own ----


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


def test_choices_in_a_list_may_vary_in_number(own: Callable[..., Path]) -> None:
    rows = [{"question": f"q{i}", "choices": ["a", "b", "c"][: 2 + i % 2], "label": i % 2,
             "split": "train" if i < 8 else "test"}
            for i in range(10)]  # fmt: skip
    (task,) = load(f"choice:{own('quiz.jsonl', ''.join(json.dumps(row) + chr(10) for row in rows))}")
    assert [len(each) for each in task.train.questions()] == [2, 3] * 4
    assert task.tests["test"].targets == [1, 0, 0, 1, 0]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("premise,choice1,choice2,label\na,b,c,2\n", "line 2: label '2' is not one of 0, 1"),
        ("premise,choice1,label\na,b,0\n", "no columns choice1, choice2 and so on"),
        ("choice1,choice2,label\na,b,0\n", "no column 'premise' or 'question'"),
        ("premise,choice1,choice2\na,b,c\n", "no column 'label'"),
        (f"question,choice1,choice{'9' * 5000},label\na,b,c,0\n", "no columns choice1, choice2 and so on"),
    ],
)
def test_tables_that_are_no_choices_are_refused(content: str, told: str, own: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load(f"choice:{own('bad.csv', content)}")
    assert told in str(caught.value)
    with pytest.raises(InputError, match=r"tasks\.folds=3 divides tables with a label"):
        load(f"choice:{tmp_path / 'bad.csv'}", folds=3)


# ---- Predictions for the rows of tables ----

RANDOM = np.random.default_rng(0)
COUNT = 200
TEXTS = ["plain", 'a "quoted", text', "two\nlines", "tab\tand | bar", "ø 東京"]


def made(labels: tuple[str, ...], targets: list[Any], metrics: tuple[str, ...], **more: Any) -> Task:
    rows = Examples([TEXTS[n % 5] for n in range(COUNT)], None, targets)
    return Task("my", "table", labels, metrics[0], metrics, 3.0, rows, {"dev": rows}, predictions="csv", **more)


def read_row_predictions(task: Task, outputs: Any, **more: Any) -> pd.DataFrame:
    files = prediction_files(task, "dev", task.tests["dev"], outputs, **more)
    assert list(files) == [".dev.csv"]
    return pd.read_csv(io.StringIO(files[".dev.csv"]), keep_default_na=False, dtype=str)


@pytest.mark.parametrize("count", [2, 5])
def test_a_classification(count: int) -> None:
    labels = ("no", 'a, "b"\nc', "x|y", "NA", "ø")[:count]
    metrics = ("accuracy", "matthews", "macro_f1", "average_precision")
    task = made(labels, RANDOM.integers(0, count, COUNT).tolist(), metrics)
    outputs = RANDOM.normal(size=(COUNT, count)).round(1).astype(np.float32)
    table = read_row_predictions(task, outputs)
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
    table = read_row_predictions(task, outputs)

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
    table = read_row_predictions(task, outputs, folds=[n % 4 for n in range(COUNT)])
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
    table = read_row_predictions(task, np.array([[0.5], [0.25], [1], [2]], dtype=np.float32))
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
    assert list(read_row_predictions(task, outputs)) == ["text", "gold", "predicted"]
    glue = Task("CoLA", "glue", ("0", "1"), "accuracy", ("accuracy",), 3.0, task.train, task.tests)
    assert prediction_files(glue, "dev", glue.tests["dev"], outputs) == {}


# ---- Tables that would fill memory, or keep a processor busy for hours, are refused in one sentence ----


def test_more_labels_than_a_head_can_have(tmp_path: Path) -> None:
    said = refused(labelled(tmp_path / "t.csv", 1001))
    assert "1,001 different labels in 2,002 rows to train on" in said and "tasks.kind=regression" in said
    task = table.read(labelled(tmp_path / "t.csv", 1000), TasksSpec())
    assert len(task.labels) == 1000 and [task.labels[target] for target in task.train.targets[:3]] == ["L0", "L0", "L1"]


def test_fitting_a_baseline_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    bag_of_words(table.read(labelled(tmp_path / "t.csv", 5), TasksSpec()))
    assert "fitting a bag of words, 5 outputs, steps: 0 of 200" in capsys.readouterr().err
