"""Learning rates of fine-tuning: smaller the deeper a layer lies, over the steps, and Adam as paper or code have it."""

from __future__ import annotations

import math
import re

import torch
from torch import nn

from workbench.spec.parts import TasksSpec
from workbench.tasks.finetuning.classifier import Classifier

BETAS, EPS = (0.9, 0.999), 1e-6  # table 7, as in pre-training
LAYER = re.compile(r"(?:^|\.)(?:layer|layers|h|block|blocks)\.(\d+)\.")
EMBEDDING = re.compile(r"embed|(?:^|\.)(?:wte|wpe)\.")


def depth(name: str, layers: int) -> int:
    """Of an encoder's parameter: 0 in embeddings and their projection, i + 1 in layer i (0-based).

    What belongs to no one layer, such as a closing norm or layers that are all one, counts as the top layer.
    """
    found = LAYER.search(name)
    if found:
        return int(found[1]) + 1
    return 0 if EMBEDDING.search(name) else layers


def layer_factor(place: int, layers: int, spec: TasksSpec) -> float:
    """decay^(L + 1 - depth) below the head; the released code has one more power there (docs/electra.md 5)."""
    return spec.layer_decay ** (layers + 1 + spec.extra_decay - place)


def make_optimizer(model: Classifier, spec: TasksSpec) -> torch.optim.AdamW:
    """One group for each layer's rate and each decay: vectors (biases, norms) are not decayed, matrices are."""
    layers = int(model.encoder.config.num_hidden_layers)
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        inside = name.startswith("encoder.")
        factor = layer_factor(depth(name.removeprefix("encoder."), layers), layers, spec) if inside else 1.0
        decay = spec.weight_decay if parameter.ndim > 1 else 0.0
        groups.setdefault((factor, decay), []).append(parameter)
    rows = [{"params": part, "factor": factor, "decay": decay} for (factor, decay), part in groups.items()]
    return torch.optim.AdamW(rows, lr=spec.lr, betas=BETAS, eps=EPS, weight_decay=0.0, fused=True)


def lr_factor(step: int, steps: int, spec: TasksSpec) -> float:
    """Rate over its peak at 0-based `step`: linear warm-up, then linear decay to 0; with `overlap` both at once."""
    warmup = int(spec.warmup * steps)  # below `steps`, so that the peak is reached
    if spec.overlap:
        return (min(1.0, step / warmup) if warmup else 1.0) * (1 - step / steps)
    return (step + 1) / (warmup + 1) if step < warmup else (steps - step) / (steps - warmup)


def set_rates(optimizer: torch.optim.Optimizer, spec: TasksSpec, factor: float, step: int) -> None:
    """Rates of this step, 1-based.

    Without bias correction torch's own is undone: with c1 = 1 - beta1^t and c2 = 1 - beta2^t its update
    lr/c1 * m / (sqrt(v/c2) + eps) is rate * m / (sqrt(v) + EPS) for lr = rate * c1 / sqrt(c2) and eps = EPS / sqrt(c2);
    its decay, lr * decay * w, is set right by the inverse factor.
    """
    root = 1.0 if spec.bias_correction else math.sqrt(1 - BETAS[1] ** step)
    undone = 1.0 if spec.bias_correction else (1 - BETAS[0] ** step) / root
    for group in optimizer.param_groups:
        group["lr"] = spec.lr * factor * group["factor"] * undone
        group["eps"], group["weight_decay"] = EPS / root, group["decay"] / undone
