"""Tables and taggers by path alone: AG News, TREC, SICK, SUBJ, WNUT-17 and UD in their published layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench import tasks
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks.common.examples import Task
from workbench.tasks.embeddings import Embedding
from workbench.tasks.tagging import Tagging

SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"


def load(name: object, **more: Any) -> Any:
    (task,) = tasks.read(TasksSpec(names=(str(name),), **more)).tasks
    return task


def test_ag_news_has_no_header(tmp_path: Path) -> None:
    for part, count in (("train", 12), ("test", 4)):
        rows = [f'"{n % 4 + 1}","Title {n}","Text, ""quoted"" {n}\\$"' for n in range(count)]
        (tmp_path / f"{part}.csv").write_text("\n".join(rows) + "\n")
    task = load(tmp_path / "train.csv", label="1", text="2", pair="3")
    assert isinstance(task, Task) and task.labels == ("1", "2", "3", "4")
    assert (len(task.train), {part: len(rows) for part, rows in task.tests.items()}) == (12, {"test": 4})
    assert task.train.first[0] == "Title 0" and task.train.second == [f'Text, "quoted" {n}\\$' for n in range(12)]
    assert load(tmp_path / "train.csv").fingerprint == task.fingerprint
    (tmp_path / "four.csv").write_text('1,"a title",text,more\n' * 3)
    with pytest.raises(InputError, match=r"of a file without a header give numbers, as in --set tasks\.label=1"):
        load(tmp_path / "four.csv")
    with pytest.raises(InputError, match=r"has no column '9' \(tasks\.text\)"):
        load(tmp_path / "train.csv", label="1", text="9")


@pytest.mark.parametrize("name", ["x.csv", "x.tsv"])
def test_columns_without_a_header_are_found_and_named(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mark = "," if name.endswith("csv") else "\t"
    rows = [f"{mark.join((f'text {n}', ('good', 'bad')[n % 2]))}\n" for n in range(40)]
    (tmp_path / name).write_text("".join(rows))
    task = load(tmp_path / name)
    assert task.labels == ("bad", "good") and len(task.train) + len(task.tests["test"]) == 40
    assert f"{name} has no header: column 2 is read as the label, 1 as text" in caplog.text
    (tmp_path / name).write_text(mark.join(("remark", "mood")) + "\n" + "".join(rows))
    with pytest.raises(InputError, match="has no column 'label'"):  # a header of other names stays one
        load(tmp_path / name)


def test_a_header_of_numbers_stays_a_header(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,2\n" + "".join(f"{n % 2},text {n}\n" for n in range(40)))
    task = load(tmp_path / "x.csv", label="1", text="2")
    assert len(task.train) + len(task.tests["test"]) == 40


def test_trec_has_a_label_before_each_text(tmp_path: Path) -> None:
    for part in ("train", "test"):
        lines = ["DESC:manner How did it end ?", "LOC:city What city is it ?", "LOC:other Where is it ?"]
        (tmp_path / f"{part}.txt").write_text("\n".join(lines) + "\n")
    fine = load(tmp_path / "train.txt")
    assert fine.labels == ("DESC:manner", "LOC:city", "LOC:other") and fine.train.first[0] == "How did it end ?"
    assert load(tmp_path / "train.txt", label="coarse").labels == ("DESC", "LOC")
    (tmp_path / "only.label").write_text("".join(f"__label__{n % 2} text {n}\n" for n in range(40)))
    assert load(tmp_path / "only.label").labels == ("0", "1")


def test_trec_is_read_as_it_was_published(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = "".join(f"{('LOC:city', 'HUM:ind')[n % 2]} What is number {n} , say ?\n" for n in range(60))
    (tmp_path / "train_5500.label").write_bytes(lines.encode() + b"NUM:date When did the caf\xe9 open ?\n")
    (tmp_path / "TREC_10.label").write_text(lines)
    task = load(tmp_path / "train_5500.label")
    assert task.name == tmp_path.name and len(task.train) == 61 and len(task.tests["test"]) == 60
    assert task.train.first[60] == "When did the café open ?"
    assert "is read as Latin-1: 1 character that ASCII lacks, first 'é' at line 61" in caplog.text


@pytest.mark.parametrize("odd", [b"\xe9" * 9, b"\xc3\xa9 \xe9", b"\x81"])
def test_other_bytes_are_no_latin_1(odd: bytes, tmp_path: Path) -> None:
    """Too many of them, some that are UTF-8 after all, or one that stands for no character."""
    lines = b"".join(b"x:y some text %d\n" % n for n in range(400))
    (tmp_path / "x.label").write_bytes(lines + b"x:z a" + odd + b"\n")
    with pytest.raises(InputError, match="is not UTF-8"):
        load(tmp_path / "x.label")


def test_sick_is_classified_graded_or_compared(tmp_path: Path) -> None:
    kinds = ("NEUTRAL", "ENTAILMENT", "CONTRADICTION")
    for part, count in (("train", 9), ("trial", 3), ("test_annotated", 6)):
        rows = [f"{n}\tA {part} {n}\tB {n}\t{1 + n / 4}\t{kinds[n % 3]}\n" for n in range(count)]
        (tmp_path / f"SICK_{part}.txt").write_text(SICK + "".join(rows))
    path = tmp_path / "SICK_train.txt"
    task = load(path, label="entailment_judgment")
    assert task.name == "SICK" and set(task.labels) == set(kinds)
    assert {part: len(rows) for part, rows in task.tests.items()} == {"dev": 3, "test": 6}
    assert load(path).fingerprint == task.fingerprint
    assert load(path, label="relatedness_score").regression
    assert load(f"similarity:{path}").fingerprint == load(f"similarity:{path}", label="relatedness_score").fingerprint
    similar = load(f"similarity:{path}", label="relatedness_score")
    assert isinstance(similar, Embedding) and {part: len(rows) for part, rows in similar.tests.items()} == {
        "test": 6, "dev": 3,
    }  # fmt: skip
    rows = [
        f"{n}\tA {n}\tB {n}\t{kinds[n % 3]}\t{1 + n / 4}\t{('TRAIN', 'TRIAL', 'TEST')[n // 6]}\n" for n in range(18)
    ]
    head = "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\tSemEval_set\n"
    (tmp_path / "SICK.txt").write_text(head + "".join(rows))
    whole = load(tmp_path / "SICK.txt", label="entailment_label")
    assert len(whole.train) == 6 and {part: len(rows) for part, rows in whole.tests.items()} == {"dev": 6, "test": 6}


def test_subj_has_no_header(tmp_path: Path) -> None:
    (tmp_path / "subj.tsv").write_text("".join(f'{n % 2}\tsome "text {n}\n' for n in range(60)))
    task = load(tmp_path / "subj.tsv", label="1", text="2")
    assert task.labels == ("0", "1") and len(task.train) + len(task.tests["test"]) == 60
    assert load(tmp_path / "subj.tsv").fingerprint == task.fingerprint
    assert task.train.first[0].startswith('some "text')


def test_wnut_and_ud_are_found_by_folder_or_file(tmp_path: Path) -> None:
    (tmp_path / "wnut").mkdir()
    for file in ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"):
        (tmp_path / "wnut" / file).write_text("@home\tO\nEmpire\tB-location\nState\tI-location\n\nok\tO\n\n" * 6)
    task = load(f"tag:{tmp_path / 'wnut'}")
    assert isinstance(task, Tagging) and task.metric == "entity_f1" and set(task.tests) == {"test", "dev"}
    for part in ("train", "dev", "test"):
        (tmp_path / f"en_ewt-ud-{part}.conllu").write_text(
            "# text = go on\n1\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n2\ton\ton\tADP\tIN\t_\t1\tx\t_\t_\n\n" * 4
        )
    pos = load(f"tag:{tmp_path / 'en_ewt-ud-train.conllu'}")
    assert pos.metric == "accuracy" and set(pos.labels) == {"VERB", "ADP"} and set(pos.tests) == {"test", "dev"}


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("plot.tok.gt9", "some text .\n", r"a table ends in \.csv, .*, and sentences of tagged words are named tag:"),
        ("conll.txt", "EU NNP B-ORG\n", r"line 1: there are neither tabs nor a label .* are named tag:FILE"),
        ("trec.txt", "LOC:city\n", "line 1: there are neither tabs nor a label"),
        ("trec.txt", "\n\n", "holds no rows"),
    ],
)
def test_other_files_are_refused_in_a_sentence_that_helps(file: str, content: str, told: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(InputError, match=told):
        load(tmp_path / file)


def test_a_folder_of_tables_is_told_how_to_be_named(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\na,1\n")
    with pytest.raises(InputError, match=r"name the file of a table, such as .*/train\.csv, or tag:.* for sentences"):
        load(tmp_path)
