"""Layer-wise learning rates of fine-tuning, which decay from the head to the embeddings (docs/electra.md 5)."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from workbench.spec.parts import OptimSpec, ScheduleSpec, TasksSpec
from workbench.training.optimizer import Group, adamw, is_vector

LAYER = re.compile(r"(?:^|\.)(?:layer|layers|h|block|blocks)\.(\d+)\.")
EMBEDDING = re.compile(r"embed|(?:^|\.)(?:wte|wpe)\.")


def optim_spec(spec: TasksSpec) -> OptimSpec:
    """Return the settings of AdamW; its betas and epsilon are those of pre-training (table 7)."""
    return OptimSpec(lr=spec.lr, weight_decay=spec.weight_decay, clip=spec.clip, bias_correction=spec.bias_correction)


def schedule_spec(spec: TasksSpec) -> ScheduleSpec:
    """Return the settings of the learning-rate schedule, linear warm-up and linear decay to 0."""
    return ScheduleSpec(warmup=spec.warmup, overlap=spec.overlap)


def depth(name: str, layers: int) -> int:
    """Return the depth of a weight of the encoder, by its name: 0 in the embeddings, i + 1 in layer i (from 0).

    The projection of the embeddings has depth 0 as well. A weight that belongs to no single layer, such as a final
    layer norm or a weight that all layers share, has the depth of the top layer, `layers`.
    """
    match = LAYER.search(name)
    if match:
        return int(match[1]) + 1
    return 0 if EMBEDDING.search(name) else layers


def layer_factor(depth: int, layers: int, spec: TasksSpec) -> float:
    """Return the factor decay^(layers + 1 - depth) of the learning rate at a depth of the encoder.

    The released code has one more power, which is `extra_decay` (docs/electra.md 5). The factor of the head is 1.
    """
    return spec.layer_decay ** (layers + 1 + spec.extra_decay - depth)


def layerwise_optimizer(model: Any, spec: TasksSpec) -> torch.optim.AdamW:
    """Return AdamW with a parameter group for each learning rate of a layer, with and without weight decay.

    The weights of `model.encoder` have the rates of their layers; all others, a head's, have the peak rate.
    """
    layers = int(model.encoder.config.num_hidden_layers)

    def group_of(name: str, weight: nn.Parameter) -> Group:
        inside = name.startswith("encoder.")
        ratio = layer_factor(depth(name.removeprefix("encoder."), layers), layers, spec) if inside else 1.0
        return Group(not is_vector(weight), ratio)

    return adamw(model, optim_spec(spec), group_of)
