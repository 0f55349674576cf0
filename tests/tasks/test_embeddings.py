"""Names of embeddings under --tasks: what they load, and what is refused."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import torch
from embedding_files import WORDS, collection_at, load, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import ndcg_score
from sklearn.metrics.pairwise import cosine_similarity
from transformers import AutoModel, AutoTokenizer

from workbench import tasks
from workbench.errors import InputError
from workbench.report.load.study_tables import choose
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks import _embedding_vectors as embedding_vectors
from workbench.tasks._embedding_vectors import apart, embeddings, loss_named
from workbench.tasks.common.contract import FINE_TUNING, Model, expected, score_digest, take
from workbench.tasks.common.examples import Examples
from workbench.tasks.embeddings import POOLINGS, RETRIEVAL, SIMILARITY, Embedding, Relevant


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """Return a collection in which each query has the words of one document, and of half of another."""
    documents = texts(60)
    rows = [f"q{n}\td{n + more}\t{2 - more}" for more in (0, 1) for n in range(10)]
    return collection_at(tmp_path / "toys", documents, documents[:20], test=rows)


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
    tuned = contrastive("similarity:STS-B", glue=str(real_data / "glue"))
    assert isinstance(tuned.train, Examples) and len(tuned.train) == 5749 and len(tuned.tests["dev"]) == 1500


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
    assert len(list(expected(suite, spec))) == 1 and tasks.any_during_training(spec)
    assert all(task.act != FINE_TUNING for task in suite.tasks)


# ---- Pairs and collections as plain data: what is read of them, and what their fingerprint covers ----

PAIRS = Examples(("a", "b"), ("c", "d"), (1.0, 2.0))
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
    task = Embedding("x", SIMILARITY, {"test": PAIRS, "all": FOUND})
    assert len(task.fingerprint) == 16 and replace(task, notes=("odd",)).fingerprint == task.fingerprint
    assert other.fingerprint != task.fingerprint


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
    assert isinstance(part, Relevant) and len(part) == 10
    assert part.grades["q0"] == {"d0": 1.0, "d1": 1.0, "nowhere": 1.0}
    assert task.notes == (
        f"1 row with an empty text: {collection / 'corpus.jsonl'}, line 61",
        f"1 row about a document that is not in the corpus, and counts as never found: {file}, line 22",
        f"1 row about a query that is not in the queries, and is left out: {file}, line 23",
        f"1 row about a query and a document that an earlier row has; the last row counts: {file}, line 24",
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


SPEC = TasksSpec(length=32)
CPU = Host(device="cpu", threads=1)


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


def test_similarity_is_the_rank_correlation_of_cosines(encoder: Path) -> None:
    first, second = texts(40, 2), texts(40, 3)
    targets = np.random.default_rng(0).random(40).round(1)
    task = Embedding("similarity:x", "similarity", {"dev": Examples(first, second, targets.tolist())})
    score = take(task, Model(encoder, SPEC, 0), CPU)
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


def test_the_own_text_is_found_and_scores_are_counted(encoder: Path, collection: Path) -> None:
    task = load(f"retrieval:{collection}")
    score = take(task, Model(encoder, SPEC, 0), CPU)
    assert score.value > 60 and score.test_rows == 10  # each query is word for word its best document
    assert set(score.values) == {"test", "test, cls"}
    assert set(score.values["test"]) == {"ndcg_10", "recall_10", "recall_100"}
    assert score.values["test"]["recall_100"] == 100


# ---- Contrastive fine-tuning ----

library = pytest.importorskip("sentence_transformers")

SPEC_CONTRASTIVE = TasksSpec(length=32, lr=2e-3, layer_decay=0.9, batch=16, embeddings="contrastive")


def contrastive(name: str, **more: Any) -> Embedding:
    return load(name, embeddings="contrastive", **more)


def random_texts(count: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, size=random.integers(2, 9))) for _ in range(count)]


@pytest.fixture(scope="module")
def keyword_pairs() -> Embedding:
    """Return graded pairs that are alike if both have the word `bada` or neither has it, whatever the others are."""

    def side(count: int, seed: int) -> tuple[list[str], Any]:
        has = np.random.default_rng(seed).random(count) < 0.5
        others = [text.replace("bada", "kego") for text in random_texts(count, seed)]
        return [f"bada {text}" if one else f"kefe {text}" for one, text in zip(has, others, strict=True)], has

    def part(count: int, seed: int) -> Examples:
        (first, one), (second, two) = side(count, seed), side(count, seed + 1)
        return Examples(tuple(first), tuple(second), tuple((one == two).astype(float).tolist()))

    return Embedding("similarity:keyword", "similarity", {"dev": part(120, 50)}, train=part(192, 80))


@pytest.fixture
def toys(tmp_path: Path) -> Path:
    """Return a collection in which a query shares no word with its document, but for chance."""
    rows = [f"q{n}\td{n}\t1" for n in range(20)]
    queries = [f"query {word}" for word in WORDS]
    return collection_at(tmp_path / "toys", random_texts(30, 7), queries, train=rows[:15], test=rows[15:])


def test_losses_are_those_of_their_papers() -> None:
    torch.manual_seed(0)
    one, two = torch.randn(7, 5), torch.randn(7, 5)
    cosines = torch.nn.functional.normalize(one, dim=1) @ torch.nn.functional.normalize(two, dim=1).T
    softmax = -torch.log_softmax(20 * cosines, 1).diagonal().mean()
    loss = loss_named("MultipleNegativesRankingLoss").compute_loss_from_embeddings([one, two], torch.zeros(7))
    assert loss.item() == pytest.approx(softmax.item())
    grades = torch.tensor([0.0, 1.0, 1.0, 2.5, 0.0, 4.0, 3.0])
    of_pairs = cosines.diagonal()
    total = sum(
        float(torch.exp(20 * (of_pairs[low] - of_pairs[high])))
        for low in range(7)
        for high in range(7)
        if grades[high] > grades[low]
    )
    loss = loss_named("CoSENTLoss").compute_loss_from_embeddings([one, two], grades)
    assert loss.item() == pytest.approx(np.log1p(total), rel=1e-5)


@pytest.mark.parametrize("count", [1, 4])
def test_a_batch_of_equal_grades_trains_nothing(count: int) -> None:
    one, two = torch.randn(count, 5, requires_grad=True), torch.randn(count, 5)
    loss = loss_named("CoSENTLoss").compute_loss_from_embeddings([one, two], torch.ones(count))
    loss.backward()
    assert loss.item() == 0 and one.grad is not None and torch.equal(one.grad, torch.zeros(count, 5))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_training_is_that_of_sentence_transformers(encoder: Path, keyword_pairs: Embedding, pooling: str) -> None:
    """One batch of all pairs, three times: by the library's own model and loss, and by ours."""
    from sentence_transformers.sentence_transformer import losses, modules

    small = replace(keyword_pairs, train=keyword_pairs.train.take(range(24)))  # type: ignore[union-attr]
    assert isinstance(small.train, Examples)
    which = "contrastive" if pooling == "mean" else "contrastive-cls"
    spec = SPEC_CONTRASTIVE.model_copy(
        update={"batch": 24, "epochs": 3.0, "dropout": 0.0, "layer_decay": 1.0, "warmup": 0.0, "embeddings": which,
                "clip": 1e9}
    )  # fmt: skip
    words = modules.Transformer(str(encoder))
    words.max_seq_length = 32
    model = library.SentenceTransformer(
        modules=[words, modules.Pooling(words.get_embedding_dimension(), pooling_mode=pooling)], device="cpu"
    )
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    loss, targets = losses.CoSENTLoss(model), torch.tensor(small.train.targets)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0)
    model.train()
    for step in range(3):
        optimizer.param_groups[0]["lr"] = 2e-3 * (1 - step / 3)
        loss([model.preprocess(list(side)) for side in (small.train.first, small.train.second)], targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    test = small.tests["dev"]
    assert isinstance(test, Examples)
    one, two = (model.encode(list(side), normalize_embeddings=True) for side in (test.first, test.second))
    theirs = scipy.stats.spearmanr((one * two).sum(1), test.targets).statistic
    score = take(small, Model(encoder, spec, 0), Host(device="cpu", threads=1, precision="fp32"))
    assert score.steps == 3 and abs(score.value - score.values["dev, frozen"]["spearman"]) > 0.5
    assert score.value == pytest.approx(100 * theirs, abs=0.2)
    cosine = 100 * scipy.stats.pearsonr((one * two).sum(1), test.targets).statistic
    assert score.values["dev"]["pearson"] == pytest.approx(cosine, abs=0.1)


def test_it_learns_what_is_alike_and_says_what_the_frozen_encoder_has(encoder: Path, keyword_pairs: Embedding) -> None:
    spec = SPEC_CONTRASTIVE.model_copy(update={"epochs": 12.0})
    score = take(keyword_pairs, Model(encoder, spec, 0), CPU)
    frozen = take(replace(keyword_pairs, train=None), Model(encoder, SPEC_CONTRASTIVE, 0), CPU)
    assert score.values["dev, frozen"] == pytest.approx(frozen.values["dev"])
    assert score.value > frozen.value + 10
    assert (score.train_rows, score.test_rows, score.steps) == (192, 120, 144)
    assert score.finetune["loss"] == "CoSENTLoss" and score.finetune["embeddings"] == "contrastive"
    assert score.details["library"].startswith("sentence-transformers ")
    assert score.details["notes"][0].startswith("embeddings (mean) of an encoder that was fine-tuned on 192 pairs")


def test_queries_learn_to_find_documents_that_share_no_word(encoder: Path, toys: Path) -> None:
    rows = ["query-id\tcorpus-id\tscore", *(f"q{n}\td{n}\t1" for n in range(15))]
    (toys / "qrels/test.tsv").write_text("\n".join(rows) + "\n")  # those of training, which can be learned
    task = contrastive(f"retrieval:{toys}", batch=8)
    score = take(task, Model(encoder, SPEC_CONTRASTIVE.model_copy(update={"epochs": 30.0, "batch": 8}), 0), CPU)
    assert score.value > score.values["test, frozen"]["ndcg_10"] + 20
    assert score.finetune["loss"] == "MultipleNegativesRankingLoss"
    assert any("of the 15 queries to test on, 15 have the text of one to train on" in note for note in task.notes)


def test_a_table_without_parts_trains_on_four_fifths_of_its_texts(tmp_path: Path) -> None:
    rows = [f"{a},{b},{n % 7}" for n, (a, b) in enumerate(zip(random_texts(200, 1), random_texts(200, 2), strict=True))]
    (tmp_path / "alike.csv").write_text("\n".join(["sentence1,sentence2,score", *rows]) + "\n")
    task = contrastive(f"similarity:{tmp_path / 'alike.csv'}")
    assert isinstance(task.train, Examples) and set(task.tests) == {"test"}
    assert len(task.train) + len(task.tests["test"]) == 200 and 20 < len(task.tests["test"]) < 60
    assert set(task.train.first).isdisjoint(task.tests["test"].first)
    few = contrastive(f"similarity:{tmp_path / 'alike.csv'}", rows=50)
    assert few.train is not None and len(few.train) == 50 and few.fingerprint != task.fingerprint
    assert set(few.train.pairs()) <= set(task.train.pairs())


def test_parts_of_a_table_are_kept_apart_and_repeated_rows_named(tmp_path: Path) -> None:
    head = "sentence1,sentence2,score\n"
    (tmp_path / "more.train.csv").write_text(head + "x,y,1\nv,w,2\nt,u,3\n")
    (tmp_path / "more.test.csv").write_text(head + "a,b,1\nb,c,2\nx,y,3\nd,e,4\n")
    (tmp_path / "more.dev.csv").write_text(head + "k,l,1\nm,n,2\no,p,3\n")
    task = contrastive(f"similarity:{tmp_path / 'more.train.csv'}")
    assert {part: len(rows) for part, rows in task.tests.items()} == {"test": 4, "dev": 3}
    assert task.train == Examples(["x", "v", "t"], ["y", "w", "u"], [1.0, 2.0, 3.0])
    assert len(task.notes) == 1 and "more.test.csv, line 4" in task.notes[0]


def test_a_collection_is_trained_on_its_training_queries_alone(toys: Path, caplog: Any) -> None:
    with open(toys / "qrels/train.tsv", "a") as file:
        file.write("q3\tnowhere\t1\nq4\td9\t2\nq5\td8\t0\n")
    task = contrastive(f"retrieval:{toys}", batch=8)
    assert isinstance(task.train, Relevant) and set(task.tests) == {"test"} and len(task.tests["test"]) == 5
    assert len(task.train.pairs()) == 16 and task.train.grades["q4"] == {"d4": 1.0, "d9": 2.0}
    assert [note.partition(":")[0] for note in task.notes] == [
        "1 row about a document that is not in the corpus, and is not trained on"
    ]
    few = contrastive(f"retrieval:{toys}", rows=7, batch=8)
    assert few.train is not None and len(few.train.pairs()) == 7 and few.fingerprint != task.fingerprint


def test_frozen_embeddings_are_named_as_before(toys: Path) -> None:
    (frozen,) = tasks.load(TasksSpec(names=(f"retrieval:{toys}",))).tasks
    assert isinstance(frozen, Embedding) and frozen.train is None
    assert frozen.settings(SPEC_CONTRASTIVE) == {"length": 32, "poolings": ["mean", "cls"], "version": 1}
    tuned = contrastive(f"retrieval:{toys}")
    assert score_digest(frozen, SPEC_CONTRASTIVE) != score_digest(tuned, SPEC_CONTRASTIVE)
    assert frozen.baselines() == tuned.baselines() and frozen.name == tuned.name
    cls = SPEC_CONTRASTIVE.model_copy(update={"embeddings": "contrastive-cls"})
    assert score_digest(tuned, SPEC_CONTRASTIVE) != score_digest(tuned, cls)


def test_it_has_seeds_and_is_not_taken_along_training(toys: Path) -> None:
    spec = TasksSpec(names=(f"retrieval:{toys}",), seeds=4, embeddings="contrastive")
    suite = tasks.load(spec)
    assert [seed for _, seed, _ in expected(suite, spec)] == [0, 1, 2, 3]
    assert not any(task.act != FINE_TUNING for task in suite.tasks) and not tasks.any_during_training(spec)
    assert suite.tasks[0].act == "fine-tuning"


def test_reports_choose_the_scores_that_the_experiment_asked_for() -> None:
    frozen = {"task": "similarity:x", "suite": "similarity", "digest": "a", "finetune": {"length": 128}, "value": 1.0}
    tuned = {**frozen, "digest": "b", "finetune": {"length": 128, "embeddings": "contrastive", "lr": 1e-3}}
    held = [frozen, tuned, {**tuned, "seed": 1}]
    names = {"names": ["similarity:x"], "length": 128}
    chosen = [choose(held, {**names, **more}, []) for more in ({}, {"embeddings": "contrastive"})]
    assert [[score["digest"] for score in each] for each in chosen] == [["a"], ["b", "b"]]
    assert [s["digest"] for s in choose(held[:2], {**names, "embeddings": "contrastive"}, [])] == ["b"]


def test_what_cannot_be_trained_is_refused(toys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no two of the 15 training pairs can be in one batch of 1"):
        contrastive(f"retrieval:{toys}", batch=1)
    (toys / "qrels/train.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td0\t1\nq0\td1\t1\n")
    with pytest.raises(InputError, match="needs queries with different relevant documents"):
        contrastive(f"retrieval:{toys}")
    (toys / "qrels/train.tsv").unlink()
    with pytest.raises(InputError, match=r"toys has no qrels/train\.tsv, with the relevant documents of queries to tr"):
        contrastive(f"retrieval:{toys}")
    monkeypatch.setattr("workbench.tasks.embeddings.LIBRARY", "sentence_transformers_is_not_here")
    with pytest.raises(InputError, match=r"^tasks\.embeddings=contrastive needs the package sentence-transformers, wh"):
        contrastive(f"retrieval:{toys}")


# ---- Batches for contrastive training: no document of a batch answers the query of another pair ----


@settings(deadline=None, max_examples=40)
@given(
    places=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 12)), min_size=2, max_size=80, unique=True),
    size=st.integers(2, 9),
    seed=st.integers(0, 5),
)
def test_no_document_of_a_batch_answers_the_query_of_another_pair(
    places: list[tuple[int, int]], size: int, seed: int
) -> None:
    pairs = [(f"q{query}", f"d{document}") for query, document in places]
    together = any(
        (a[0], b[1]) not in pairs and (b[0], a[1]) not in pairs for n, a in enumerate(pairs) for b in pairs[:n]
    )
    if not together:
        with pytest.raises(InputError, match=r"^no two of the \d+ training pairs can be in one batch"):
            next(apart(pairs, size, seed))
        return
    taken = list(islice(apart(pairs, size, seed), 60))
    assert len(taken) == 60
    for batch in taken:
        assert 1 < len(batch) <= size and len(set(batch)) == len(batch)
        for one in batch:
            assert all((pairs[one][0], pairs[other][1]) not in pairs for other in batch if other != one)


def test_pairs_without_anything_in_common_are_all_taken_once_an_epoch() -> None:
    pairs = [(f"q{n}", f"d{n}") for n in range(64)]
    taken = list(islice(apart(pairs, 16, 3), 8))
    for epoch in (taken[:4], taken[4:]):
        assert sorted(number for batch in epoch for number in batch) == list(range(64))
    assert taken[:4] != taken[4:]


# ---- Metrics of retrieval against scikit-learn and plain counts ----


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
    found = embedding_vectors.ranking_metrics(part, np.ones((1, 1)), scores[:, None])
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
        values.append(embedding_vectors.ranking_metrics(part, np.ones((1, 1)), np.ones((40, 1)))["ndcg_10"])
        chances.append(embedding_vectors.ndcg_by_chance(part))
    assert len(set(chances)) == 1
    assert np.mean(values) == pytest.approx(chances[0], abs=4 * np.std(values) / math.sqrt(300))


def test_a_query_is_not_its_own_answer() -> None:
    part = Relevant({"a": "x"}, {"a": "x", "b": "y"}, {"a": {"b": 1.0}})
    assert embedding_vectors.ranking_metrics(part, np.ones((1, 1)), np.array([[2.0], [1.0]]))["ndcg_10"] == 1.0
    assert embedding_vectors.ndcg_by_chance(part) == 1.0


# ---- Baselines of embeddings against scikit-learn and scipy ----


def test_similarity_is_the_rank_correlation_of_tf_idf_cosines(tmp_path: Path) -> None:
    first, second = texts(40, 1), texts(40, 2)
    targets = np.random.default_rng(0).normal(size=40).tolist()
    task = Embedding("x", SIMILARITY, {"test": Examples(tuple(first), tuple(second), tuple(targets))})
    vectors = TfidfVectorizer(token_pattern=r"\w+").fit_transform(first + second)
    cosines = [cosine_similarity(vectors[n], vectors[n + 40])[0, 0] for n in range(40)]
    wanted = 100 * stats.spearmanr(cosines, targets).statistic
    assert task.baselines(tmp_path) == {"chance": 0.0, "tf-idf": pytest.approx(wanted)}


def test_retrieval_is_ndcg_by_cosines_with_the_words_of_the_documents(tmp_path: Path) -> None:
    documents, asked, random = texts(40, 1), texts(12, 2), np.random.default_rng(3)
    relevant = [random.choice(40, 3, replace=False).tolist() for _ in asked]
    grades = {f"q{n}": {f"d{place}": 1.0 + rank for rank, place in enumerate(row)} for n, row in enumerate(relevant)}
    queries = {f"q{n}": text for n, text in enumerate(asked)}
    data = Relevant(queries, {f"d{n}": text for n, text in enumerate(documents)}, grades)
    model = TfidfVectorizer(token_pattern=r"\w+").fit(documents)
    cosines = cosine_similarity(model.transform(asked), model.transform(documents))
    gains = [[grades[query].get(f"d{n}", 0.0) for n in range(40)] for query in queries]
    found = Embedding("x", RETRIEVAL, {"test": data}).baselines(tmp_path)
    assert found["tf-idf"] == pytest.approx(100 * ndcg_score(gains, cosines, k=10))
    best = [sum(gain / np.log2(place + 2) for place, gain in enumerate((3.0, 2.0, 1.0)))] * len(asked)
    of_chance = sum(6 / 40 / np.log2(place + 2) for place in range(10))  # a place holds the mean of the three gains
    assert found["chance"] == pytest.approx(100 * np.mean(of_chance / np.array(best)))


def test_texts_without_words_are_like_nothing_and_baselines_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = Examples(("", "red cat", "dog"), ("", "red cat", "cat"), (0.0, 1.0, 0.5))
    task = Embedding("x", SIMILARITY, {"test": pairs})
    found = task.baselines(tmp_path)
    assert np.isfinite(found["tf-idf"])
    empty = Embedding("y", SIMILARITY, {"test": Examples(("", " ", "_"), ("", "_", ""), (0.0, 1.0, 0.5))})
    assert empty.baselines(tmp_path)["tf-idf"] == 0.0
    monkeypatch.setattr(embedding_vectors, "word_baselines", lambda part: pytest.fail("computed again"))
    assert task.baselines(tmp_path) == found
