"""Embeddings of texts: what is read and refused, vectors as transformers gives them, metrics as others compute them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from embedding_files import load, texts
from transformers import AutoModel, AutoTokenizer

from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks._embedding_vectors import embeddings
from workbench.tasks.common.contract import Model, take
from workbench.tasks.embeddings import Embedding, Similar, fingerprinted

SPEC = TasksSpec(length=32)
CPU = Host(device="cpu", threads=1)


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
    task = fingerprinted(
        Embedding("similarity:x", "similarity", {"dev": Similar(tuple(first), tuple(second), tuple(targets.tolist()))})
    )
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


# ---- retrieval ----


def test_the_own_text_is_found_and_scores_are_counted(encoder: Path, collection: Path) -> None:
    task = load(f"retrieval:{collection}")
    score = take(task, Model(encoder, SPEC, 0), CPU)
    assert score.value > 60 and score.test_rows == 10  # each query is word for word its best document
    assert set(score.values) == {"test", "test, cls"} and set(score.values["test"]) == {
        "ndcg_10",
        "recall_10",
        "recall_100",
    }
    assert score.values["test"]["recall_100"] == 100
