"""Names of embeddings under --tasks: what they load, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from embedding_files import load

from workbench import tasks
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks.common.contract import FINE_TUNING, expected


def test_a_table_is_tested_whole_unless_it_has_parts(tmp_path: Path) -> None:
    head = "sentence1,sentence2,score\n"
    (tmp_path / "alike.csv").write_text(head + "a b,a b,5\na b,c d,1.5\na b,a c,3\n")
    task = load(f"similarity:{tmp_path / 'alike.csv'}")
    assert task.name == "similarity:alike" and {part: len(rows) for part, rows in task.tests.items()} == {"all": 3}
    assert task.baselines()["tf-idf"] == pytest.approx(100)
    (tmp_path / "more.train.csv").write_text(head + "x,y,1\n" * 5)
    (tmp_path / "more.test.csv").write_text(head + "a,b,1\nb,c,2\nc,d,3\nd,e,4\n")
    task = load(f"similarity:{tmp_path / 'more.train.csv'}")
    assert {part: len(rows) for part, rows in task.tests.items()} == {"test": 4}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("sentence1,sentence2,score\na,b,much\nc,d,1\ne,f,2\n", "line 2: label 'much' is not a number"),
        ("sentence1,sentence2,score\na,b,1\nc,d,1\ne,f,1\n", "the same number in every row"),
        ("sentence1,sentence2,score\na,b,1\nc,d,2\n", "2 pairs in part 'all'"),
        ("text,score\na,1\nb,2\nc,3\n", "similarity needs two"),
    ],
)
def test_tables_without_similarity_are_refused(content: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(InputError) as caught:
        load(f"similarity:{tmp_path / 'x.csv'}")
    assert told in str(caught.value)


def test_sts_b_is_its_dev_part(real_data: Path) -> None:
    task = load("similarity:STS-B", glue=str(real_data / "glue"))
    assert {part: len(rows) for part, rows in task.tests.items()} == {"dev": 1500}
    assert 50 < task.baselines()["tf-idf"] < 80 and task.baselines()["chance"] == 0


def test_missing_files_and_searches_are_refused(collection: Path, tmp_path: Path) -> None:
    for name, told in (
        (f"retrieval:{tmp_path / 'nowhere'}", "give a folder with corpus.jsonl"),
        ("retrieval:", "give a folder with corpus.jsonl"),
        ("similarity:", "give STS-B, or a table"),
        (f"similarity:{tmp_path / 'nowhere.csv'}", "give STS-B, or a table"),
    ):
        with pytest.raises(InputError, match=told):
            load(name)
    with pytest.raises(InputError, match="a search cannot choose settings"):
        load(f"retrieval:{collection}", held_out=0.2)
    (collection / "queries.jsonl").unlink()
    with pytest.raises(InputError, match=r"has no queries\.jsonl or queries\.tsv"):
        load(f"retrieval:{collection}")


def test_every_name_is_listed_and_taken_once_along_training(collection: Path) -> None:
    rows = {row["name"]: row["metric"] for row in tasks.known()}
    assert rows["similarity:STS-B"] == rows["similarity:FILE"] == "spearman" and rows["retrieval:DIR"] == "ndcg_10"
    spec = TasksSpec(names=(f"retrieval:{collection}",), seeds=5)
    suite = tasks.load(spec)
    assert (
        len(list(expected(suite, spec))) == 1
        and all(task.act != FINE_TUNING for task in suite.tasks)
        and tasks.any_during_training(spec)
    )
