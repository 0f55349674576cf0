"""Embeddings of texts: what is read and refused, vectors as transformers gives them, metrics as others compute them."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModel, AutoTokenizer

from workbench import tasks
from workbench.errors import InputError
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.embeddings import ranking
from workbench.tasks.embeddings.embed import embed, embeddings
from workbench.tasks.embeddings.embedding_task import Embedding, Relevant, Similar, sealed
from workbench.tasks.measures import expected
from workbench.tasks.price import measured_along

WORDS = [f"{a}{b}" for a in ("ba", "ke", "lo", "mi") for b in ("da", "fe", "go", "ni", "tu")]
SPEC = TasksSpec(length=32)
CPU = Host(device="cpu", threads=1)


def load(name: str, **more: Any) -> Embedding:
    (task,) = tasks.load(TasksSpec(names=(name,), **more)).tasks
    assert isinstance(task, Embedding)
    return task


def texts(count: int, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, size=random.integers(2, 12))) for _ in range(count)]


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """Return a collection in which each query has the words of one document, and of half of another."""
    folder = tmp_path / "toys"
    (folder / "qrels").mkdir(parents=True)
    documents = texts(60)
    rows = [{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(documents)]
    write(folder / "corpus.jsonl", rows)
    write(folder / "queries.jsonl", [{"_id": f"q{n}", "text": documents[n]} for n in range(20)])
    lines = [
        "query-id\tcorpus-id\tscore",
        *(f"q{n}\td{n}\t2" for n in range(10)),
        *(f"q{n}\td{n + 1}\t1" for n in range(10)),
    ]
    (folder / "qrels/test.tsv").write_text("\n".join(lines) + "\n")
    return folder


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


# ---- vectors ----


def test_vectors_are_those_of_transformers(encoder: Path) -> None:
    given_texts = [*texts(30), "", "bada " * 60]
    found = embeddings(encoder, given_texts, 32, CPU)
    tokenizer, model = AutoTokenizer.from_pretrained(encoder), AutoModel.from_pretrained(encoder).eval()
    for row, text in enumerate(given_texts):
        with torch.no_grad():
            ids = tokenizer(text, truncation=True, max_length=32, return_tensors="pt")
            hidden = model(**ids).last_hidden_state[0]
        for name, vector in (("mean", hidden.mean(0)), ("cls", hidden[0])):
            expected_vector = torch.nn.functional.normalize(vector, dim=0).numpy()
            assert np.allclose(found[name][row], expected_vector, atol=2e-5), (name, text)


def test_the_mean_is_that_of_sentence_transformers(encoder: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    model = library.SentenceTransformer(str(encoder), device="cpu")  # of a folder without modules.json, mean pooling
    model.max_seq_length = 32
    sentences = [*texts(20, 1), "bada " * 60]
    vectors = model.encode(sentences, normalize_embeddings=True, show_progress_bar=False)
    assert np.allclose(embeddings(encoder, sentences, 32, CPU)["mean"], vectors, atol=2e-5)


# ---- similarity ----


def test_similarity_is_the_rank_correlation_of_cosines(encoder: Path) -> None:
    first, second = texts(40, 2), texts(40, 3)
    targets = np.random.default_rng(0).random(40).round(1)
    task = sealed(
        Embedding("similarity:x", "similarity", {"dev": Similar(tuple(first), tuple(second), tuple(targets.tolist()))})
    )
    score = embed(encoder, task, SPEC, 0, CPU)
    for name, part in (("mean", "dev"), ("cls", "dev, cls")):
        vectors = embeddings(encoder, [*first, *second], 32, CPU)[name]
        cosines = (vectors[:40] * vectors[40:]).sum(1)
        assert score.values[part]["spearman"] == pytest.approx(
            100 * scipy.stats.spearmanr(cosines, targets).statistic, abs=1e-3
        )
        assert score.values[part]["pearson"] == pytest.approx(
            100 * scipy.stats.pearsonr(cosines, targets).statistic, abs=1e-3
        )
    assert (score.value, score.test_rows, score.train_rows) == (score.values["dev"]["spearman"], 40, 0)


def test_a_table_is_tested_whole_unless_it_has_parts(tmp_path: Path) -> None:
    head = "sentence1,sentence2,score\n"
    (tmp_path / "alike.csv").write_text(head + "a b,a b,5\na b,c d,1.5\na b,a c,3\n")
    task = load(f"similarity:{tmp_path / 'alike.csv'}")
    assert task.name == "similarity:alike" and {part: len(rows) for part, rows in task.tests.items()} == {"all": 3}
    assert task.baselines["tf-idf"] == pytest.approx(100)
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
    assert 50 < task.baselines["tf-idf"] < 80 and task.baselines["chance"] == 0


# ---- retrieval ----


def test_beirs_layout_is_read(collection: Path) -> None:
    task = load(f"retrieval:{collection}")
    part = task.tests["test"]
    assert isinstance(part, Relevant) and task.name == "retrieval:toys" and task.metric == "ndcg_10"
    assert (len(part), len(part.queries), len(part.documents)) == (10, 20, 60)
    assert part.grades["q0"] == {"d0": 2.0, "d1": 1.0} and task.notes == ()
    assert task.baselines["tf-idf"] > 60 > 20 > task.baselines["chance"] > 0


def test_tsv_and_packed_files_are_read_alike(collection: Path) -> None:
    before = load(f"retrieval:{collection}")
    corpus = collection / "corpus.jsonl"
    (collection / "corpus.jsonl.gz").write_bytes(gzip.compress(corpus.read_bytes()))
    corpus.unlink()
    rows = [json.loads(line) for line in (collection / "queries.jsonl").read_text().splitlines()]
    (collection / "queries.tsv").write_text("id\ttext\n" + "".join(f"{row['_id']}\t{row['text']}\n" for row in rows))
    (collection / "queries.jsonl").unlink()
    (collection / "qrels/test.tsv").rename(collection / "qrels.tsv")
    after = load(f"retrieval:{collection}")
    assert after.fingerprint == before.fingerprint


def test_the_own_text_is_found_and_scores_are_counted(encoder: Path, collection: Path) -> None:
    task = load(f"retrieval:{collection}")
    score = embed(encoder, task, SPEC, 0, CPU)
    assert score.value > 60 and score.test_rows == 10  # each query is word for word its best document
    assert set(score.values) == {"test", "test, cls"} and set(score.values["test"]) == {
        "ndcg_10",
        "recall_10",
        "recall_100",
    }
    assert score.values["test"]["recall_100"] == 100


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_ndcg_is_scikit_learns_and_recall_a_plain_count(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 130))
    seed = data.draw(st.integers(0, 1000))
    random = np.random.default_rng(seed)
    grades = random.integers(0, 4, count) * (random.random(count) < 0.3)
    grades[0] = 1
    scores = random.permutation(count).astype(float)
    part = Relevant(
        {"q": "x"}, {f"d{n}": "y" for n in range(count)}, {"q": {f"d{n}": float(g) for n, g in enumerate(grades) if g}}
    )
    found = ranking.metrics(part, np.ones((1, 1)), scores[:, None])
    assert found["ndcg_10"] == pytest.approx(sklearn.metrics.ndcg_score([grades], [scores], k=10))
    best = np.argsort(-scores)
    for cut in (10, 100):
        assert found[f"recall_{cut}"] == pytest.approx((grades[best[:cut]] > 0).sum() / (grades > 0).sum())


def test_equal_scores_are_no_help_and_chance_is_their_mean() -> None:
    """An encoder that gives every text one vector gets what chance gives, over many collections."""
    values, chances = [], []
    for number in range(300):
        documents = {f"{number}-{n}": "x" for n in range(40)}
        part = Relevant({"q": "x"}, documents, {"q": {f"{number}-0": 1.0, f"{number}-1": 2.0}})
        values.append(ranking.metrics(part, np.ones((1, 1)), np.ones((40, 1)))["ndcg_10"])
        chances.append(ranking.chance(part))
    assert len(set(chances)) == 1
    assert np.mean(values) == pytest.approx(chances[0], abs=4 * np.std(values) / math.sqrt(300))


def test_a_query_is_not_its_own_answer() -> None:
    part = Relevant({"a": "x"}, {"a": "x", "b": "y"}, {"a": {"b": 1.0}})
    assert ranking.metrics(part, np.ones((1, 1)), np.array([[2.0], [1.0]]))["ndcg_10"] == 1.0
    assert ranking.chance(part) == 1.0


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
    assert len(list(expected(suite, spec))) == 1 and all(map(measured_along, suite.tasks)) and tasks.along(spec)
