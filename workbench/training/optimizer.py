"""AdamW and its learning rate, for pre-training and fine-tuning (docs/electra.md 4 and 5; `model/optimization.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from workbench.spec.parts import OptimSpec, ScheduleSpec


def lr_factor(step: int, steps: int, warmup: int, schedule: ScheduleSpec) -> float:
    """Return the learning rate at `step` (from 0) of `steps` as a fraction of its peak; `warmup` is in steps.

    `linear` rises during warm-up and then decays linearly to 0; with `overlap` both happen at once, as in the released
    code: (1 - step / steps) * min(1, step / warmup), which starts from 0. `wsd` stays at the peak until the last
    `decay` share of the run, in which it decays linearly; `constant` stays at the peak. `cosine` falls from the peak to
    `floor` along half a cosine (Loshchilov and Hutter 2017, "SGDR", equation 5, without restarts). `inverse-sqrt` is
    sqrt(warmup / step) after warm-up (Vaswani et al. 2017, equation 3).
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
    if schedule.kind == "cosine":
        fallen = (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2
        return schedule.floor + (1 - schedule.floor) * fallen
    if schedule.kind == "inverse-sqrt":
        return math.sqrt(max(warmup, 1) / max(step, 1))
    return (steps - step) / (steps - warmup)


class Group(NamedTuple):
    """The settings of a parameter group: whether weight decay applies, and the ratio of its learning rate to `lr`.

    `generator` is true for weights that only the generator has, if it has its own learning rate.
    """

    decayed: bool
    ratio: float = 1.0
    generator: bool = False


def adamw(model: nn.Module, spec: OptimSpec, group_of: Callable[[str, nn.Parameter], Group]) -> torch.optim.AdamW:
    """Return AdamW over all weights of the model, each once; `group_of` returns the group of a name and a weight."""
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
    """Return the optimizer of pre-training, for all weights of generator, encoder and heads (docs/electra.md 4).

    Weight decay applies to all weights, embeddings included, except biases and layer norms. If the generator has its
    own learning rate, its weights are in separate groups.
    """
    own = generator_alone(model) if spec.generator_lr is not None else set()
    ratio = spec.generator_lr / spec.lr if spec.generator_lr is not None else 1.0

    def group_of(name: str, weight: nn.Parameter) -> Group:
        decayed = not exempt(name)
        return Group(decayed, ratio, generator=True) if id(weight) in own else Group(decayed)

    return adamw(model, spec, group_of)


def generator_alone(model: nn.Module) -> set[int]:
    """Return the ids (of Python objects) of the parameters that belong to the model's `generator` and no other part."""
    shared = {id(p) for name, part in model.named_children() if name != "generator" for p in part.parameters()}
    shared |= {id(p) for p in model.parameters(recurse=False)}
    return {id(p) for name, part in model.named_children() if name == "generator" for p in part.parameters()} - shared


# Weights without weight decay. The released code has one list of names for pre-training and fine-tuning: LayerNorm,
# layer_norm and bias (`AdamWeightDecayOptimizer`), to which GPT-2's names of its norms are added. Encoders from
# elsewhere may have other names, so fine-tuning uses shapes. For every encoder that is pre-trained here, both rules
# exempt the same weights.
NORMS_OF_GPT2 = ("ln_1", "ln_2", "ln_f")


def exempt(name: str) -> bool:
    """Return whether a weight of this name is a bias or belongs to a norm (the released rule, used in pre-training)."""
    last = name.split(".")[-2:]
    return name.endswith("bias") or any("norm" in part.lower() or part in NORMS_OF_GPT2 for part in last)


def is_vector(weight: nn.Parameter) -> bool:
    """Return whether a weight has at most one dimension, like biases and norms (the rule for any encoder)."""
    return weight.ndim <= 1


def set_rate(optimizer: torch.optim.Optimizer, spec: OptimSpec, rate: float, step: int) -> dict[str, float]:
    """Set the learning rates of `step`, counted from 1, and return them for the log; `rate` is that of the encoder.

    Without bias correction (released code) torch's own correction is cancelled. With c1 = 1 - beta1^t and
    c2 = 1 - beta2^t, torch's update lr/c1 * m / (sqrt(v/c2) + eps) equals rate * m / (sqrt(v) + eps) if lr is
    rate * c1 / sqrt(c2) and epsilon is divided by sqrt(c2). Weight decay, lr * wd * w, is divided by the factor of lr.
    """
    factor, root = 1.0, 1.0
    if not spec.bias_correction:
        root = math.sqrt(1 - spec.beta2**step)
        factor = (1 - spec.beta1**step) / root
    rates = {"learning_rate": rate}
    for group in optimizer.param_groups:
        own = rate * group["ratio"]
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(own * factor)
        else:
            group["lr"] = own * factor
        group["eps"], group["weight_decay"] = spec.eps / root, group["decay"] / factor
        if group["generator"]:
            rates["generator_learning_rate"] = own
    return rates
