"""Contrastive fine-tuning: the losses, the batches, training as sentence-transformers does it, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch

from workbench import tasks
from workbench.errors import InputError
from workbench.report.load.study_tables import choose
from workbench.rng import seed_of
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.store.run_directory import RunDir
from workbench.tasks import _embedding_vectors as embedding_vectors
from workbench.tasks._embedding_vectors import batches, loss_named
from workbench.tasks.common.contract import FINE_TUNING, Model, expected, score_digest, score_name, take
from workbench.tasks.common.fine_tuning import Unfinished
from workbench.tasks.embeddings import Embedding, Relevant, Similar, fingerprinted

library = pytest.importorskip("sentence_transformers")

WORDS = [f"{a}{b}" for a in ("ba", "ke", "lo", "mi") for b in ("da", "fe", "go", "ni", "tu")]
SPEC = TasksSpec(length=32, lr=2e-3, layer_decay=0.9, batch=16, embeddings="contrastive")
CPU = Host(device="cpu", threads=1)
NEVER = Host(device="cpu", threads=1, save_seconds=float("inf"))
EVERY_STEP = Host(device="cpu", threads=1, save_every=1)


def load(name: str, **more: Any) -> Embedding:
    (task,) = tasks.load(TasksSpec(names=(name,), embeddings="contrastive", **more)).tasks
    assert isinstance(task, Embedding)
    return task


def texts(count: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, size=random.integers(2, 9))) for _ in range(count)]


@pytest.fixture(scope="module")
def keyword_pairs() -> Embedding:
    """Return graded pairs that are alike if both have the word `bada` or neither has it, whatever the others are."""

    def side(count: int, seed: int) -> tuple[list[str], Any]:
        has = np.random.default_rng(seed).random(count) < 0.5
        others = [text.replace("bada", "kego") for text in texts(count, seed)]
        return [f"bada {text}" if one else f"kefe {text}" for one, text in zip(has, others, strict=True)], has

    def part(count: int, seed: int) -> Similar:
        (first, one), (second, two) = side(count, seed), side(count, seed + 1)
        return Similar(tuple(first), tuple(second), tuple((one == two).astype(float).tolist()))

    return fingerprinted(Embedding("similarity:keyword", "similarity", {"dev": part(120, 50)}, train=part(192, 80)))


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """Return a collection in which a query shares no word with its document, but for chance."""
    folder = tmp_path / "toys"
    (folder / "qrels").mkdir(parents=True)
    documents = texts(30, 7)
    write(folder / "corpus.jsonl", [{"_id": f"d{n}", "text": text} for n, text in enumerate(documents)])
    write(folder / "queries.jsonl", [{"_id": f"q{n}", "text": f"query {WORDS[n % 20]}"} for n in range(20)])
    for part, numbers in (("train", range(15)), ("test", range(15, 20))):
        rows = [f"q{n}\td{n}\t1" for n in numbers]
        (folder / f"qrels/{part}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    return folder


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


# ---- losses ----


def test_losses_are_those_of_their_papers() -> None:
    torch.manual_seed(0)
    one, two = torch.randn(7, 5), torch.randn(7, 5)
    cosines = torch.nn.functional.normalize(one, dim=1) @ torch.nn.functional.normalize(two, dim=1).T
    softmax = -torch.log_softmax(20 * cosines, 1).diagonal().mean()
    assert loss_named("MultipleNegativesRankingLoss")(one, two, torch.zeros(7)).item() == pytest.approx(softmax.item())
    grades = torch.tensor([0.0, 1.0, 1.0, 2.5, 0.0, 4.0, 3.0])
    of_pairs = cosines.diagonal()
    total = sum(
        float(torch.exp(20 * (of_pairs[low] - of_pairs[high])))
        for low in range(7)
        for high in range(7)
        if grades[high] > grades[low]
    )
    assert loss_named("CoSENTLoss")(one, two, grades).item() == pytest.approx(np.log1p(total), rel=1e-5)


@pytest.mark.parametrize("count", [1, 4])
def test_a_batch_of_equal_grades_trains_nothing(count: int) -> None:
    one, two = torch.randn(count, 5, requires_grad=True), torch.randn(count, 5)
    loss = loss_named("CoSENTLoss")(one, two, torch.ones(count))
    loss.backward()
    assert loss.item() == 0 and one.grad is not None and torch.equal(one.grad, torch.zeros(count, 5))


# ---- training ----


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_training_is_that_of_sentence_transformers(encoder: Path, keyword_pairs: Embedding, pooling: str) -> None:
    """One batch of all pairs, three times: by the library's own model and loss, and by ours."""
    from sentence_transformers.sentence_transformer import losses, modules

    small = fingerprinted(replace(keyword_pairs, train=keyword_pairs.train.take(range(24))))  # type: ignore[union-attr]
    assert isinstance(small.train, Similar)
    which = "contrastive" if pooling == "mean" else "contrastive-cls"
    spec = SPEC.model_copy(
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
    assert isinstance(test, Similar)
    one, two = (model.encode(list(side), normalize_embeddings=True) for side in (test.first, test.second))
    theirs = scipy.stats.spearmanr((one * two).sum(1), test.targets).statistic
    score = take(small, Model(encoder, spec, 0), Host(device="cpu", threads=1, precision="fp32"))
    assert score.steps == 3 and abs(score.value - score.values["dev, frozen"]["spearman"]) > 0.5
    assert score.value == pytest.approx(100 * theirs, abs=0.2)
    cosine = 100 * scipy.stats.pearsonr((one * two).sum(1), test.targets).statistic
    assert score.values["dev"]["pearson"] == pytest.approx(cosine, abs=0.1)


def test_it_learns_what_is_alike_and_says_what_the_frozen_encoder_has(encoder: Path, keyword_pairs: Embedding) -> None:
    spec = SPEC.model_copy(update={"epochs": 12.0})
    score = take(keyword_pairs, Model(encoder, spec, 0), CPU)
    frozen = take(replace(keyword_pairs, train=None), Model(encoder, SPEC, 0), CPU)
    assert score.values["dev, frozen"] == pytest.approx(frozen.values["dev"])
    assert score.value > frozen.value + 10
    assert (score.train_rows, score.test_rows, score.steps) == (192, 120, 144)
    assert score.finetune["loss"] == "CoSENTLoss" and score.finetune["embeddings"] == "contrastive"
    assert score.details["library"].startswith("sentence-transformers ")
    assert score.details["notes"][0].startswith("embeddings (mean) of an encoder that was fine-tuned on 192 pairs")


def test_queries_learn_to_find_documents_that_share_no_word(encoder: Path, collection: Path) -> None:
    rows = ["query-id\tcorpus-id\tscore", *(f"q{n}\td{n}\t1" for n in range(15))]
    (collection / "qrels/test.tsv").write_text("\n".join(rows) + "\n")  # those of training, which can be learned
    task = load(f"retrieval:{collection}", batch=8)
    score = take(task, Model(encoder, SPEC.model_copy(update={"epochs": 30.0, "batch": 8}), 0), CPU)
    assert score.value > score.values["test, frozen"]["ndcg_10"] + 20
    assert score.finetune["loss"] == "MultipleNegativesRankingLoss"
    assert any("of the 15 queries to test on, 15 have the text of one to train on" in note for note in task.notes)


def test_a_seed_repeats_and_another_differs(encoder: Path, keyword_pairs: Embedding) -> None:
    spec = SPEC.model_copy(update={"epochs": 1.0})
    one, again, other = (take(keyword_pairs, Model(encoder, spec, seed), CPU) for seed in (0, 0, 1))
    assert replace(one, seconds=0.0) == replace(again, seconds=0.0)
    assert one.values["dev"] != other.values["dev"] and one.values["dev, frozen"] == other.values["dev, frozen"]


class Stop(Exception):
    """Stands for the end of the process."""


def test_an_interrupted_training_ends_with_the_same_score(
    encoder: Path, keyword_pairs: Embedding, tmp_path: Path
) -> None:
    spec = SPEC.model_copy(update={"epochs": 1.0})
    whole = take(keyword_pairs, Model(encoder, spec, 0), NEVER)
    (tmp_path / "run").mkdir()
    state = Unfinished(RunDir(tmp_path / "run"), score_name(keyword_pairs, spec, 0), {"encoder": "0" * 16})

    def stop(step: int, steps: int) -> None:
        if step == 5:
            raise Stop

    with pytest.raises(Stop):
        take(keyword_pairs, Model(encoder, spec, 0, stop, state), EVERY_STEP)
    taken: list[int] = []
    score = take(keyword_pairs, Model(encoder, spec, 0, lambda step, _: taken.append(step), state), EVERY_STEP)
    assert taken[0] > 5 - 1 and replace(score, seconds=0.0) == replace(whole, seconds=0.0)


def test_the_order_of_pairs_is_one_of_the_seed(keyword_pairs: Embedding) -> None:
    assert keyword_pairs.train is not None
    lengths = np.full(192, 9)
    one, again, other = (next(batches(keyword_pairs.train, lengths, 16, seed_of(seed))) for seed in (0, 0, 1))
    assert list(one) == list(again) != list(other)


# ---- what is trained on ----


def test_a_table_without_parts_trains_on_four_fifths_of_its_texts(tmp_path: Path) -> None:
    rows = [f"{a},{b},{n % 7}" for n, (a, b) in enumerate(zip(texts(200, 1), texts(200, 2), strict=True))]
    (tmp_path / "alike.csv").write_text("\n".join(["sentence1,sentence2,score", *rows]) + "\n")
    task = load(f"similarity:{tmp_path / 'alike.csv'}")
    assert isinstance(task.train, Similar) and set(task.tests) == {"test"}
    assert len(task.train) + len(task.tests["test"]) == 200 and 20 < len(task.tests["test"]) < 60
    assert set(task.train.first).isdisjoint(task.tests["test"].first)
    few = load(f"similarity:{tmp_path / 'alike.csv'}", rows=50)
    assert few.train is not None and len(few.train) == 50 and few.fingerprint != task.fingerprint
    assert set(few.train.pairs()) <= set(task.train.pairs())


def test_parts_of_a_table_are_kept_apart_and_repeated_rows_named(tmp_path: Path) -> None:
    head = "sentence1,sentence2,score\n"
    (tmp_path / "more.train.csv").write_text(head + "x,y,1\nv,w,2\nt,u,3\n")
    (tmp_path / "more.test.csv").write_text(head + "a,b,1\nb,c,2\nx,y,3\nd,e,4\n")
    (tmp_path / "more.dev.csv").write_text(head + "k,l,1\nm,n,2\no,p,3\n")
    task = load(f"similarity:{tmp_path / 'more.train.csv'}")
    assert {part: len(rows) for part, rows in task.tests.items()} == {"test": 4, "dev": 3}
    assert task.train == Similar(("x", "v", "t"), ("y", "w", "u"), (1.0, 2.0, 3.0))
    assert len(task.notes) == 1 and "more.test.csv, line 4" in task.notes[0]


def test_sts_b_is_trained_on_its_training_part(real_data: Path) -> None:
    task = load("similarity:STS-B", glue=str(real_data / "glue"))
    assert isinstance(task.train, Similar) and len(task.train) == 5749 and len(task.tests["dev"]) == 1500


def test_a_collection_is_trained_on_its_training_queries_alone(collection: Path, caplog: Any) -> None:
    with open(collection / "qrels/train.tsv", "a") as file:
        file.write("q3\tnowhere\t1\nq4\td9\t2\nq5\td8\t0\n")
    task = load(f"retrieval:{collection}", batch=8)
    assert isinstance(task.train, Relevant) and set(task.tests) == {"test"} and len(task.tests["test"]) == 5
    assert len(task.train.pairs()) == 16 and task.train.grades["q4"] == {"d4": 1.0, "d9": 2.0}
    assert [note.partition(":")[0] for note in task.notes] == [
        "1 row about a document that is not in the corpus, and is not trained on"
    ]
    few = load(f"retrieval:{collection}", rows=7, batch=8)
    assert few.train is not None and len(few.train.pairs()) == 7 and few.fingerprint != task.fingerprint


def test_frozen_embeddings_are_named_as_before(collection: Path) -> None:
    (frozen,) = tasks.load(TasksSpec(names=(f"retrieval:{collection}",))).tasks
    assert isinstance(frozen, Embedding) and frozen.train is None
    assert frozen.settings(SPEC) == {"length": 32, "poolings": ["mean", "cls"], "version": 1}
    tuned = load(f"retrieval:{collection}")
    assert score_digest(frozen, SPEC) != score_digest(tuned, SPEC)
    assert frozen.baselines() == tuned.baselines() and frozen.name == tuned.name
    cls = SPEC.model_copy(update={"embeddings": "contrastive-cls"})
    assert score_digest(tuned, SPEC) != score_digest(tuned, cls)


def test_it_has_seeds_and_is_not_taken_along_training(collection: Path) -> None:
    spec = TasksSpec(names=(f"retrieval:{collection}",), seeds=4, embeddings="contrastive")
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


# ---- refused ----


def test_what_cannot_be_trained_is_refused(collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no two of the 15 training pairs can be in one batch of 1"):
        load(f"retrieval:{collection}", batch=1)
    (collection / "qrels/train.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td0\t1\nq0\td1\t1\n")
    with pytest.raises(InputError, match="needs queries with different relevant documents"):
        load(f"retrieval:{collection}")
    (collection / "qrels/train.tsv").unlink()
    with pytest.raises(InputError, match=r"toys has no qrels/train\.tsv, with the relevant documents of queries to tr"):
        load(f"retrieval:{collection}")
    monkeypatch.setattr(embedding_vectors, "LIBRARY", "sentence_transformers_is_not_here")
    with pytest.raises(InputError, match=r"^tasks\.embeddings=contrastive needs the package sentence-transformers, wh"):
        load(f"retrieval:{collection}")
