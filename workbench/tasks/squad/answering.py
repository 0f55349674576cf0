"""Fine-tuning of one encoder to answer questions, and its score."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.errors import Diverged, plural
from workbench.signals import heed
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.finetuning.classifier import load_encoder
from workbench.tasks.finetuning.fit import Setting, fit, setting, step_count
from workbench.tasks.finetuning.token_batches import by_length, check_ids, shuffled
from workbench.tasks.finetuning.unfinished import Unfinished
from workbench.tasks.score import Progress, Score, fine_tuned
from workbench.tasks.squad.answers import Answers, Candidates, candidates, collected
from workbench.tasks.squad.official_metrics import answerable_metrics, unanswerable_metrics
from workbench.tasks.squad.questions import THRESHOLD, Questions, Squad
from workbench.tasks.squad.span_model import SpanModel, best_spans, span_loss
from workbench.tasks.squad.windows import Limits, Windows, limits, windows
from workbench.tensors import to_device

TEST_TOKENS = 8192  # most tokens of a test batch, padding included


def answer(
    encoder: Path, task: Squad, spec: TasksSpec, seed: int, host: Host, progress: Progress | None = None,
    unfinished: Unfinished | None = None,
) -> Score:  # fmt: skip
    """Fine-tune a copy of the encoder in the folder `encoder` to answer questions and return its score.

    Everything random is a function of (seed, task). `progress` is called with (step, steps) after each step. If
    there is a state in `unfinished`, training continues from it. The `files` of the score are the predictions. Raises
    InputError for a folder without an encoder or with a tokenizer without character offsets, and Diverged if the loss
    or an output is NaN or infinite.
    """
    with setting(task.name, seed, host, unfinished) as where:
        model = SpanModel(load_encoder(encoder, spec.dropout, where.device), spec.squad_head == "joint")
        model = model.to(where.device)
        limit = limits(encoder, model.encoder.config, spec)
        parts = windows(encoder, model.encoder.config, {"train": task.train, **task.tests}, limit)
        every = {name: part.encoded() for name, part in parts.items()}
        check_ids(encoder, every, model.encoder.get_input_embeddings().num_embeddings)
        train = parts["train"]
        steps = step_count(len(train), task.settings(spec)["epochs"], spec)

        def loss_of(rows: Any) -> Tensor:
            with where.autocast():
                return span_loss(model, train.batch(rows, where.device), spec.sum_loss)

        order = shuffled(train.lengths, spec.batch, where.order())
        earlier = fit(model, loss_of, order, steps, spec, where, progress)
        answers = {name: answers_of(model, task.tests[name], parts[name], where) for name in task.tests}

    results = {name: metrics(task, name, each) for name, each in answers.items()}
    first = next(iter(results))
    values = {name: scores for name, (scores, _) in results.items()}
    rows, files = (len(task.train), len(task.tests[first])), answers[first].files(task.unanswerable)
    details = _details(task, parts, limit, results[first][1])
    return fine_tuned(task, spec, seed, values, rows, where.effort(steps, earlier), details, files)


def answers_of(model: SpanModel, questions: Questions, part: Windows, where: Setting) -> Answers:
    """Return the answers of a model to all questions of a part. Raises Diverged if an output is not finite."""
    by_window: list[Candidates | None] = [None] * len(part)
    nulls = np.zeros(len(part), dtype=np.float32)
    with torch.inference_mode(), where.autocast():
        for rows in by_length(part.lengths, TEST_TOKENS):
            heed()
            batch = part.batch(rows, where.device)
            spans = best_spans(model, batch, to_device(part.begins(rows, batch.allowed.shape[1]), where.device))
            if not all(np.isfinite(spans[name]).all() for name in ("start_scores", "end_scores", "nulls")):
                raise Diverged(f"the outputs after fine-tuning on {where.task} (seed {where.seed}) are not finite")
            nulls[rows] = spans["nulls"]
            for place, row in enumerate(rows):
                _, _, start, count = part.rows[row]
                by_window[row] = candidates(spans, place, part.first[row], count, start)
    return collected(questions, part, [each for each in by_window if each is not None], nulls)


def metrics(task: Squad, part: str, answers: Answers) -> tuple[dict[str, float], dict[str, float]]:
    """Return the metrics of the answers to a test part, and in 2.0 the best thresholds by metric."""
    questions = task.tests[part]
    if task.unanswerable:
        return unanswerable_metrics(questions, answers.texts, answers.null_odds, THRESHOLD)
    return answerable_metrics(questions, answers.texts), {}


def _details(task: Squad, parts: dict[str, Windows], limit: Limits, thresholds: dict[str, float]) -> dict[str, Any]:
    """Return what a score holds besides its metrics: counts of windows, best thresholds, faults of the files."""
    held = parts["train"].spans[:, 0] >= 0
    return {
        "windows": {
            "length": limit.length, "query": limit.query, "stride": limit.stride,
            "count": {name: len(part) for name, part in parts.items()},
            "most_of_a_question": max(max(Counter(part.rows[:, 0].tolist()).values()) for part in parts.values()),
            "train_with_the_answer": int(held.sum()),
            "questions_without_the_answer": _lost(task.train, parts["train"]),
        },
        "thresholds": thresholds, "faults": dict(task.faults),
        "notes": [f"{plural(count, 'time')}: {phrase}" for phrase, count in task.faults.items()],
    }  # fmt: skip


def _lost(questions: Questions, train: Windows) -> int:
    """Return how many training questions have an answer that no window contains completely."""
    seen = set(train.rows[train.spans[:, 0] >= 0, 0].tolist())
    return sum(not row.impossible and number not in seen for number, row in enumerate(questions.rows))
