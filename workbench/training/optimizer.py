"""AdamW and its learning rate, for pre-training and fine-tuning (docs/electra.md 4 and 5; `model/optimization.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from workbench.spec.parts import OptimSpec, ScheduleSpec


def lr_factor(step: int, steps: int, warmup: int, schedule: ScheduleSpec) -> float:
    """Return the learning rate over its peak at 0-based `step` of `steps`, the first `warmup` of which warm up.

    Linear: warm-up, then decay to 0. With `overlap` both at once, as released: (1 - t/T) * min(1, t/warm-up), from 0.
    `wsd` stays at the peak until the last `decay` share of the run, then falls linearly.
    """
    if schedule.overlap:
        rise = min(1.0, step / warmup) if warmup else 1.0
        return rise * (1 - step / steps)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if schedule.kind == "constant":
        return 1.0
    if schedule.kind == "wsd":
        falling = max(1, round(schedule.decay * steps))
        return min(1.0, (steps - step) / (falling + 1))
    return (steps - step) / (steps - warmup)


class Group(NamedTuple):
    """What the weights of one group have in common: whether they are decayed, and the ratio of their rate to the peak.

    `generator` says that the generator alone owns them, and has a rate of its own.
    """

    decayed: bool
    ratio: float = 1.0
    generator: bool = False


def adamw(model: nn.Module, spec: OptimSpec, group_of: Callable[[str, nn.Parameter], Group]) -> torch.optim.AdamW:
    """Return AdamW over every weight of the model once, in the groups that `group_of` gives by name and weight."""
    groups: dict[Group, list[nn.Parameter]] = {}
    for name, weight in model.named_parameters():
        groups.setdefault(group_of(name, weight), []).append(weight)
    rows = []
    for group, weights in groups.items():
        decay = spec.weight_decay if group.decayed else 0.0
        rows.append({"params": weights, "lr": spec.lr * group.ratio, "weight_decay": decay, "decay": decay,
                     "ratio": group.ratio, "generator": group.generator})  # fmt: skip
    return torch.optim.AdamW(rows, betas=(spec.beta1, spec.beta2), eps=spec.eps, fused=True)


def make_optimizer(model: nn.Module, spec: OptimSpec) -> torch.optim.AdamW:
    """Return the optimizer of pre-training, over everything at once (docs/electra.md 4).

    Biases and layer norms are not decayed, embeddings are. Where the generator has a rate of its own, its weights are
    in groups of their own.
    """
    own = generator_alone(model) if spec.generator_lr is not None else set()
    ratio = spec.generator_lr / spec.lr if spec.generator_lr is not None else 1.0

    def group_of(name: str, weight: nn.Parameter) -> Group:
        decayed = not exempt(name)
        return Group(decayed, ratio, generator=True) if id(weight) in own else Group(decayed)

    return adamw(model, spec, group_of)


def generator_alone(model: nn.Module) -> set[int]:
    """Return the ids of the parameters that only the model's `generator` owns, and no other part of the model."""
    shared = {id(p) for name, part in model.named_children() if name != "generator" for p in part.parameters()}
    shared |= {id(p) for p in model.parameters(recurse=False)}
    return {id(p) for name, part in model.named_children() if name == "generator" for p in part.parameters()} - shared


# Which weights are not decayed. The released code has one list of names for pre-training and fine-tuning: LayerNorm,
# layer_norm and bias (`AdamWeightDecayOptimizer`). Encoders by others name their norms otherwise, such as GPT-2's
# `ln_1`, so fine-tuning goes by shape. On every encoder that is pre-trained here both rules spare the same weights.


def exempt(name: str) -> bool:
    """Return whether a weight of this name is a bias or belongs to a norm: the released rule, used in pre-training."""
    last = name.split(".")[-2:]
    return name.endswith("bias") or any("norm" in part.lower() for part in last)


def is_vector(weight: nn.Parameter) -> bool:
    """Return whether a weight is no matrix, as biases and norms are none: the rule for encoders by anyone."""
    return weight.ndim <= 1


def set_rate(optimizer: torch.optim.Optimizer, spec: OptimSpec, rate: float, step: int) -> dict[str, float]:
    """Set this step's learning rate, `step` counted from 1, and return the rates for the log.

    Without bias correction (released code) torch's own correction is undone: with c1 = 1 - beta1^t, c2 = 1 - beta2^t
    its update lr/c1 * m / (sqrt(v/c2) + eps) becomes rate * m / (sqrt(v) + eps) for lr = rate * c1 / sqrt(c2) and an
    epsilon over sqrt(c2); the decay lr * wd * w becomes rate * wd * w by the inverse factor.
    """
    factor, root = 1.0, 1.0
    if not spec.bias_correction:
        root = math.sqrt(1 - spec.beta2**step)
        factor = (1 - spec.beta1**step) / root
    told = {"learning_rate": rate}
    for group in optimizer.param_groups:
        own = rate * group["ratio"]
        group["lr"], group["eps"], group["weight_decay"] = own * factor, spec.eps / root, group["decay"] / factor
        if group["generator"]:
            told["generator_learning_rate"] = own
    return told
