"""Embeddings of texts by a frozen or fine-tuned encoder, and their scores on tasks.

A text is cut to one row as in fine-tuning. Its embedding is the mean of the last states of all its tokens, special ones
included, as in sentence-transformers, or the state of [CLS] (of the last token in causal encoders and XLNet). All
computation is in float32, and vectors are compared by their cosine.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench import cpu
from workbench.errors import Diverged, InputError
from workbench.process import heed
from workbench.rng import seed_of
from workbench.spec.host import Host
from workbench.tasks.common.baselines import WORD
from workbench.tasks.common.contract import Model, Progress, Scores
from workbench.tasks.common.cost import step_count
from workbench.tasks.common.encoder_folders import WithHead, load_encoder, load_frozen, pooled, row_length
from workbench.tasks.common.examples import Examples
from workbench.tasks.common.fine_tuning import fit, setting
from workbench.tasks.common.metrics import metric
from workbench.tasks.common.token_rows import Encoded, by_length, check_ids, encode_rows, shuffled
from workbench.tasks.embeddings import LIBRARY, LOSSES, POOLINGS, SCALE, Embedding, Relevant

Vectors = dict[str, Any]  # by pooling: (N, D) float32 of norm 1


def embed(task: Embedding, trial: Model, host: Host) -> Scores:
    """Score the embeddings of an encoder without training. Raises InputError without one, Diverged for bad states."""
    texts = task.texts()
    vectors = embeddings(trial.folder, texts, trial.options.length, host, trial.progress)
    values = values_of(task, vectors[POOLINGS[0]], texts)
    for pooling in POOLINGS[1:]:
        values |= values_of(task, vectors[pooling], texts, f", {pooling}")
    tested = len(next(iter(task.tests.values())))
    return Scores(values, (0, tested), {"texts": len(texts), "notes": list(task.notes)})


def values_of(task: Embedding, vectors: Any, texts: list[str], mark: str = "") -> dict[str, dict[str, float]]:
    """Return the metrics, times 100, of each part by the vectors (N, D) of texts; `mark` ends the parts' names."""
    place = {text: number for number, text in enumerate(texts)}

    def rows(some: Iterable[str]) -> Any:
        return vectors[[place[text] for text in some]]

    values = {}
    for part, data in task.tests.items():
        if isinstance(data, Examples):
            cosines, targets = (rows(data.first) * rows(data.second or [])).sum(1), np.array(data.targets)
            found = {name: metric(name, cosines, targets) for name in ("spearman", "pearson")}
        else:
            queries = rows(data.queries[query] for query in data.grades)
            found = ranking_metrics(data, queries, rows(data.documents.values()))
        values[part + mark] = {name: 100 * value for name, value in found.items()}
    return values


def embeddings(folder: Path, texts: list[str], length: int, host: Host, progress: Progress | None = None) -> Vectors:
    """Return the embeddings of texts by each pooling. Raises InputError, and Diverged if one is not finite."""
    device = host.resolved_device()
    cpu.prepare(host.threads, host.plain, device)
    model = load_frozen(folder, device)
    rows = encoded(folder, texts, row_length(folder, model.config, length), model)
    return vectors_of(WithHead(model), rows, device, str(folder), progress)


def encoded(folder: Path, texts: list[str], length: int, model: Any) -> Encoded:
    """Return texts as rows of at most `length` token ids. Raises InputError if they are not the encoder's."""
    rows = encode_rows(folder, Examples(texts, None, [0] * len(texts)), length)
    check_ids(folder, [rows], model)
    return rows


def vectors_of(model: WithHead, rows: Encoded, device: str, name: str, progress: Progress | None = None) -> Vectors:
    """Return the embeddings of rows by each pooling. Raises Diverged, which names the encoder, if one is not finite."""
    vectors = {pooling: np.zeros((len(rows), model.width), dtype=np.float32) for pooling in POOLINGS}
    done = 0
    with torch.inference_mode():
        for batch in by_length(rows.lengths):
            heed()
            inputs, _ = rows.batch(batch, device)
            hidden = model.states(inputs)
            for pooling in POOLINGS:
                vectors[pooling][batch] = pool(model, pooling, hidden, inputs).float().cpu().numpy()
            done += len(batch)
            if progress is not None:
                progress(done, len(rows))
    if not all(np.isfinite(each).all() for each in vectors.values()):
        raise Diverged(f"{name}: the encoder's states are not all finite numbers", 0)
    norms = {pooling: np.linalg.norm(each, axis=1, keepdims=True) for pooling, each in vectors.items()}
    return {pooling: each / np.where((norm := norms[pooling]) > 0, norm, 1) for pooling, each in vectors.items()}


def pool(model: WithHead, pooling: str, hidden: Tensor, inputs: dict[str, Tensor]) -> Tensor:
    """Return the embeddings (B, D) of states (B, L, D) of inputs: `mean` over real tokens, or `cls`."""
    attention = inputs.get("attention_mask")
    if pooling == "cls":
        return pooled(hidden, attention, model.reads_last)
    if attention is None:
        return hidden.mean(1)
    weights = attention.to(hidden.dtype)[..., None]
    return (hidden * weights).sum(1) / weights.sum(1)


# ---- contrastive fine-tuning ----
# Graded pairs are trained with CoSENTLoss, which ranks the cosines of a batch as their grades are ranked; queries and
# their documents with MultipleNegativesRankingLoss, a softmax over the documents of the batch (Henderson et al. 2017).
# Rates, batches, interruption and precision are as in every fine-tuning (`workbench.tasks.common.fine_tuning`). The
# number of epochs is set beforehand: no step is chosen by rows that are reported.


def tune_and_embed(task: Embedding, trial: Model, host: Host) -> Scores:
    """Fine-tune a copy of an encoder on the pairs of a task and score its embeddings.

    The values of the frozen encoder stand beside as parts `..., frozen`. Everything random is a function of (seed,
    task). Raises InputError for a folder without an encoder, and Diverged for a loss or states that are not finite.
    """
    assert task.train is not None
    encoder, spec = trial.folder, trial.options
    pooling, texts = POOLINGS[spec.embeddings == "contrastive-cls"], task.texts()
    frozen = values_of(task, embeddings(encoder, texts, spec.length, host)[pooling], texts, ", frozen")
    pairs = task.train.pairs()
    with setting(task.name, trial.seed, host, trial.unfinished) as where:
        model = WithHead(load_encoder(encoder, spec.dropout, where.device)).to(where.device)
        length = row_length(encoder, model.encoder.config, spec.length)
        first, second = (encoded(encoder, list(side), length, model.encoder) for side in zip(*pairs, strict=True))
        grades = torch.tensor(task.train.targets if isinstance(task.train, Examples) else [0.0] * len(pairs))
        steps = step_count(len(pairs), task.settings(spec)["epochs"], spec)
        loss, lengths = loss_named(LOSSES[task.suite]), np.maximum(first.lengths, second.lengths)

        def loss_of(rows: Any) -> Tensor:
            with where.autocast():
                sides = (side.batch(rows, where.device)[0] for side in (first, second))
                one, two = (pool(model, pooling, model.states(inputs), inputs) for inputs in sides)
            targets, both = grades[torch.as_tensor(rows)].to(where.device), [one.float(), two.float()]
            value: Tensor = loss.compute_loss_from_embeddings(both, targets)
            return value

        related = isinstance(task.train, Relevant)
        order = apart(pairs, spec.batch, where.order) if related else shuffled(lengths, spec.batch, where.order)
        earlier = fit(model, loss_of, order, steps, spec, where, trial.progress)
        rows = encoded(encoder, texts, length, model.encoder)
        name = f"the encoder after fine-tuning on {task.name} (seed {trial.seed})"
        tuned = vectors_of(model, rows, where.device, name)[pooling]
        effort = where.effort(steps, earlier)
    values = values_of(task, tuned, texts) | frozen
    counts = len(pairs), len(next(iter(task.tests.values())))
    how = f"embeddings ({pooling}) of an encoder that was fine-tuned on {len(pairs):,} pairs with {LOSSES[task.suite]}"
    details = {"library": f"sentence-transformers {version(LIBRARY)}", "notes": [how, *task.notes]}
    return Scores(values, counts, details, **effort)


def loss_named(name: str) -> Any:
    """Return a loss module of sentence-transformers."""
    from sentence_transformers.sentence_transformer import losses

    return getattr(losses, name)(model=None, scale=SCALE)


# ---- batches of queries and documents ----

AHEAD = 16  # batches of pairs that are searched for pairs that may be together in one batch


def apart(pairs: Sequence[tuple[str, str]], size: int, seed: int) -> Iterator[list[int]]:
    """Yield batches of at most `size` pairs of a query and a document, in which no document answers another's query.

    Other documents of a batch are the wrong answers, so pairs that share a query or a document are not together. A pair
    without any other to be with is left out. Raises InputError if all are in an epoch.
    """
    answers: dict[str, set[str]] = {}
    for query, document in pairs:
        answers.setdefault(query, set()).add(document)
    for epoch in itertools.count():
        left = deque(np.random.default_rng(seed_of(seed, "epoch", epoch)).permutation(len(pairs)).tolist())
        alone = True
        while left:
            batch = _taken(left, pairs, answers, size)
            if len(batch) > 1:
                alone = False
                yield batch
        if alone:
            raise InputError(
                f"no two of the {len(pairs):,} training pairs can be in one batch of {size}: contrastive training "
                f"needs queries with different relevant documents, and tasks.batch of 2 or more"
            )


def _taken(left: deque[int], pairs: Sequence[tuple[str, str]], answers: dict[str, set[str]], size: int) -> list[int]:
    batch: list[int] = []
    documents: set[str] = set()
    answered: set[str] = set()  # documents that answer a query of the batch
    later: list[int] = []
    for number in [left.popleft() for _ in range(min(len(left), AHEAD * size))]:
        query, document = pairs[number]
        if len(batch) == size or document in answered or not documents.isdisjoint(answers[query]):
            later.append(number)
            continue
        batch.append(number)
        documents.add(document)
        answered |= answers[query]
    left.extendleft(reversed(later))
    return batch


# ---- metrics of retrieval ----
# Documents with equal scores are ordered by hashes of their ids, so that their order does not depend on their
# relevance. A document with the id of the query is not returned, as in BEIR, where a question may itself be in the
# collection.

CUT, DEEP = 10, 100
BLOCK = 256  # queries whose scores are held in memory at once


def ranking_metrics(data: Relevant, queries: Any, documents: Any) -> dict[str, float]:
    """Return each metric, averaged over the queries, as a fraction.

    Documents are ranked by the products of the vectors of `queries` (Q, D) and `documents` (N, D), both in the order of
    the data, which may be sparse. Each query with a relevant document is one row of `queries`.
    """
    ids = list(data.documents)
    order = np.array(sorted(range(len(ids)), key=lambda place: (seed_of(0, "retrieval", ids[place]), place)), dtype=int)
    shuffled, names = documents[order], [ids[place] for place in order]
    each: list[dict[str, float]] = []
    asked = list(data.grades)
    for start in range(0, len(asked), BLOCK):
        products = queries[start : start + BLOCK] @ shuffled.T
        block = np.asarray(products.todense() if hasattr(products, "todense") else products)
        for query, scores in zip(asked[start : start + BLOCK], block, strict=True):
            ranked = np.argsort(-scores, kind="stable")[: DEEP + 1]
            ranking = [names[place] for place in ranked.tolist() if names[place] != query]
            each.append(of_query(ranking[:DEEP], data.grades[query]))
    return {name: float(np.mean([one[name] for one in each])) for name in each[0]}


def of_query(documents: Sequence[str], grades: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of one query, as fractions, from the documents found for it, the best first."""
    gained = _discounted([grades.get(document, 0.0) for document in documents[:CUT]])
    recalls = {f"recall_{cut}": sum(each in grades for each in documents[:cut]) / len(grades) for cut in (CUT, DEEP)}
    return {"ndcg_10": gained / _discounted(sorted(grades.values(), reverse=True)[:CUT]), **recalls}


def _discounted(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains))


def ndcg_by_chance(data: Relevant) -> float:
    """Return the mean nDCG at 10 of a random order, as a fraction: each place holds the mean gain of all documents."""
    values = []
    for query, grades in data.grades.items():
        count = len(data.documents) - (query in data.documents)
        present = sum(grade for each, grade in grades.items() if each in data.documents and each != query)
        mean = present / count if count else 0.0
        values.append(_discounted([mean] * min(CUT, count)) / _discounted(sorted(grades.values(), reverse=True)[:CUT]))
    return sum(values) / len(values)


# ---- baselines ----
# The vectors are scikit-learn's, with idf of the documents of a collection, or of all sentences that are compared.


def word_baselines(part: Examples | Relevant) -> dict[str, float]:
    """Return the headline metric of the baselines on a part, times 100."""
    if isinstance(part, Examples):  # constants and guesses correlate with nothing
        first, second = _vectors(part.texts(), part.first, part.second or [])
        cosines = np.asarray(first.multiply(second).sum(1))[:, 0]
        return {"chance": 0.0, "tf-idf": 100 * metric("spearman", cosines, np.array(part.targets))}
    documents = list(part.documents.values())
    queries, known = _vectors(documents, [part.queries[query] for query in part.grades], documents)
    return {"chance": 100 * ndcg_by_chance(part), "tf-idf": 100 * ranking_metrics(part, queries, known)["ndcg_10"]}


def _vectors(fitted: list[str], *texts: list[str]) -> list[Any]:
    """Return sparse tf-idf vectors (N, words) of norm 1 of each list of texts, with the idf of `fitted`."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = {"tokenizer": lambda text: WORD.findall(text.lower()) or [""], "token_pattern": None, "lowercase": False}
    model = TfidfVectorizer(**words).fit(fitted)
    return [model.transform(each).tocsr() for each in texts]
