"""Fine-tuning of one encoder to label texts, and its scores."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench import objectives
from workbench.cpu import functions
from workbench.data import hugging_face
from workbench.errors import Diverged, InputError
from workbench.models.own_layout import WEIGHTS
from workbench.spec.host import Host
from workbench.store.run_directory import home_of
from workbench.tasks.common.contract import Model, Progress, Scores, items_of
from workbench.tasks.common.cost import step_count
from workbench.tasks.common.encoder_folders import Classifier, WithHead, is_causal, load_encoder, row_length
from workbench.tasks.common.examples import PART, Examples, Task, of_folds, over_folds
from workbench.tasks.common.fine_tuning import fit, setting
from workbench.tasks.common.metrics import judged
from workbench.tasks.common.token_rows import Encoded, by_length, check_ids, doubled, encode, encode_rows, shuffled


def finetune(task: Task, model: Model, host: Host) -> Scores:
    """Fine-tune a copy of an encoder (Hugging Face layout) on a task and score it, over all folds if there are any.

    Everything random is a function of (seed, task). Raises InputError for a folder without an encoder, and Diverged if
    the loss or an output is NaN or infinite.
    """
    if not task.folds:
        return finetune_and_predict(task, {}, model, host)[0]
    outputs, efforts, parts = list[Any](), list[dict[str, Any]](), list(of_folds(task))
    for number, part in enumerate(parts):
        state, progress = model.unfinished, model.progress
        if state is not None:
            state = replace(state, score=f"{Path(state.score).stem}-fold{number}.json")
        if progress is not None:
            progress = partial(_of_all, progress, number, len(parts))
        each, effort = _fitted(part, {}, replace(model, unfinished=state, progress=progress), host)
        outputs.append(each[PART])
        efforts.append(effort)
        if state is not None:
            state.delete()
    together, targets = np.concatenate(outputs), [part.array(part.tests[PART]) for part in parts]
    values = {PART: {name: 100 * value for name, value in over_folds(task, outputs, targets).items()}}
    effort = {name: sum(each[name] for each in efforts) for name in ("steps", "seconds")}
    effort["peak_memory_bytes"] = max(each["peak_memory_bytes"] for each in efforts)
    of_row = [number for number, fold in enumerate(task.folds) for _ in fold]
    files = prediction_files(task, PART, task.tests[PART], together, of_row)
    return _scores(task, effort, together, np.concatenate(targets), values, files, {"folds": len(parts)})


def finetune_and_predict(
    task: Task, unlabelled: Mapping[str, Examples], model: Model, host: Host
) -> tuple[Scores, dict[str, Any]]:
    """Fine-tune as `finetune` does; return the scores, and the outputs (N, labels) for each part without labels."""
    outputs, effort = _fitted(task, unlabelled, model, host)
    values, files = dict[str, dict[str, float]](), dict[str, str]()
    for part, rows in task.tests.items():
        found = judged(task.kind, task.metrics, outputs[part], task.array(rows), rows.groups)
        values[part] = {name: 100 * value for name, value in found.items()}
        files |= prediction_files(task, part, rows, outputs[part])
    first, rows = next(iter(task.tests.items()))
    scores = _scores(task, effort, outputs[first], task.array(rows), values, files, {})
    return scores, {part: outputs[part] for part in unlabelled}


def _of_all(progress: Progress, number: int, count: int, step: int, steps: int) -> None:
    progress(number * steps + step, count * steps)


def _scores(
    task: Task, effort: dict[str, Any], outputs: Any, targets: Any, values: dict[str, dict[str, float]],
    files: dict[str, str], details: dict[str, Any],
) -> Scores:  # fmt: skip
    """Return the scores by the outputs (N, labels) and targets of the first test part, or of all folds."""
    details |= {"notes": list(task.notes)} if task.notes else {}
    details |= {"predicted": outputs.argmax(1).tolist()} if task.predictions == "numbers" else {}
    if task.kind == "classification" and task.metric == "accuracy":
        details |= items_of((outputs.argmax(1) == targets).tolist())
    rows = len(task.units(task.train)), len(task.units(next(iter(task.tests.values()))))
    return Scores(values, rows, details, files, **effort)


def _fitted(
    task: Task, unlabelled: Mapping[str, Examples], trial: Model, host: Host
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fine-tune; return the outputs (N, labels) for the task's tests and the parts without labels, and the effort."""
    encoder, spec = trial.folder, trial.options
    with setting(task.name, trial.seed, host, trial.unfinished) as where:
        kind = Classifier if task.train.spans is None else SpanPairClassifier
        model = kind(load_encoder(encoder, spec.dropout, where.device), task.outputs, spec.dropout)
        if spec.lm_weight:
            model.language = LanguageLoss(model.encoder, encoder)
        model = model.to(where.device)
        learned = doubled(task) if spec.doubled and task.symmetric else task
        length = row_length(encoder, model.encoder.config, spec.length)
        unseen = {part: encode_rows(encoder, rows, length) for part, rows in unlabelled.items()}
        parts = encode(encoder, learned, length) | unseen
        check_ids(encoder, parts.values(), model.encoder)
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
        order = shuffled(longest, spec.batch, where.order)
        earlier = fit(model, loss_of, order, steps, spec, where, trial.progress)
        with where.autocast():
            outputs = {part: predict(model, data, where.device) for part, data in parts.items() if part != "train"}
        if not all(np.isfinite(each).all() for each in outputs.values()):
            raise Diverged(f"the outputs after fine-tuning on {task.name} (seed {trial.seed}) are not finite")
        return outputs, where.effort(steps, earlier)


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

    The outputs (N, 1) and the targets (N,), 1 for the right answer and else 0, have an entry for each answer; `sizes`
    (Q,) are the numbers of answers of the questions, one after another.
    """
    logs = torch.cat([torch.log_softmax(part, 0) for part in outputs[:, 0].split(sizes)])
    loss = -(logs * targets).sum()
    return loss if total else loss / len(sizes)


def predict(model: Classifier, data: Encoded, device: str) -> Any:
    """Return the outputs (N, labels), float32, in the order of the data."""
    outputs = np.zeros((len(data), model.head.out_features), dtype=np.float32)
    with torch.inference_mode():
        for rows in by_length(data.lengths):
            inputs, _ = data.batch(rows, device)
            outputs[rows] = model(inputs).float().cpu().numpy()
    return outputs


# ---- the auxiliary loss of language modelling ----
# Radford et al. 2018, "Improving language understanding by generative pre-training", section 3.2: the loss of the task
# plus `tasks.lm_weight`, 0.5 there, times the loss of the language model.
# B rows, L positions, D width of the encoder, E width of its token table.

NAMES = ("dense.weight", "dense.bias", "norm.weight", "norm.bias", "bias")  # of the head of `causal-lm`


class LanguageLoss(nn.Module):
    """The head with which an encoder predicted next tokens in pre-training, and its loss.

    For an encoder of ours, this is the head of its run, with its weights. Published causal models whose output layer is
    their token table need no weights. Raises InputError for an encoder that is not causal, or whose head is not known.
    """

    def __init__(self, encoder: Any, folder: Path) -> None:
        super().__init__()
        self.table: nn.Embedding = encoder.get_input_embeddings()
        config, (vocabulary, width) = encoder.config, self.table.weight.shape
        if not is_causal(config):
            raise InputError(
                f"tasks.lm_weight: {folder} holds an encoder whose positions see later ones, so it cannot be trained "
                f"to predict the next token; set tasks.lm_weight=0"
            )
        weights = _head_of_run(folder)
        tied = config.model_type in hugging_face.CAUSAL and getattr(config, "tie_word_embeddings", False)
        self.transform: nn.Module | None = None
        if weights:
            dense, norm = nn.Linear(config.hidden_size, width), nn.LayerNorm(width, eps=1e-12)
            self.transform = nn.Sequential(dense, nn.GELU(), norm)
            self.bias = nn.Parameter(weights["bias"].clone())
            dense.load_state_dict({"weight": weights["dense.weight"], "bias": weights["dense.bias"]})
            norm.load_state_dict({"weight": weights["norm.weight"], "bias": weights["norm.bias"]})
        elif tied and width == config.hidden_size:
            self.register_buffer("bias", torch.zeros(vocabulary), persistent=False)
        else:
            raise InputError(
                f"tasks.lm_weight: {folder} has no head that predicts the next token: neither the head of a causal-lm "
                f"run, nor a token table that is also the output layer, as in GPT-2; set tasks.lm_weight=0"
            )

    def forward(self, hidden: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        """Return the mean over rows () of each row's mean loss, over every real token that follows another.

        hidden (B, L, D) are the states of inputs, tensors (B, L). As in the released code (openai/
        finetune-transformer-lm, `train.py`), special tokens are predicted too.
        """
        ids, attention = inputs["input_ids"], inputs.get("attention_mask")
        real = torch.ones_like(ids) if attention is None else attention
        counted = (real[:, 1:] * real[:, :-1]).float()
        weights = counted / counted.sum(1, keepdim=True).clamp(min=1)
        features = hidden[:, :-1] if self.transform is None else self.transform(hidden[:, :-1])
        loss = functions.guess(
            features.flatten(0, 1), self.table.weight, self.bias, ids[:, 1:].flatten(), weights.flatten()
        ).loss
        return loss.value


def _head_of_run(folder: Path) -> dict[str, Tensor]:
    """Return the weights of the head of causal LM in the run of an encoder's folder; {} without such a head."""
    from safetensors.torch import load_file

    run, place = home_of(folder)
    heads = folder.parent / "heads"
    if not (run.path / "spec.json").is_file() or not (heads / WEIGHTS).is_file():
        return {}
    objectives.keep_sources(spec := run.spec(), run.path)
    if not objectives.is_causal(spec):  # its head, if it has one of these names, fills masks
        return {}
    run.check_weights("heads", place)
    tensors = load_file(heads / WEIGHTS)
    return {name: tensors[f"head.{name}"] for name in NAMES} if all(f"head.{name}" in tensors for name in NAMES) else {}


# ---- the classifier of two marked spans ----


class SpanPairClassifier(Classifier):
    """One linear layer on the states of two spans, each a mean weighted by a softmax of one linear layer.

    This is how SuperGLUE's baseline reads WSC (Wang et al. 2019, section 4.1; the pooling is from Lee et al. 2017).
    In a causal encoder the states of a span depend only on the text before them.
    """

    def __init__(self, encoder: nn.Module, outputs: int, dropout: float) -> None:
        WithHead.__init__(self, encoder, dropout)
        self.language = None
        self.attention, self.head = nn.Linear(self.width, 1), nn.Linear(2 * self.width, outputs)
        for layer in (self.attention, self.head):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def classify(self, hidden: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        """Return outputs (B, labels) of the states (B, L, D), at `spans` (B, 2, 2) of the inputs."""
        outputs: Tensor = self.head(self.dropout(self.pooled(hidden, inputs["spans"]).flatten(1)))
        return outputs

    def pooled(self, hidden: Tensor, spans: Tensor) -> Tensor:
        """Return the state of each span (B, 2, D) of the states (B, L, D); a span is its first position and its end."""
        positions = torch.arange(hidden.shape[1], device=hidden.device)
        inside = (positions >= spans[..., :1]) & (positions < spans[..., 1:])  # (B, 2, L)
        scores = self.attention(hidden).transpose(1, 2).float()  # (B, 1, L)
        weights = torch.softmax(scores.masked_fill(~inside, -torch.inf), dim=-1)
        return weights.to(hidden.dtype) @ hidden


# ---- predictions in CSV ----
# A line has the row's texts, what is right (`gold`), what was predicted, and a column for each output: of a
# classification the probability of each label, else the output itself, which a regression has from 0 to 1. Numbers are
# 32-bit floats, written so that reading them gives the same floats, and in a regression the same doubles. Several
# labels of a row are separated by `|`, or are a JSON list if that is part of a label.

SEPARATOR = "|"  # of the labels of a row that has several
MOST = 1_000_000  # outputs in a file, beyond which it has only what was predicted


def prediction_files(task: Task, part: str, rows: Examples, outputs: Any, folds: Sequence[int] = ()) -> dict[str, str]:
    """Return {ending: content} of the predictions of a user's table by outputs (N, labels); {} for other tasks."""
    if task.predictions != "csv":
        return {}
    from scipy.special import softmax

    given = {"text": rows.first, "pair": rows.second, "question": rows.groups, "fold": folds or None}
    columns: dict[str, Sequence[Any]] = {name: column for name, column in given.items() if column is not None}
    columns |= {"gold": _named(task, rows.targets), "predicted": _named(task, _predicted(task, outputs))}
    if outputs.size <= MOST:
        classes = task.kind == "classification"
        scores = softmax(outputs, axis=1) if classes else outputs
        names = [f"{'probability of' if classes else 'output for'} {label}" for label in task.labels]
        number = float if task.kind == "regression" else np.float32
        for name, column in zip(names if len(names) == scores.shape[1] else ["output"], scores.T, strict=True):
            columns[name] = [str(number(score)) for score in column]
    target = io.StringIO(newline="")
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return {f".{part}.csv": target.getvalue()}


def _predicted(task: Task, outputs: Any) -> list[Any]:
    """Return the prediction for each row, as `Examples.targets`; None for the answers of a choice."""
    if task.kind == "choice":
        return [None] * len(outputs)
    if task.kind == "regression":
        low, high = task.span
        return [low + (high - low) * output for output in outputs[:, 0].tolist()]
    if task.kind == "multilabel":
        return [row.nonzero()[0].tolist() for row in outputs > 0]
    targets: list[Any] = outputs.argmax(1).tolist()
    return targets


def _named(task: Task, targets: Sequence[Any]) -> list[Any]:
    if task.kind in ("regression", "choice"):
        return ["" if target is None else target for target in targets]
    if task.kind == "multilabel":
        listed = any(SEPARATOR in label for label in task.labels)
        join: Callable[[list[str]], str] = json.dumps if listed else SEPARATOR.join
        return [join([task.labels[label] for label in target]) for target in targets]
    return [task.labels[target] for target in targets]
