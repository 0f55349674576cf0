"""AdamW and its learning rate (docs/electra.md 4; released code: `model/optimization.py`)."""

from __future__ import annotations

import math

import torch
from torch import nn

from workbench.parts import OptimSpec
from workbench.plan import Plan
from workbench.spec import RunSpec


def lr_factor(step: int, plan: Plan, spec: RunSpec) -> float:
    """Learning rate over its peak at 0-based `step`.

    Linear: warm-up, then decay to 0. With `overlap` both at once, as released: (1 - t/T) * min(1, t/warm-up), from 0.
    `wsd` stays at the peak until the last `decay` share of the run, then falls linearly.
    """
    steps, warmup = plan.steps, plan.warmup_steps
    if spec.schedule.overlap:
        rise = min(1.0, step / warmup) if warmup else 1.0
        return rise * (1 - step / steps)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if spec.schedule.kind == "constant":
        return 1.0
    if spec.schedule.kind == "wsd":
        falling = max(1, round(spec.schedule.decay * steps))
        return min(1.0, (steps - step) / (falling + 1))
    return (steps - step) / (steps - warmup)


def make_optimizer(model: nn.Module, spec: OptimSpec) -> torch.optim.AdamW:
    """AdamW over everything at once; biases and layer norms are not decayed, embeddings are (docs/electra.md 4)."""
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (plain if exempt(name) else decayed).append(parameter)
    assert len(decayed) + len(plain) == len(list(model.parameters()))
    groups = [{"params": decayed, "weight_decay": spec.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=spec.lr, betas=(spec.beta1, spec.beta2), eps=spec.eps, fused=True)


def exempt(name: str) -> bool:
    """Whether a parameter of this name is not decayed: the released rule is LayerNorm, layer_norm and bias."""
    last = name.split(".")[-2:]
    return name.endswith("bias") or any("norm" in part.lower() for part in last)


def set_rate(optimizer: torch.optim.Optimizer, spec: OptimSpec, rate: float, step: int) -> None:
    """This step's learning rate, 1-based.

    Without bias correction (released code) torch's own correction is undone: with c1 = 1 - beta1^t, c2 = 1 - beta2^t
    its update lr/c1 * m / (sqrt(v/c2) + eps) becomes rate * m / (sqrt(v) + eps) for lr = rate * c1 / sqrt(c2) and an
    epsilon over sqrt(c2); the decay lr * wd * w becomes rate * wd * w by the inverse factor.
    """
    factor, root = 1.0, 1.0
    if not spec.bias_correction:
        root = math.sqrt(1 - spec.beta2**step)
        factor = (1 - spec.beta1**step) / root
    for group, decay in zip(optimizer.param_groups, (spec.weight_decay, 0.0), strict=True):
        group["lr"], group["eps"], group["weight_decay"] = rate * factor, spec.eps / root, decay / factor
