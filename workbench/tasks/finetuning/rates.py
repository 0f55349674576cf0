"""Layer-wise learning rates of fine-tuning: the deeper a layer lies, the smaller its rate (docs/electra.md 5)."""

from __future__ import annotations

import re

import torch
from torch import nn

from workbench.spec.parts import OptimSpec, ScheduleSpec, TasksSpec
from workbench.tasks.finetuning.classifier import Classifier
from workbench.training.optimizer import Group, adamw, is_vector

LAYER = re.compile(r"(?:^|\.)(?:layer|layers|h|block|blocks)\.(\d+)\.")
EMBEDDING = re.compile(r"embed|(?:^|\.)(?:wte|wpe)\.")


def optim_spec(spec: TasksSpec) -> OptimSpec:
    """Return the settings of AdamW; its betas and epsilon are those of pre-training (table 7)."""
    return OptimSpec(lr=spec.lr, weight_decay=spec.weight_decay, clip=spec.clip, bias_correction=spec.bias_correction)


def schedule_spec(spec: TasksSpec) -> ScheduleSpec:
    """Return the settings of the schedule, linear warm-up and linear decay to 0."""
    return ScheduleSpec(warmup=spec.warmup, overlap=spec.overlap)


def depth(name: str, layers: int) -> int:
    """Return where a weight of an encoder lies: 0 in embeddings and their projection, i + 1 in layer i (0-based).

    What belongs to no one layer, such as a closing norm or layers that are all one, counts as the top layer.
    """
    found = LAYER.search(name)
    if found:
        return int(found[1]) + 1
    return 0 if EMBEDDING.search(name) else layers


def layer_factor(place: int, layers: int, spec: TasksSpec) -> float:
    """Return decay^(L + 1 - depth) below the head; the released code has one more power (docs/electra.md 5)."""
    return spec.layer_decay ** (layers + 1 + spec.extra_decay - place)


def layerwise_optimizer(model: Classifier, spec: TasksSpec) -> torch.optim.AdamW:
    """Return AdamW with one group for each layer's rate and each decay; the head has the peak rate."""
    layers = int(model.encoder.config.num_hidden_layers)

    def group_of(name: str, weight: nn.Parameter) -> Group:
        inside = name.startswith("encoder.")
        ratio = layer_factor(depth(name.removeprefix("encoder."), layers), layers, spec) if inside else 1.0
        return Group(not is_vector(weight), ratio)

    return adamw(model, optim_spec(spec), group_of)
