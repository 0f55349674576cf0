"""Tables and taggers by path alone: AG News, TREC, SICK, SUBJ, WNUT-17 and UD in their published layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench import tasks
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks.embeddings.embedding_task import Embedding
from workbench.tasks.tagging.tagging_task import Tagging
from workbench.tasks.task import Task

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
    with pytest.raises(InputError, match=r"of a file without a header give numbers, as in --set tasks\.label=1"):
        load(tmp_path / "train.csv")
    with pytest.raises(InputError, match=r"has no column '9' \(tasks\.text\)"):
        load(tmp_path / "train.csv", label="1", text="9")


def test_a_header_of_numbers_stays_a_header(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,2\n" + "".join(f"{n % 2},text {n}\n" for n in range(40)))
    task = load(tmp_path / "x.csv", label="1", text="2")
    assert len(task.train) + len(task.tests["dev"]) == 40


def test_trec_has_a_label_before_each_text(tmp_path: Path) -> None:
    for part in ("train", "test"):
        lines = ["DESC:manner How did it end ?", "LOC:city What city is it ?", "LOC:other Where is it ?"]
        (tmp_path / f"{part}.txt").write_text("\n".join(lines) + "\n")
    fine = load(tmp_path / "train.txt")
    assert fine.labels == ("DESC:manner", "LOC:city", "LOC:other") and fine.train.first[0] == "How did it end ?"
    assert load(tmp_path / "train.txt", label="coarse").labels == ("DESC", "LOC")
    (tmp_path / "only.label").write_text("".join(f"__label__{n % 2} text {n}\n" for n in range(40)))
    assert load(tmp_path / "only.label").labels == ("0", "1")


def test_sick_is_classified_graded_or_compared(tmp_path: Path) -> None:
    kinds = ("NEUTRAL", "ENTAILMENT", "CONTRADICTION")
    for part, count in (("train", 9), ("trial", 3), ("test_annotated", 6)):
        rows = [f"{n}\tA {part} {n}\tB {n}\t{1 + n / 4}\t{kinds[n % 3]}\n" for n in range(count)]
        (tmp_path / f"SICK_{part}.txt").write_text(SICK + "".join(rows))
    path = tmp_path / "SICK_train.txt"
    task = load(path, label="entailment_judgment")
    assert task.name == "SICK" and set(task.labels) == set(kinds)
    assert {part: len(rows) for part, rows in task.tests.items()} == {"dev": 3, "test": 6}
    assert load(path, label="relatedness_score").regression
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
    assert task.labels == ("0", "1") and len(task.train) + len(task.tests["dev"]) == 60
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
