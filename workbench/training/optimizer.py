"""AdamW and its learning rate (docs/electra.md 4; released code: `model/optimization.py`)."""

from __future__ import annotations

import math

import torch
from torch import nn

from workbench.spec.parts import OptimSpec
from workbench.spec.run_spec import RunSpec
from workbench.training.plan import Plan


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
    """Return AdamW over everything at once; biases and layer norms are not decayed, embeddings are (docs/electra.md 4).

    Where the generator has a rate of its own, its weights are in groups of their own. Each group says what it is:
    `decay` of its weights, and the `ratio` of its rate to `spec.lr`.
    """
    own = generator_alone(model) if spec.generator_lr is not None else set()
    kinds: dict[tuple[bool, bool], list[nn.Parameter]] = {(False, False): [], (False, True): []}
    for name, parameter in model.named_parameters():
        kinds.setdefault((id(parameter) in own, exempt(name)), []).append(parameter)
    groups = []
    for (is_generator, spared), parameters in kinds.items():
        decay = 0.0 if spared else spec.weight_decay
        ratio = spec.generator_lr / spec.lr if is_generator and spec.generator_lr is not None else 1.0
        groups.append({"params": parameters, "lr": spec.lr * ratio, "weight_decay": decay, "decay": decay,
                       "ratio": ratio, "generator": is_generator})  # fmt: skip
    return torch.optim.AdamW(groups, betas=(spec.beta1, spec.beta2), eps=spec.eps, fused=True)


def generator_alone(model: nn.Module) -> set[int]:
    """Return the ids of the parameters that only the model's `generator` owns, and no other part of the model."""
    shared = {id(p) for name, part in model.named_children() if name != "generator" for p in part.parameters()}
    shared |= {id(p) for p in model.parameters(recurse=False)}
    return {id(p) for name, part in model.named_children() if name == "generator" for p in part.parameters()} - shared


def exempt(name: str) -> bool:
    """Whether a parameter of this name is not decayed: the released rule is LayerNorm, layer_norm and bias."""
    last = name.split(".")[-2:]
    return name.endswith("bias") or any("norm" in part.lower() for part in last)


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
