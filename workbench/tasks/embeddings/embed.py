"""Embeddings of texts by an encoder, and the score of a task on those of a frozen one.

A text is cut to one row as in fine-tuning. Its embedding is the mean of the last states of all its tokens, special ones
included, as in sentence-transformers, or the state of [CLS] (of the last token in causal encoders and XLNet). All
computation is in float32, and vectors are compared by their cosine.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workbench import cpu
from workbench.errors import Diverged
from workbench.signals import heed
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.embeddings import ranking
from workbench.tasks.embeddings.embedding_task import POOLINGS, Embedding, Relevant, Similar
from workbench.tasks.finetuning.classifier import has_segments, load_frozen, pooled, reads_last, row_length, states
from workbench.tasks.finetuning.token_batches import Encoded, by_length, check_ids, encode_rows
from workbench.tasks.metrics import pearson, spearman
from workbench.tasks.score import Progress, Score, score_digest
from workbench.tasks.task import Examples

TOKENS = 8192  # most tokens of a batch, padding included

Vectors = dict[str, Any]  # by pooling: (N, D) float32 of norm 1


def embed(
    encoder: Path, task: Embedding, spec: TasksSpec, seed: int, host: Host, progress: Progress | None = None
) -> Score:
    """Return the score of an encoder folder's embeddings; nothing is trained or drawn at random.

    `progress` is called with (texts, all texts). Raises InputError for a folder without an encoder, Diverged for states
    that are not finite.
    """
    begun = time.perf_counter()
    texts = texts_of(task)
    vectors = embeddings(encoder, texts, spec.length, host, progress)
    values = values_of(task, vectors[POOLINGS[0]], texts)
    for pooling in POOLINGS[1:]:
        values |= values_of(task, vectors[pooling], texts, f", {pooling}")
    first = next(iter(task.tests))
    return Score(
        task=task.name, suite=task.suite, metric=task.metric, seed=seed, value=values[first][task.metric],
        values=values, baselines=dict(task.baselines), train_rows=0, test_rows=len(task.tests[first]), steps=0,
        seconds=time.perf_counter() - begun, finetune=task.settings(spec), data=task.fingerprint,
        digest=score_digest(task, spec), details={"texts": len(texts), "notes": list(task.notes)},
    )  # fmt: skip


def texts_of(task: Embedding) -> list[str]:
    """Return every text that is read to test, once."""
    return list(dict.fromkeys(text for part in task.tests.values() for text in part.texts()))


def values_of(task: Embedding, vectors: Any, texts: list[str], mark: str = "") -> dict[str, dict[str, float]]:
    """Return the metrics, times 100, of each part by the vectors (N, D) of texts; `mark` ends the parts' names."""
    place = {text: number for number, text in enumerate(texts)}
    return {
        part + mark: {key: 100 * value for key, value in _metrics(data, vectors, place).items()}
        for part, data in task.tests.items()
    }


def embeddings(folder: Path, texts: list[str], length: int, host: Host, progress: Progress | None = None) -> Vectors:
    """Return the embeddings of texts by each pooling. Raises InputError, and Diverged if one is not finite."""
    device = host.resolved_device()
    cpu.prepare(host.threads, host.plain, device)
    model = load_frozen(folder, device)
    rows = encoded(folder, texts, row_length(folder, model.config, length), model)
    return vectors_of(model, rows, device, str(folder), progress)


def encoded(folder: Path, texts: list[str], length: int, model: Any) -> Encoded:
    """Return texts as rows of at most `length` token ids. Raises InputError if they are not the encoder's."""
    rows = encode_rows(folder, Examples(texts, None, [0] * len(texts)), length)
    check_ids(folder, {"": rows}, model.get_input_embeddings().num_embeddings)
    return rows


def vectors_of(model: Any, rows: Encoded, device: str, name: str, progress: Progress | None = None) -> Vectors:
    """Return the embeddings of rows by each pooling.

    Raises Diverged, which names the encoder, if one is not finite.
    """
    segments, last = has_segments(model), reads_last(model.config)
    vectors = {pooling: np.zeros((len(rows), model.config.hidden_size), dtype=np.float32) for pooling in POOLINGS}
    done = 0
    with torch.inference_mode():
        for batch in by_length(rows.lengths, TOKENS):
            heed()
            inputs, _ = rows.batch(batch, device)
            hidden, attention = states(model, segments, inputs), inputs.get("attention_mask")
            vectors["mean"][batch] = mean(hidden, attention).float().cpu().numpy()
            vectors["cls"][batch] = pooled(hidden, attention, last).float().cpu().numpy()
            done += len(batch)
            if progress is not None:
                progress(done, len(rows))
    if not all(np.isfinite(each).all() for each in vectors.values()):
        raise Diverged(f"{name}: the encoder's states are not all finite numbers", 0)
    return {pooling: _of_norm_1(each) for pooling, each in vectors.items()}


def mean(hidden: torch.Tensor, attention: torch.Tensor | None) -> torch.Tensor:
    """Return the mean states (B, D) of the real tokens of `hidden` (B, L, D); without `attention` all are real."""
    if attention is None:
        return hidden.mean(1)
    weights = attention.to(hidden.dtype)[..., None]
    return (hidden * weights).sum(1) / weights.sum(1)


def _of_norm_1(vectors: Any) -> Any:
    """Return vectors (N, D) divided by their norms; a vector of zeros stays."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1)


def _metrics(data: Similar | Relevant, vectors: Any, place: dict[str, int]) -> dict[str, float]:
    """Return the metrics of a part, as fractions, by vectors (N, D); `place` is the number of each text."""
    if isinstance(data, Similar):
        cosines = (_rows(vectors, place, data.first) * _rows(vectors, place, data.second)).sum(1)
        targets = np.array(data.targets)
        return {"spearman": spearman(cosines, targets), "pearson": pearson(cosines, targets)}
    queries = _rows(vectors, place, (data.queries[query] for query in data.grades))
    return ranking.metrics(data, queries, _rows(vectors, place, data.documents.values()))


def _rows(vectors: Any, place: dict[str, int], texts: Iterable[str]) -> Any:
    """Return the vectors of texts (N, D)."""
    return vectors[[place[text] for text in texts]]
