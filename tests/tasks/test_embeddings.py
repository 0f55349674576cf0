"""Names of embeddings under --tasks: what they load, and what is refused."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from embedding_files import load

from workbench import tasks
from workbench.errors import InputError
from workbench.spec.parts import TasksSpec
from workbench.tasks.common.contract import FINE_TUNING, expected
from workbench.tasks.embeddings import POOLINGS, RETRIEVAL, SIMILARITY, Embedding, Relevant, Similar, fingerprinted


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


# ---- Pairs and collections as plain data: what is read of them, and what their fingerprint covers ----

PAIRS = Similar(("a", "b"), ("c", "d"), (1.0, 2.0))
FOUND = Relevant(
    {"q1": "who", "q2": "what", "q3": "where"}, {"d1": "x", "d2": "y"}, {"q1": {"d1": 2.0}, "q3": {"d9": 1}}
)


def test_queries_without_a_relevant_document_are_not_read() -> None:
    assert list(FOUND.texts()) == ["who", "where", "x", "y"] and len(FOUND) == 2
    assert list(PAIRS.texts()) == ["a", "b", "c", "d"] and len(PAIRS) == 2


def test_the_metric_follows_the_suite_and_one_score_is_enough() -> None:
    for suite, metric in ((SIMILARITY, "spearman"), (RETRIEVAL, "ndcg_10")):
        task = Embedding("x", suite, {})
        assert task.metric == metric and task.seeds(TasksSpec(seeds=5)) == 1
    settings = [Embedding("x", SIMILARITY, {}).settings(TasksSpec(**more)) for more in ({}, {"lr": 1.0}, {"length": 9})]
    assert settings[0] == settings[1] != settings[2]  # nothing is trained, so only the length of texts counts
    assert settings[0]["poolings"] == list(POOLINGS)


@pytest.mark.parametrize(
    "other",
    [
        Embedding("y", SIMILARITY, {"test": PAIRS, "all": FOUND}),
        Embedding("x", RETRIEVAL, {"test": PAIRS, "all": FOUND}),
        Embedding("x", SIMILARITY, {"dev": PAIRS, "all": FOUND}),
        Embedding("x", SIMILARITY, {"test": replace(PAIRS, second=("c", "e")), "all": FOUND}),
        Embedding("x", SIMILARITY, {"test": replace(PAIRS, targets=(1.0, 3.0)), "all": FOUND}),
        Embedding("x", SIMILARITY, {"test": PAIRS, "all": replace(FOUND, queries={**FOUND.queries, "q2": "why"})}),
        Embedding("x", SIMILARITY, {"test": PAIRS, "all": replace(FOUND, documents={"d1": "x", "d2": "z"})}),
        Embedding("x", SIMILARITY, {"test": PAIRS, "all": replace(FOUND, grades={"q1": {"d1": 1.0}})}),
    ],
)
def test_the_fingerprint_covers_all_that_decides_a_score(other: Embedding) -> None:
    task = fingerprinted(Embedding("x", SIMILARITY, {"test": PAIRS, "all": FOUND}))
    assert len(task.fingerprint) == 16 and fingerprinted(replace(task, notes=("odd",))).fingerprint == task.fingerprint
    assert fingerprinted(other).fingerprint != task.fingerprint


# ---- Collections in BEIR's layout: how they are read, and what is refused with its place ----


def test_beirs_layout_is_read(collection: Path) -> None:
    task = load(f"retrieval:{collection}")
    part = task.tests["test"]
    assert isinstance(part, Relevant) and task.name == "retrieval:toys" and task.metric == "ndcg_10"
    assert (len(part), len(part.queries), len(part.documents)) == (10, 20, 60)
    assert part.grades["q0"] == {"d0": 2.0, "d1": 1.0} and task.notes == ()
    assert task.baselines()["tf-idf"] > 60 > 20 > task.baselines()["chance"] > 0


def test_tsv_and_packed_files_are_read_alike(collection: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = load(f"retrieval:{collection}")
    corpus = collection / "corpus.jsonl"
    (collection / "corpus.jsonl.gz").write_bytes(gzip.compress(corpus.read_bytes()))
    corpus.unlink()
    rows = [json.loads(line) for line in (collection / "queries.jsonl").read_text().splitlines()]
    (collection / "queries.tsv").write_text("id\ttext\n" + "".join(f"{row['_id']}\t{row['text']}\n" for row in rows))
    (collection / "queries.jsonl").unlink()
    (collection / "qrels/test.tsv").rename(collection / "qrels.tsv")
    after = load(f"retrieval:{collection}")
    assert after.fingerprint == before.fingerprint and "not read" not in caplog.text
    (collection / "qrels/test.tsv").write_bytes((collection / "qrels.tsv").read_bytes())
    assert load(f"retrieval:{collection}").fingerprint == before.fingerprint
    assert f"{collection}/qrels.tsv is not read, but the files in {collection}/qrels" in caplog.text


def test_what_is_odd_is_counted_and_named(collection: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = collection / "qrels/test.tsv"
    with open(file, "a") as out:
        out.write("q0\tnowhere\t1\nq77\td1\t1\nq0\td0\t1\nq15\td1\t0\n")
    with open(collection / "corpus.jsonl", "a") as out:
        out.write('{"_id": "empty", "text": " "}\n')
    task = load(f"retrieval:{collection}")
    part = task.tests["test"]
    assert (
        isinstance(part, Relevant) and part.grades["q0"] == {"d0": 1.0, "d1": 1.0, "nowhere": 1.0} and len(part) == 10
    )
    assert task.notes == (
        f"1 row with an empty text: {collection / 'corpus.jsonl'}, line 61",
        f"1 row about a document that is not in the corpus, and counts as never found: {file}, line 22",
        f"1 row about a query that is not in the queries, and is left out: {file}, line 23",
        f"1 row about a query and a document that an earlier row has, of which the last counts: {file}, line 24",
        f"1 row about a query without any relevant document, which is not scored: {file}, line 25",
    )
    assert "counts as never found" in caplog.text


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        (
            "corpus.jsonl",
            '{"_id": "a", "text": "x"}\n{"_id": "a", "text": "y"}\n',
            "line 2: the id a occurs twice, first in",
        ),
        ("corpus.jsonl", '{"text": "x"}\n', "line 1: there is no '_id'"),
        ("corpus.jsonl", '{"_id": "a"}\n', "line 1: column 'text' holds no text"),
        ("corpus.jsonl", "", "corpus.jsonl holds no rows"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq0\td0\tyes\n", "line 2: score 'yes' is not a number"),
        ("qrels/test.tsv", "q0\td0\t1\nq1\td1\t1\n", "there is no column 'query-id'"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq0\td0\n", "line 2: 2 fields where the header has 3"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq0\td0\t0\n", "no relevant document"),
    ],
)
def test_a_damaged_collection_is_refused_with_its_place(file: str, content: str, told: str, collection: Path) -> None:
    (collection / file).write_text(content)
    with pytest.raises(InputError) as caught:
        load(f"retrieval:{collection}")
    assert told in str(caught.value) and str(collection) in str(caught.value)
