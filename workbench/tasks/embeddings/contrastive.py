"""Contrastive fine-tuning of embeddings, with the losses of sentence-transformers, and the score of the result.

Graded pairs are trained with CoSENTLoss, which ranks the cosines of a batch as their grades are ranked; queries and
their documents with MultipleNegativesRankingLoss, a softmax over the documents of the batch (Henderson et al. 2017).
Rates, batches, interruption and precision are those of every fine-tuning (`workbench.tasks.finetuning.fit`). The number
of epochs is set beforehand: no step is chosen by rows that are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.embeddings.embed import embeddings, encoded, mean, texts_of, values_of, vectors_of
from workbench.tasks.embeddings.embedding_task import LOSSES, POOLINGS, SCALE, Embedding, Relevant, Similar
from workbench.tasks.embeddings.pair_batches import LIBRARY, apart
from workbench.tasks.finetuning.classifier import has_segments, load_encoder, pooled, reads_last, row_length, states
from workbench.tasks.finetuning.fit import fit, setting, step_count
from workbench.tasks.finetuning.token_batches import shuffled
from workbench.tasks.finetuning.unfinished import Unfinished
from workbench.tasks.score import Progress, Score, fine_tuned

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # of embeddings (B, D), (B, D) and grades (B,)


class Pooled(nn.Module):
    """An encoder whose output is one embedding for each text, by `mean` or `cls` pooling as without training."""

    def __init__(self, encoder: nn.Module, pooling: str) -> None:
        super().__init__()
        self.encoder: Any = encoder
        self.segments = has_segments(encoder)
        self.last = reads_last(encoder.config)
        self.pooling = pooling

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the embeddings (B, D) of input tensors (B, L)."""
        hidden, attention = states(self.encoder, self.segments, inputs), inputs.get("attention_mask")
        return mean(hidden, attention) if self.pooling == "mean" else pooled(hidden, attention, self.last)


def tune_and_embed(
    encoder: Path, task: Embedding, spec: TasksSpec, seed: int, host: Host, progress: Progress | None = None,
    unfinished: Unfinished | None = None,
) -> Score:  # fmt: skip
    """Fine-tune a copy of the encoder in a folder on the pairs of a task and return the score of its embeddings.

    The values of the frozen encoder stand beside as parts `..., frozen`. Everything random is a function of (seed,
    task). `progress` is called with (step, steps). If there is a state in `unfinished`, training continues from it.
    Raises InputError for a folder without an encoder, and Diverged for a loss or states that are not finite.
    """
    assert task.train is not None
    pooling = pooling_of(spec)
    texts = texts_of(task)
    frozen = values_of(task, embeddings(encoder, texts, spec.length, host)[pooling], texts, ", frozen")
    pairs = task.train.pairs()
    with setting(task.name, seed, host, unfinished) as where:
        model = Pooled(load_encoder(encoder, spec.dropout, where.device), pooling).to(where.device)
        length = row_length(encoder, model.encoder.config, spec.length)
        first, second = (encoded(encoder, list(side), length, model.encoder) for side in zip(*pairs, strict=True))
        grades = torch.tensor(task.train.targets if isinstance(task.train, Similar) else [0.0] * len(pairs))
        steps = step_count(len(pairs), task.settings(spec)["epochs"], spec)
        loss, lengths = loss_named(LOSSES[task.suite]), np.maximum(first.lengths, second.lengths)

        def loss_of(rows: Any) -> Tensor:
            with where.autocast():
                one, two = (model(side.batch(rows, where.device)[0]) for side in (first, second))
            return loss(one.float(), two.float(), grades[torch.as_tensor(rows)].to(where.device))

        order = batches(task.train, lengths, spec.batch, where.order())
        earlier = fit(model, loss_of, order, steps, spec, where, progress)
        rows = encoded(encoder, texts, length, model.encoder)
        name = f"the encoder after fine-tuning on {task.name} (seed {seed})"
        tuned = vectors_of(model.encoder, rows, where.device, name)[pooling]
        effort = where.effort(steps, earlier)
    values = values_of(task, tuned, texts) | frozen
    counts = len(pairs), len(next(iter(task.tests.values())))
    return fine_tuned(task, spec, seed, values, counts, effort, _details(task, len(pairs), pooling))


def _details(task: Embedding, pairs: int, pooling: str) -> dict[str, Any]:
    """Return what a score holds besides its metrics."""
    how = f"embeddings ({pooling}) of an encoder that was fine-tuned on {pairs:,} pairs with {LOSSES[task.suite]}"
    return {"library": f"sentence-transformers {_version()}", "notes": [how, *task.notes]}


def pooling_of(spec: TasksSpec) -> str:
    """Return the pooling that is trained."""
    return POOLINGS[1] if spec.embeddings == "contrastive-cls" else POOLINGS[0]


def _version() -> str:
    from importlib.metadata import version

    return version(LIBRARY)


def loss_named(name: str) -> Loss:
    """Return a loss of sentence-transformers, as a function of the embeddings of both sides and of the grades."""
    from sentence_transformers.sentence_transformer import losses

    module = getattr(losses, name)(model=None, scale=SCALE)

    def loss(first: Tensor, second: Tensor, grades: Tensor) -> Tensor:
        value: Tensor = module.compute_loss_from_embeddings([first, second], grades)
        return value

    return loss


def batches(train: Similar | Relevant, lengths: Any, size: int, seed: int) -> Iterator[Any]:
    """Yield the numbers of the pairs of each batch, without end; `lengths` (N,) are those of their longer text."""
    return shuffled(lengths, size, seed) if isinstance(train, Similar) else apart(train.pairs(), size, seed)
