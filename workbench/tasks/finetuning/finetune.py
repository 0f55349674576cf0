"""Fine-tuning of one encoder on one task, and its scores.

Clark et al. 2020, table 7 and appendix; released code: `finetune/` and `configure_finetuning.py` (docs/electra.md 5).
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench import cpu
from workbench.errors import Diverged
from workbench.rng import seed_of
from workbench.signals import heed
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.finetuning.classifier import Classifier, load_encoder, row_length
from workbench.tasks.finetuning.language_loss import LanguageLoss
from workbench.tasks.finetuning.rates import layerwise_optimizer, optim_spec, schedule_spec
from workbench.tasks.finetuning.token_batches import Encoded, by_length, check_ids, doubled, encode, shuffled
from workbench.tasks.metrics import measure
from workbench.tasks.score import Progress, Score, score_digest
from workbench.tasks.task import Task
from workbench.training.optimizer import lr_factor, set_rate
from workbench.training.plan import warmup_steps

TEST_TOKENS = 8192  # most tokens of a test batch, padding included
LOOK = 50  # steps between checks that the loss is finite, each of which waits for the device


def finetune(
    encoder: Path, task: Task, spec: TasksSpec, seed: int, host: Host, progress: Progress | None = None
) -> Score:
    """Fine-tune a copy of the encoder in the folder `encoder` (Hugging Face layout) on a task and return its score.

    Everything random is a function of (seed, task). `progress` is called with (step, steps) after each step. Raises
    InputError for a folder without an encoder, and Diverged if the loss or an output is NaN or infinite.
    """
    begun = time.perf_counter()
    device = host.resolved_device()
    cpu.prepare(host.threads, host.plain, device)
    autocast = torch.autocast(device.partition(":")[0], torch.bfloat16, enabled=host.resolved_precision() == "bf16")

    with torch.random.fork_rng([device] if device.startswith("cuda") else []):
        torch.manual_seed(seed_of(seed, "finetune", task.name, "head and dropout"))
        backbone: Any = load_encoder(encoder, spec.dropout, device)
        model = Classifier(backbone, max(1, len(task.labels)), spec.dropout)
        if spec.lm_weight:
            model.language = LanguageLoss(backbone, encoder)
        model = model.to(device)
        learned = doubled(task) if spec.doubled and task.symmetric else task
        parts = encode(encoder, learned, row_length(encoder, backbone.config, spec.length))
        check_ids(encoder, parts, backbone.get_input_embeddings().num_embeddings)
        train = parts["train"]
        steps = max(1, round(task.settings(spec)["epochs"] * math.ceil(len(train) / spec.batch)))
        optim, schedule = optim_spec(spec), schedule_spec(spec)
        optimizer, warmup = layerwise_optimizer(model, spec), warmup_steps(schedule, steps)
        batches = shuffled(train, spec.batch, seed_of(seed, "finetune", task.name, "order"))
        bad = torch.zeros((), device=device)

        model.train()
        for step in range(1, steps + 1):
            heed()
            set_rate(optimizer, optim, optim.lr * lr_factor(step - 1, steps, warmup, schedule), step)
            inputs, targets = train.batch(next(batches), device)
            with autocast:
                hidden = model.states(inputs)
                outputs = model.classify(hidden, inputs)
                language = model.language(hidden, inputs) if model.language is not None else None
            loss = task_loss(outputs.float(), targets, task, spec.sum_loss)
            if language is not None:
                loss = loss + spec.lm_weight * language * (len(targets) if spec.sum_loss else 1)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), optim.clip, foreach=True)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            bad += ~torch.isfinite(loss.detach())
            if (step % LOOK == 0 or step == steps) and bad.item():
                where = f"fine-tuning on {task.name} (seed {seed})"
                raise Diverged(f"the loss of {where} is not finite by step {step}", step)
            if progress is not None:
                progress(step, steps)

        model.eval()
        with autocast:
            predicted = {part: predict(model, data, device) for part, data in parts.items() if part != "train"}

    values = {part: points(task, outputs, parts[part], seed) for part, outputs in predicted.items()}
    first = next(iter(values))
    details = {"predicted": predicted[first].argmax(1).tolist()} if task.suite == "babylm" else {}
    return Score(
        task=task.name, suite=task.suite, metric=task.metric, seed=seed, value=values[first][task.metric],
        values=values, baselines=dict(task.baselines), train_rows=len(task.train), test_rows=len(parts[first]),
        steps=steps, seconds=time.perf_counter() - begun, finetune=task.settings(spec), data=task.fingerprint,
        digest=score_digest(task, spec), details=details,
    )  # fmt: skip


def task_loss(outputs: Tensor, targets: Tensor, task: Task, total: bool) -> Tensor:
    """Return the loss of a batch: cross-entropy of outputs (B, labels), or squared error of outputs (B, 1).

    The targets (B,) of a regression are scaled to the range 0 to 1. The loss is the mean over the batch, or its sum
    with `total`, as in the released code.
    """
    reduction = "sum" if total else "mean"
    if task.regression:
        low, high = task.span
        return nn.functional.mse_loss(outputs[:, 0], (targets - low) / (high - low), reduction=reduction)
    return nn.functional.cross_entropy(outputs, targets, reduction=reduction)


def predict(model: Classifier, data: Encoded, device: str) -> Any:
    """Return the outputs (N, labels), float32, in the order of the data."""
    outputs = np.zeros((len(data), model.head.out_features), dtype=np.float32)
    with torch.inference_mode():
        for rows in by_length(data, TEST_TOKENS):
            inputs, _ = data.batch(rows, device)
            outputs[rows] = model(inputs).float().cpu().numpy()
    return outputs


def points(task: Task, outputs: Any, data: Encoded, seed: int) -> dict[str, float]:
    """Return the metrics of the task times 100. Raises Diverged if an output is NaN or infinite."""
    if not np.isfinite(outputs).all():
        raise Diverged(f"the outputs after fine-tuning on {task.name} (seed {seed}) are not finite")
    predicted = outputs[:, 0] if task.regression else outputs.argmax(1)
    return {name: 100 * value for name, value in measure(task.metrics, predicted, data.targets).items()}
