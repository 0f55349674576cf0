"""Fine-tuning of one encoder to label texts, and its scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.errors import Diverged
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.finetuning.classifier import Classifier, load_encoder, row_length
from workbench.tasks.finetuning.fit import Setting, fit, setting, step_count
from workbench.tasks.finetuning.language_loss import LanguageLoss
from workbench.tasks.finetuning.token_batches import (
    Encoded,
    by_length,
    check_ids,
    doubled,
    encode,
    encode_rows,
    shuffled,
)
from workbench.tasks.finetuning.unfinished import Unfinished
from workbench.tasks.metrics import judged
from workbench.tasks.score import Effort, Progress, Score, fine_tuned, items_of
from workbench.tasks.superglue.marked_spans import encode_marked
from workbench.tasks.superglue.span_pairs import SpanPairClassifier
from workbench.tasks.tables.folds import PART, of_folds, over_folds
from workbench.tasks.tables.row_predictions import table_files
from workbench.tasks.task import Examples, Task

TEST_TOKENS = 8192  # most tokens of a test batch, padding included


def finetune(
    encoder: Path, task: Task, spec: TasksSpec, seed: int, host: Host, progress: Progress | None = None,
    unfinished: Unfinished | None = None,
) -> Score:  # fmt: skip
    """Fine-tune a copy of the encoder in the folder `encoder` (Hugging Face layout) on a task and return its score.

    Everything random is a function of (seed, task). `progress` is called with (step, steps) after each step. If
    there is a state in `unfinished`, training continues from it. Raises InputError for a folder without an encoder,
    and Diverged if the loss or an output is NaN or infinite.
    """
    if task.folds:
        return _over_folds(encoder, task, spec, seed, host, progress, unfinished)
    return finetune_and_predict(encoder, task, {}, spec, seed, host, progress, unfinished)[0]


def finetune_and_predict(
    encoder: Path, task: Task, unlabelled: Mapping[str, Examples], spec: TasksSpec, seed: int, host: Host,
    progress: Progress | None = None, unfinished: Unfinished | None = None,
) -> tuple[Score, dict[str, Any]]:  # fmt: skip
    """Fine-tune as `finetune` does; return the score, and the outputs (N, labels) for each part without labels."""
    fitted = _fitted(encoder, task, unlabelled, spec, seed, host, progress, unfinished)
    labelled = {part: rows for part, rows in fitted.outputs.items() if part in task.tests}
    values = {part: points(task, outputs, task.tests[part], seed) for part, outputs in labelled.items()}
    details: dict[str, Any] = {"notes": list(task.notes)} if task.notes else {}
    if task.suite == "babylm":
        details["predicted"] = labelled[next(iter(values))].argmax(1).tolist()
    first = next(iter(values))
    details |= _items(task, labelled[first], task.array(task.tests[first]))
    files: dict[str, str] = {}
    for part, outputs in labelled.items():
        files |= table_files(task, part, task.tests[part], outputs)
    score = fine_tuned(task, spec, seed, values, _rows(task, values), fitted.effort, details, files)
    return score, {part: fitted.outputs[part] for part in unlabelled}


def _over_folds(
    encoder: Path, task: Task, spec: TasksSpec, seed: int, host: Host, progress: Progress | None,
    unfinished: Unfinished | None,
) -> Score:  # fmt: skip
    """Fine-tune once for each fold, and return the score of all folds together (`tasks.tables.folds`)."""
    fitted: list[Fitted] = []
    parts = list(of_folds(task))
    for number, part in enumerate(parts):
        state = replace(unfinished, score=f"{Path(unfinished.score).stem}-fold{number}.json") if unfinished else None
        step = _of_all(progress, number, len(parts)) if progress is not None else None
        fitted.append(_fitted(encoder, part, {}, spec, seed, host, step, state))
        if state is not None:
            state.delete()
    outputs = [each.outputs[PART] for each in fitted]
    if not all(np.isfinite(each).all() for each in outputs):
        raise Diverged(f"the outputs after fine-tuning on {task.name} (seed {seed}) are not finite")
    targets = [part.array(part.tests[PART]) for part in parts]
    values = over_folds(task, outputs, targets)
    details = {"folds": len(parts), **({"notes": list(task.notes)} if task.notes else {})}
    details |= _items(task, np.concatenate(outputs), np.concatenate(targets))
    efforts = [each.effort for each in fitted]
    peak = max(each.peak_memory_bytes for each in efforts)
    effort = Effort(sum(each.steps for each in efforts), sum(each.seconds for each in efforts), peak)
    hundredfold = {PART: {name: 100 * value for name, value in values.items()}}
    of_row = [number for number, fold in enumerate(task.folds) for _ in fold]
    files = table_files(task, PART, task.tests[PART], np.concatenate(outputs), of_row)
    return fine_tuned(task, spec, seed, hundredfold, _rows(task, hundredfold), effort, details, files)


def _items(task: Task, outputs: Any, targets: Any) -> dict[str, str]:
    """Return the fact on each test row of a classification by accuracy: whether it was predicted rightly."""
    if task.kind != "classification" or task.metric != "accuracy":
        return {}
    return items_of((outputs.argmax(1) == targets).tolist())


def _rows(task: Task, values: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many rows are trained on, and how many the headline part of these values has."""
    return len(task.units(task.train)), len(task.units(task.tests[next(iter(values))]))


def _of_all(progress: Progress, number: int, count: int) -> Progress:
    """Return the progress of one of `count` fine-tunings as a part of that of all."""
    return lambda step, steps: progress(number * steps + step, count * steps)


@dataclass(frozen=True)
class Fitted:
    """The outputs (N, labels) of a fine-tuned model for each part, and what its fine-tuning took."""

    outputs: Mapping[str, Any]
    effort: Effort


def _fitted(
    encoder: Path, task: Task, unlabelled: Mapping[str, Examples], spec: TasksSpec, seed: int, host: Host,
    progress: Progress | None, unfinished: Unfinished | None,
) -> Fitted:  # fmt: skip
    """Fine-tune, and return the outputs for the task's tests and the parts without labels."""
    with setting(task.name, seed, host, unfinished) as where:
        model = _classifier(encoder, task, spec, where)
        learned = doubled(task) if spec.doubled and task.symmetric else task
        length = row_length(encoder, model.encoder.config, spec.length)
        parts = (encode if learned.train.spans is None else encode_marked)(encoder, learned, length)
        parts = parts | {part: encode_rows(encoder, rows, length) for part, rows in unlabelled.items()}
        check_ids(encoder, parts, model.encoder.get_input_embeddings().num_embeddings)
        train, units = parts["train"], learned.units(learned.train)
        steps = step_count(len(units), task.settings(spec)["epochs"], spec)

        def loss_of(numbers: Any) -> Tensor:
            rows = [row for number in numbers for row in units[number]]
            inputs, targets = train.batch(rows, where.device)
            with where.autocast():
                hidden = model.states(inputs)
                outputs = model.classify(hidden, inputs)
                language = model.language(hidden, inputs) if model.language is not None else None
            if task.choice:
                loss = choice_loss(outputs.float(), targets, [len(units[number]) for number in numbers], spec.sum_loss)
            else:
                loss = task_loss(outputs.float(), targets, task, spec.sum_loss)
            if language is not None:
                loss = loss + spec.lm_weight * language * (len(targets) if spec.sum_loss else 1)
            return loss

        lengths = train.lengths
        longest = np.array([lengths[rows].max() for rows in units])
        order = shuffled(longest, spec.batch, where.order())
        earlier = fit(model, loss_of, order, steps, spec, where, progress)
        with where.autocast():
            outputs = {part: predict(model, data, where.device) for part, data in parts.items() if part != "train"}
        return Fitted(outputs, where.effort(steps, earlier))


def _classifier(folder: Path, task: Task, spec: TasksSpec, where: Setting) -> Classifier | SpanPairClassifier:
    """Return the encoder of a folder with a new head for a task, on the device."""
    encoder = load_encoder(folder, spec.dropout, where.device)
    kind = Classifier if task.train.spans is None else SpanPairClassifier
    model = kind(encoder, task.outputs, spec.dropout)
    if spec.lm_weight:
        model.language = LanguageLoss(encoder, folder)
    return model.to(where.device)


def task_loss(outputs: Tensor, targets: Tensor, task: Task, total: bool) -> Tensor:
    """Return the loss of a batch: cross-entropy of outputs (B, labels), or squared error of outputs (B, 1).

    The targets (B,) of a regression are scaled to the range 0 to 1. With several labels a row, targets (B, labels), it
    is the mean over labels of the binary cross-entropy of a sigmoid. The loss is the mean over the batch, or its sum
    with `total`, as in the released code.
    """
    reduction = "sum" if total else "mean"
    if task.regression:
        low, high = task.span
        return nn.functional.mse_loss(outputs[:, 0], (targets - low) / (high - low), reduction=reduction)
    if task.multilabel:
        loss = nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction=reduction)
        return loss / len(task.labels) if total else loss
    return nn.functional.cross_entropy(outputs, targets, reduction=reduction)


def choice_loss(outputs: Tensor, targets: Tensor, sizes: list[int], total: bool) -> Tensor:
    """Return the cross-entropy of a softmax over the answers of each question: its mean over questions, or its sum.

    The outputs (N, 1) and the targets (N,), 1 for the right answer and else 0, are those of all answers; `sizes` (Q,)
    are the numbers of answers of the questions, one after another.
    """
    logs = torch.cat([torch.log_softmax(part, 0) for part in outputs[:, 0].split(sizes)])
    loss = -(logs * targets).sum()
    return loss if total else loss / len(sizes)


def predict(model: Classifier | SpanPairClassifier, data: Encoded, device: str) -> Any:
    """Return the outputs (N, labels), float32, in the order of the data."""
    outputs = np.zeros((len(data), model.head.out_features), dtype=np.float32)
    with torch.inference_mode():
        for rows in by_length(data.lengths, TEST_TOKENS):
            inputs, _ = data.batch(rows, device)
            outputs[rows] = model(inputs).float().cpu().numpy()
    return outputs


def points(task: Task, outputs: Any, rows: Examples, seed: int) -> dict[str, float]:
    """Return the metrics of the outputs (N, labels) for these rows times 100.

    Raises Diverged if an output is NaN or infinite.
    """
    if not np.isfinite(outputs).all():
        raise Diverged(f"the outputs after fine-tuning on {task.name} (seed {seed}) are not finite")
    values = judged(task.kind, task.metrics, outputs, task.array(rows), rows.groups)
    return {name: 100 * value for name, value in values.items()}
