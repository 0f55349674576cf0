"""Collections in BEIR's layout: how they are read, and what is refused with its place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from embedding_files import load

from workbench.errors import InputError
from workbench.tasks.embeddings import Relevant


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
