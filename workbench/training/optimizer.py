"""The optimizer and its learning rate, for pre-training and fine-tuning (docs/electra.md 4 and 5)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from workbench.spec.parts import OptimSpec, ScheduleSpec
from workbench.training import update_rules


def lr_factor(step: int, steps: int, warmup: int, schedule: ScheduleSpec) -> float:
    """Return the learning rate at `step` (from 0) of `steps` as a fraction of its peak; `warmup` is in steps.

    If the run ends after a share of its schedule (`until`), `steps` are those of the run.

    `linear` rises during warm-up and then decays linearly to 0; with `overlap` both happen at once, as in the released
    code: (1 - step / steps) * min(1, step / warmup), which starts from 0. `wsd` stays at the peak until the last
    `decay` share of the run, in which it decays linearly; `constant` stays at the peak. `cosine` falls from the peak to
    `floor` along half a cosine (Loshchilov and Hutter 2017, "SGDR", equation 5, without restarts). `inverse-sqrt` is
    sqrt(warmup / step) after warm-up (Vaswani et al. 2017, equation 3).
    """
    steps = round(steps / schedule.until)
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

    `generator` is true for weights that only the generator has, if it has its own learning rate. `rule` is the rule by
    which the weights are updated, one of `optim.kind`.
    """

    decayed: bool
    ratio: float = 1.0
    generator: bool = False
    rule: str = "adamw"


def adamw(model: nn.Module, spec: OptimSpec, group_of: Callable[[str, nn.Parameter], Group]) -> torch.optim.AdamW:
    """Return AdamW over all weights of the model, each once; `group_of` returns the group of a name and a weight."""
    return _fused(_rows(model, spec, group_of), spec)


def _rows(model: nn.Module, spec: OptimSpec, group_of: Callable[[str, nn.Parameter], Group]) -> list[dict[str, Any]]:
    """Return the parameter groups of all weights of the model, each once."""
    groups: dict[Group, list[nn.Parameter]] = {}
    for name, weight in model.named_parameters():
        groups.setdefault(group_of(name, weight), []).append(weight)
    rows = []
    for group, weights in groups.items():
        decay = spec.weight_decay if group.decayed else 0.0
        rows.append({
            "params": weights, "lr": spec.lr * group.ratio, "weight_decay": decay, "decay": decay,
            "decayed": group.decayed, "ratio": group.ratio, "generator": group.generator, "rule": group.rule,
        })  # fmt: skip
    return rows


def _fused(rows: list[dict[str, Any]], spec: OptimSpec) -> torch.optim.AdamW:
    return torch.optim.AdamW(rows, betas=(spec.beta1, spec.beta2), eps=spec.eps, fused=True)


def make_optimizer(model: nn.Module, spec: OptimSpec) -> torch.optim.Optimizer:
    """Return the optimizer of pre-training, for all weights of generator, encoder and heads (docs/electra.md 4).

    Weight decay applies to all weights, embeddings included, except biases and layer norms. If the generator has its
    own learning rate, its weights are in separate groups.
    """
    own = generator_alone(model) if spec.generator_lr is not None else set()
    ratio = spec.generator_lr / spec.lr if spec.generator_lr is not None else 1.0
    others = update_rules.matrices(model) if spec.kind == "muon" else set()

    def group_of(name: str, weight: nn.Parameter) -> Group:
        rule = spec.kind if spec.kind != "muon" or id(weight) in others else "adamw"
        alone = id(weight) in own
        return Group(not exempt(name), ratio if alone else 1.0, generator=alone, rule=rule)

    rows = _rows(model, spec, group_of)
    if spec.kind == "adamw":
        return _fused(rows, spec)
    if spec.kind == "lamb":
        return update_rules.Together(update_rules.lamb(rows, spec))
    hidden, rest = ([row for row in rows if (row["rule"] == "muon") is chosen] for chosen in (True, False))
    return update_rules.Together(update_rules.muon(hidden, spec), _fused(rest, spec))


def generator_alone(model: nn.Module) -> set[int]:
    """Return the ids (of Python objects) of the parameters that belong to the model's `generator` and no other part."""
    shared = {id(p) for name, part in model.named_children() if name != "generator" for p in part.parameters()}
    shared |= {id(p) for p in model.parameters(recurse=False)}
    return {id(p) for name, part in model.named_children() if name == "generator" for p in part.parameters()} - shared


# Weights without weight decay. The released code has one list of names for pre-training and fine-tuning: LayerNorm,
# layer_norm and bias (`AdamWeightDecayOptimizer`), to which GPT-2's names of its norms are added. Encoders from
# elsewhere may have other names, so fine-tuning uses shapes. For every encoder that is pre-trained here, both rules
# exempt the same weights. XLNet's biases of attention queries (r_w_bias ...) are matrices, and decay as in its code.
NORMS_OF_GPT2 = ("ln_1", "ln_2", "ln_f")


def exempt(name: str) -> bool:
    """Return whether a weight has no decay by the released rule, used in pre-training: if it is a bias or of a norm."""
    last = name.split(".")[-2:]
    return last[-1] == "bias" or any("norm" in part.lower() or part in NORMS_OF_GPT2 for part in last)


def is_vector(weight: nn.Parameter) -> bool:
    """Return whether a weight has at most one dimension, like biases and norms (the rule for any encoder)."""
    return weight.ndim <= 1


def set_rate(optimizer: torch.optim.Optimizer, spec: OptimSpec, rate: float, step: int) -> dict[str, float]:
    """Set the learning rates of `step`, counted from 1, and return them for the log; `rate` is that of the encoder.

    Without bias correction (released code) torch's own correction in AdamW is cancelled. With c1 = 1 - beta1^t and
    c2 = 1 - beta2^t, torch's update lr/c1 * m / (sqrt(v/c2) + eps) equals rate * m / (sqrt(v) + eps) if lr is
    rate * c1 / sqrt(c2) and epsilon is divided by sqrt(c2). Weight decay, lr * wd * w, is divided by the factor of lr.
    LAMB has no correction of its own, so that the same is done the other way round with one; where its update is
    scaled to the norm of the weights, the factor of lr cancels out and is left out. Muon has no second moment.
    """
    root = math.sqrt(1 - spec.beta2**step)
    factor = (1 - spec.beta1**step) / root
    rates = {"learning_rate": rate}
    for group in optimizer.param_groups:
        own = rate * group["ratio"]
        if group["rule"] == "muon" or spec.bias_correction == (group["rule"] == "adamw"):
            value = own  # the update rule itself does what `bias_correction` says
        elif group["rule"] == "adamw":
            value, group["eps"], group["weight_decay"] = own * factor, spec.eps / root, group["decay"] / factor
        else:
            value = own / factor if group["adam"] else own
            group["eps"], group["weight_decay"] = spec.eps * root, group["decay"] * factor
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(value)
        else:
            group["lr"] = value
        if group["generator"]:
            rates["generator_learning_rate"] = own
    return rates
