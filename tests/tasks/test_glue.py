"""GLUE in the forms in which it is distributed: the official folders with their peculiarities, and the hub's files."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from glue_files import HEADERS, load, rte, write, write_both
from helpers import glue_files

from workbench import tasks
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks import glue
from workbench.tasks.common.contract import Suite
from workbench.tasks.glue import PARTS


def test_cola_has_no_header_and_its_first_line_is_a_row(tmp_path: Path) -> None:
    write_both(tmp_path, "CoLA", "gj04\t1\t\tIt sank.", "gj04\t0\t*\tSank it did was.")
    (task,) = load(tmp_path, "CoLA").tasks
    assert task.train.first == ["It sank.", "Sank it did was."] and task.train.targets == [1, 0]
    assert (task.metric, task.labels, task.train.second) == ("matthews", ("0", "1"), None)


def test_quote_marks_are_text(tmp_path: Path) -> None:
    write_both(tmp_path, "MRPC", HEADERS["MRPC"], '1\t1\t2\t" He said so .\tHe said " so " .', "0\t3\t4\ta b\tc d")
    (task,) = load(tmp_path, "MRPC").tasks
    assert task.train.first == ['" He said so .', "a b"] and task.train.second == ['He said " so " .', "c d"]


def test_byte_order_mark_carriage_returns_and_odd_line_ends_inside_texts(tmp_path: Path) -> None:
    line = "0\tone\u2028two\x85three\x1cfour\tb\tentailment\r"
    for part in ("train", "dev"):
        write(tmp_path / "RTE" / f"{part}.tsv", "\ufeff" + HEADERS["RTE"] + "\r", line, "1\ta\tb\tnot_entailment\r")
    (task,) = load(tmp_path, "RTE").tasks
    assert task.train.first == ["one\u2028two\x85three\x1cfour", "a"] and task.train.targets == [0, 1]


def test_mnli_has_two_test_parts_and_the_gold_label_counts(tmp_path: Path) -> None:
    head = "index\tsentence1\tsentence2\tlabel1\tlabel2\tgold_label"
    for file, gold in (("train", "neutral"), ("dev_matched", "entailment"), ("dev_mismatched", "contradiction")):
        write(tmp_path / "MNLI" / f"{file}.tsv", head, f"0\ta\tb\tneutral\tneutral\t{gold}")
    (task,) = load(tmp_path, "mnli").tasks
    assert list(task.tests) == ["matched", "mismatched"]
    found = [task.labels[part.targets[0]] for part in (task.train, *task.tests.values())]  # type: ignore[index]
    assert found == ["neutral", "entailment", "contradiction"]


def test_sts_b_is_a_regression_on_0_to_5(tmp_path: Path) -> None:
    rows = [f"{i}\tg\tf\ty\to\tn\tn\ta {i}\tb {i}\t{i * 1.25}" for i in range(5)]
    write_both(tmp_path, "STS-B", HEADERS["STS-B"], *rows)
    (task,) = load(tmp_path, "STS-B").tasks
    assert task.regression and task.span == (0.0, 5.0) and task.train.targets == [0.0, 1.25, 2.5, 3.75, 5.0]
    assert (task.metric, task.epochs, task.symmetric) == ("spearman", 10.0, True)


def test_fine_tuning_takes_three_epochs_but_ten_on_rte_and_sts_b() -> None:
    """Clark et al. 2020, appendix B; a substitute is fine-tuned like the task that it replaces."""
    longer = {name for name, row in glue.ROWS.items() if row.epochs == 10.0}
    assert longer == {"RTE", "STS-B"}
    assert {row.epochs for name, row in glue.ROWS.items() if name not in longer} == {3.0}
    assert [row.epochs for name in ("rte-half", "QNLI-devsplit") if (row := glue.row_of(name))] == [10.0, 3.0]


def test_qqp_passes_over_lines_with_lost_tabs_but_others_do_not(tmp_path: Path) -> None:
    write_both(tmp_path, "QQP", HEADERS["QQP"], "1\t2\t3\ta?\tb?\t1", "lost", "4\t5\t6\tc?\td?\t0")
    (task,) = load(tmp_path, "QQP").tasks
    assert task.train.targets == [1, 0]
    write_both(tmp_path, "RTE", HEADERS["RTE"], "0\ta\tb\tentailment", "lost")
    with pytest.raises(InputError, match=r"RTE/train\.tsv, line 3: 1 columns where 4 are needed"):
        load(tmp_path, "RTE")


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("RTE", (HEADERS["RTE"], "0\ta\tb\tmaybe"), r"train\.tsv, line 2: label 'maybe' is not one of entailment"),
        ("RTE", ("index\tsentence1\tlabel", "0\ta\tentailment"), r"no column 'sentence2'; its header has 'index'"),
        ("RTE", (HEADERS["RTE"],), r"train\.tsv holds no rows"),
        ("STS-B", (HEADERS["STS-B"], "0\tg\tf\ty\to\tn\tn\ta\tb\tnan"), r"line 2: 'nan' is not a score from 0 to 5"),
        ("STS-B", (HEADERS["STS-B"], "0\tg\tf\ty\to\tn\tn\ta\tb\t5.1"), r"line 2: '5.1' is not a score from 0 to 5"),
        ("CoLA", ("gj04\t2\t\tIt sank.",), r"train\.tsv, line 1: label '2'"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(
    tmp_path: Path, name: str, lines: tuple[str, ...], message: str
) -> None:
    write_both(tmp_path, name, *lines)
    with pytest.raises(InputError, match=message):
        load(tmp_path, name)


def test_glue_names_what_it_lacks_and_where_it_looked(tmp_path: Path) -> None:
    rte(tmp_path)
    write(tmp_path / "QNLI" / "dev.tsv", HEADERS["QNLI"], "0\tq\ts\tentailment")
    suite = load(tmp_path, "glue")
    assert [task.name for task in suite.tasks] == ["RTE"]
    assert set(suite.missing) == set(glue.ROWS) - {"RTE"}
    assert suite.missing["QNLI"] == f"no train.tsv in {tmp_path / 'QNLI'}"
    assert "dev_matched.tsv" in suite.missing["MNLI"]


def test_a_task_asked_for_by_name_must_be_there(tmp_path: Path) -> None:
    rte(tmp_path)
    with pytest.raises(InputError, match=r"task CoLA is not available: no train\.tsv or dev\.tsv in .*CoLA"):
        load(tmp_path, "RTE", "CoLA")
    with pytest.raises(InputError, match="task CoLA is not available"):
        load(tmp_path, "glue", "CoLA")


def test_stand_ins_answer_to_their_own_name_only(tmp_path: Path) -> None:
    rte(tmp_path)
    write_both(tmp_path, "QNLI-devsplit", HEADERS["QNLI"], "0\tq?\ts.\tentailment", "1\tq?\tt.\tnot_entailment")
    assert "QNLI" in load(tmp_path, "glue").missing
    suite = load(tmp_path, "glue", "QNLI-devsplit")
    assert [task.name for task in suite.tasks] == ["RTE", "QNLI-devsplit"] and "QNLI" in suite.missing


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("CoLLA",), r"unknown task 'CoLLA'; did you mean 'CoLA'\?"),
        (("none", "CoLA"), "'none' cannot be combined with other tasks"),
        (("glue",), "no GLUE task was found"),
        (("glue", "probs"), r"unknown task 'probs'; did you mean 'probes'\?"),
    ],
)
def test_unknown_names(tmp_path: Path, names: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(tmp_path, *names)


@pytest.mark.parametrize("place", ["../nowhere/glue", "/nowhere/glue", "./glu e"])
def test_a_folder_that_is_not_there(place: str) -> None:
    with pytest.raises(InputError, match="is not a folder here"):
        tasks.load(TasksSpec(names="RTE", glue=place))


def test_none_is_no_task() -> None:
    assert tasks.load(TasksSpec(names="none")) == Suite(())


HUB: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "cola": ({"sentence": "It sank.", "label": 1}, {"first": ["It sank."], "targets": [1]}),
    "sst2": ({"sentence": "fine film", "label": 0}, {"first": ["fine film"], "targets": [0]}),
    "mrpc": ({"sentence1": "a", "sentence2": "b", "label": 1}, {"second": ["b"], "targets": [1]}),
    "stsb": ({"sentence1": "a", "sentence2": "b", "label": 3.8}, {"targets": [3.8]}),
    "qqp": ({"question1": "a", "question2": "b", "label": 0}, {"second": ["b"]}),
    "mnli": ({"premise": "a", "hypothesis": "b", "label": 2}, {"first": ["a"], "targets": [2]}),
    "qnli": ({"question": "a", "sentence": "b", "label": 1}, {"second": ["b"]}),
    "rte": ({"sentence1": "a", "sentence2": "b", "label": 1}, {"targets": [1]}),
    "wnli": ({"sentence1": "a", "sentence2": "b", "label": 0}, {"targets": [0]}),
}


def hub_layout(folder: Path) -> None:
    for config, (row, _) in HUB.items():
        splits = ("validation_matched", "validation_mismatched") if config == "mnli" else ("validation",)
        for split in ("train", *splits):
            (folder / config).mkdir(parents=True, exist_ok=True)
            table = pa.Table.from_pylist([row | {"idx": 0}])
            pq.write_table(table, folder / config / f"{split}-00000-of-00001.parquet")


def check_hub(suite: Suite) -> None:
    assert [task.name for task in suite.tasks] == list(glue.ROWS) and not suite.missing
    for task in suite.tasks:
        for field, value in HUB[glue.ROWS[task.name].config][1].items():
            assert getattr(task.train, field) == value
            assert all(getattr(part, field) == value for part in task.tests.values())


def test_a_copy_of_the_hubs_files(tmp_path: Path) -> None:
    hub_layout(tmp_path)
    check_hub(load(tmp_path, "glue"))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"sentence1": None, "sentence2": "b", "label": 1}, "column 'sentence1' holds no text"),
        ({"sentence1": "a\0", "sentence2": "b", "label": 1}, "column 'sentence1' holds a NUL"),
        ({"sentence1": "a", "sentence2": "b", "label": "1"}, "label '1' is not in 0..1"),
        ({"sentence1": "a", "sentence2": "b", "label": -1}, "train-00000-of-00001.parquet, row 1: label -1 is not in"),
        ({"sentence1": "a", "sentence2": "b", "label": 0.5}, "label 0.5 is not in 0..1"),
        ({"sentence1": "a", "sentence2": "b", "label": None}, "label None is not in 0..1"),
        ({"sentence1": "a", "sentence2": "b"}, "has no column 'label'"),
    ],
)
def test_hostile_rows_of_the_hub_are_refused(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    hub_layout(tmp_path)
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "rte" / "train-00000-of-00001.parquet")
    with pytest.raises(InputError) as caught:
        load(tmp_path, "RTE")
    assert said in str(caught.value) and "parquet" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"index\tsentence1\tsentence2\tlabel\n0\ta\0b\tc\tentailment\n", "NUL at byte 35"),
        (
            b"index\tsentence1\tsentence2\tlabel\n0\ta\t" + b"b " * (1 << 19) + b"b\tentailment\n",
            "1,048,577 characters",
        ),
        (b"index\tsentence1\tsentence2\tlabel\n0\ta\tb\t" + b"9" * 5000 + b"\n", "label '9999"),
    ],
)
def test_what_no_task_holds_is_refused_in_the_official_files(tmp_path: Path, content: bytes, said: str) -> None:
    rte(tmp_path)
    (tmp_path / "RTE/train.tsv").write_bytes(content)
    with pytest.raises(InputError) as caught:
        load(tmp_path, "RTE")
    assert said in str(caught.value) and len(str(caught.value)) < 500


def test_the_hubs_name_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real client reads its own cache, in the layout that a download leaves."""
    import huggingface_hub.constants as constants

    repository, commit = tmp_path / "datasets--nyu-mll--glue", "0" * 40
    hub_layout(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    check_hub(tasks.load(TasksSpec(names="glue"), tmp_path / "cache"))
    check_hub(tasks.load(TasksSpec(names="glue", glue="nyu-mll/glue"), tmp_path / "cache"))
    with pytest.raises(InputError, match=r"no GLUE task was found: tasks\.glue='someone/other' is not a folder here"):
        tasks.load(TasksSpec(names="glue", glue="someone/other"), tmp_path / "cache")


COUNTS = {  # of the data's own account
    "CoLA": (8551, {0: 2528, 1: 6023}, 1043, {0: 322, 1: 721}),
    "SST-2": (67349, {0: 29780, 1: 37569}, 872, {0: 428, 1: 444}),
    "MRPC": (3668, {0: 1194, 1: 2474}, 408, {0: 129, 1: 279}),
    "RTE": (2490, {0: 1249, 1: 1241}, 277, {0: 146, 1: 131}),
    "WNLI": (635, {0: 323, 1: 312}, 71, {0: 40, 1: 31}),
    "QNLI-devsplit": (4460, {0: 2216, 1: 2244}, 1003, {0: 486, 1: 517}),
    "QQP-subset": (20496, {0: 12798, 1: 7698}, 3000, {0: 1951, 1: 1049}),
}


def test_every_row_of_the_real_files(real_data: Path) -> None:
    rows, missing = glue.read([*glue.ROWS, "QNLI-devsplit", "QQP-subset"], str(real_data / "glue"))
    found = {task.name: task for task in rows}
    assert set(found) == {*COUNTS, "STS-B"} and set(missing) == {"QQP", "MNLI", "QNLI"}
    for name, (count, labels, dev_rows, dev_labels) in COUNTS.items():
        train, dev = found[name].train, found[name].tests["dev"]
        assert (len(train), Counter(train.targets)) == (count, labels)
        assert (len(dev), Counter(dev.targets)) == (dev_rows, dev_labels)
    train, dev = found["STS-B"].train, found["STS-B"].tests["dev"]
    assert (len(train), len(dev)) == (5749, 1500)
    assert abs(sum(train.targets) / 5749 - 2.701) < 5e-4 and abs(sum(dev.targets) / 1500 - 2.3639) < 5e-5
    assert found["RTE"].train.first[0] == "No Weapons of Mass Destruction Found in Iraq Yet."
    assert found["MRPC"].tests["dev"].second is not None
    assert found["MRPC"].tests["dev"].second[0].startswith('" The foodservice pie business does not fit')


def test_listing_tasks_loads_nothing_heavy() -> None:
    code = (
        "import sys; from workbench import tasks; rows = tasks.known(); "
        "assert {'CoLA', 'package'} <= {r['name'] for r in rows} and all(r['summary'] for r in rows); "
        "print(set(sys.modules) & {'torch', 'numpy', 'transformers', 'datasets', 'pandas', 'scipy', 'pyarrow'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# ---- The files of a GLUE submission: what is read for them, and how predictions are spelled ----


def test_the_parts_are_the_eleven_files_of_the_server() -> None:
    assert {part.name: part.rows for part in PARTS.values()} == glue_files.ROWS
    assert [part.task for part in PARTS.values() if part.name in ("AX", "MNLI-m", "MNLI-mm")] == ["MNLI"] * 3
    assert all(part.task in glue.ROWS and part.file == f"{name}.tsv" for name, part in PARTS.items())


@pytest.mark.parametrize("name", [name for name in PARTS if name != "QQP"])
def test_a_test_file_is_read_row_by_row(name: str, tmp_path: Path) -> None:
    lines = glue_files.unlabelled(name)
    write(tmp_path / PARTS[name].path, *lines)
    found = glue.read_part(tmp_path, PARTS[name])
    assert found is not None and len(found) == glue_files.ROWS[name] == len(found.targets) and not any(found.targets)
    head = lines[0].split("\t")
    texts = [i for i, column in enumerate(head) if column in glue_files.TEXTS]
    assert found.first == [line.split("\t")[texts[0]] for line in lines[1:]]
    second = [line.split("\t")[texts[1]] for line in lines[1:]] if len(texts) > 1 else None
    assert found.second == second


def test_a_part_without_a_file_is_none(tmp_path: Path) -> None:
    assert glue.read_part(tmp_path, PARTS["RTE"]) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[:-1], r"has 145 rows for WNLI\.tsv, and the server of GLUE takes exactly 146"),
        (lambda lines: [*lines, "146\ta\tb"], "has 147 rows"),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "line 2: the index is '1', and 0 is expected"),
        (lambda lines: [*lines[:5], "4", *lines[6:]], "line 6: 1 columns where 3 are needed"),
        (lambda lines: ["index\tsentence1", *lines[1:]], "no column 'sentence2'"),
        (lambda lines: lines[:1], "holds no rows"),
    ],
)
def test_a_damaged_test_file_is_refused(change, said: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    write(tmp_path / "WNLI/test.tsv", *change(glue_files.unlabelled("WNLI")))
    with pytest.raises(InputError, match=said):
        glue.read_part(tmp_path, PARTS["WNLI"])


def test_the_hubs_parquet_has_the_same_texts(tmp_path: Path) -> None:
    count = glue_files.ROWS["AX"]
    rows = {"premise": [f"a {i}" for i in range(count)], "hypothesis": ["b"] * count, "label": [-1] * count}
    (tmp_path / "ax").mkdir()
    pq.write_table(pa.table(rows), tmp_path / "ax" / "test-00000-of-00001.parquet")
    found = glue.read_part(tmp_path, PARTS["AX"])
    assert found is not None and found.first == rows["premise"] and found.second == rows["hypothesis"]


def test_words_are_spelled_as_the_server_has_them() -> None:
    outputs = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 1.0], [0.0, 0.5, 1.0]], dtype=np.float32)
    assert glue.words_of(outputs, glue.ROWS["MNLI"]) == ["entailment", "neutral", "contradiction"]
    assert glue.words_of(outputs[:, :2], glue.ROWS["QNLI"]) == ["entailment", "not_entailment", "not_entailment"]
    assert glue.words_of(outputs[:, :2], glue.ROWS["CoLA"]) == ["0", "1", "1"]


def test_the_scores_of_sts_b_are_clipped_to_0_and_5() -> None:
    outputs = np.array([[-0.2], [0.0], [0.12345], [1.0], [1.7]], dtype=np.float32)
    assert glue.words_of(outputs, glue.ROWS["STS-B"]) == ["0.000", "0.000", "0.617", "5.000", "5.000"]


def test_an_ensemble_averages_probabilities_and_not_outputs() -> None:
    """One classifier is sure of label 0 and two lean to label 1: the mean of the outputs would say 0."""
    outputs = [np.array([[40.0, 0.0]]), np.array([[0.0, 3.0]]), np.array([[0.0, 3.0]])]
    mean = glue.averaged(outputs, glue.ROWS["CoLA"])
    sure = 1 / (1 + np.exp(-3.0))
    np.testing.assert_allclose(mean, [[(1 + 2 * (1 - sure)) / 3, 2 * sure / 3]], rtol=1e-12)
    assert glue.words_of(mean, glue.ROWS["CoLA"]) == ["1"] and np.mean(outputs, axis=0).argmax() == 0
    scores = glue.averaged([np.array([[0.2]]), np.array([[0.4]])], glue.ROWS["STS-B"])
    np.testing.assert_allclose(scores, [[0.3]])
    assert glue.averaged(outputs[:1], glue.ROWS["CoLA"]) is outputs[0]


def test_a_file_has_a_header_and_numbered_rows() -> None:
    assert glue.tsv(["neutral", "entailment"]) == b"index\tprediction\n0\tneutral\n1\tentailment\n"


def test_the_real_test_files(real_data: Path) -> None:
    found = {name: glue.read_part(real_data / "glue", part) for name, part in PARTS.items()}
    there = {name for name, rows in found.items() if rows is not None}
    assert there == {"CoLA", "SST-2", "MRPC", "STS-B", "QNLI", "RTE", "WNLI", "AX"}
    cola, diagnostic = found["CoLA"], found["AX"]
    assert cola is not None and cola.first[0] == "Bill whistled past the house."
    assert diagnostic is not None and diagnostic.second is not None
    assert diagnostic.second[0] == "The cat did not sit on the mat."
