"""The optimizer and its learning rate, for pre-training and fine-tuning (docs/electra.md 4 and 5)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from workbench.models.encoder import Encoder
from workbench.models.families import Family, decays
from workbench.spec.parts import OptimSpec, ScheduleSpec


def lr_factor(step: int, steps: int, warmup: int, schedule: ScheduleSpec) -> float:
    """Return the learning rate at `step` (from 0) of `steps` as a fraction of its peak; `warmup` is in steps.

    If the run ends after a share of its schedule (`until`), `steps` counts the run's steps, not the schedule's.

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

    Weight decay applies to all weights, embeddings included, except biases and layer norms; the family of an encoder
    may exempt others, and scale their learning rates. If the generator has its own learning rate, its weights are in
    separate groups.
    """
    own = generator_alone(model) if spec.generator_lr is not None else set()
    ratio = spec.generator_lr / spec.lr if spec.generator_lr is not None else 1.0
    others = matrices(model) if spec.kind == "muon" else set()
    of_encoders: dict[int, tuple[Family, str]] = {}  # family, and name within the encoder, by the id of a weight
    for part in model.modules():
        if isinstance(part, Encoder):
            for name, weight in part.model.named_parameters():
                of_encoders[id(weight)] = part.family, name

    def group_of(name: str, weight: nn.Parameter) -> Group:
        rule = spec.kind if spec.kind != "muon" or id(weight) in others else "adamw"
        alone = id(weight) in own
        family, inner = of_encoders.get(id(weight), (None, name))
        decayed = decays(name, weight) if family is None else family.decays(inner, weight)
        factor = family.rate(inner, weight) if family is not None and family.rate is not None else 1.0
        return Group(decayed, factor * (ratio if alone else 1.0), generator=alone, rule=rule)

    rows = _rows(model, spec, group_of)
    if spec.kind == "adamw":
        return _fused(rows, spec)
    if spec.kind == "lamb":
        return Together(lamb(rows, spec))
    hidden, rest = ([row for row in rows if (row["rule"] == "muon") is chosen] for chosen in (True, False))
    # Updates are scaled by 0.2 sqrt(max(rows, columns)), with which learning rate and weight decay of AdamW apply (Liu
    # et al. 2025, "Muon is scalable for LLM training", section 2.2). Momentum is 0.95 with Nesterov's step as in torch.
    return Together(torch.optim.Muon(hidden, lr=spec.lr, adjust_lr_fn="match_rms_adamw"), _fused(rest, spec))


def generator_alone(model: nn.Module) -> set[int]:
    """Return the ids (of Python objects) of the parameters that belong to the model's `generator` and no other part."""
    shared = {id(p) for name, part in model.named_children() if name != "generator" for p in part.parameters()}
    shared |= {id(p) for p in model.parameters(recurse=False)}
    return {id(p) for name, part in model.named_children() if name == "generator" for p in part.parameters()} - shared


# Weights without weight decay. The released code has one list of names for pre-training and fine-tuning: LayerNorm,
# layer_norm and bias (`AdamWeightDecayOptimizer`), to which a family may add others (`Family.decays`). Encoders from
# elsewhere may have other names, so fine-tuning uses shapes. For every built-in family, both rules exempt the same
# weights. XLNet's biases of attention queries (r_w_bias ...) are matrices, and decay as in its code.


def set_rate(optimizer: torch.optim.Optimizer, spec: OptimSpec, rate: float, step: int) -> dict[str, float]:
    """Set the learning rates of `step`, counted from 1, and return them for the log; `rate` is the encoder's rate.

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


# ----------------------------------------
# Update rules besides AdamW, with the contract of torch's fused AdamW: Muon and LAMB.


class Together(torch.optim.Optimizer):
    """Several optimizers as one; each step waits for the device to look at `found_inf`, unlike torch's fused AdamW."""

    found_inf: Tensor | None = None
    grad_scale: Tensor | None = None

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})
        for part in parts:
            part.state = self.state
        groups = [group for part in parts for group in part.param_groups]
        assert all(map(operator.is_, self.param_groups, groups)), "rates would not reach the parts"

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all weights; `closure` is not used."""
        if self.found_inf is not None and self.found_inf.item():
            return
        if self.grad_scale is not None:
            weights = [weight for group in self.param_groups for weight in group["params"]]
            torch._foreach_div_([weight.grad for weight in weights if weight.grad is not None], self.grad_scale)
        for part in self.parts:
            part.step()


def matrices(model: nn.Module) -> set[int]:
    """Return the ids (of Python objects) of the weights that Muon updates: matrices except embeddings.

    Vectors, and matrices of one row or column such as the output of a detection head, are left to AdamW as well (Jordan
    et al. 2024, "Muon: an optimizer for hidden layers in neural networks"), and so are XLNet's biases of attention
    queries and its projections of attention, which have three dimensions.
    """
    tables = {id(p) for part in model.modules() if isinstance(part, nn.Embedding) for p in part.parameters()}
    named = ((name, p) for name, p in model.named_parameters() if p.ndim == 2 and min(p.shape) > 1)
    return {id(p) for name, p in named if not name.endswith("_bias") and id(p) not in tables}


def lamb(rows: list[dict[str, Any]], spec: OptimSpec) -> torch.optim.Optimizer:
    """Return LAMB (You et al. 2020, "Large batch optimization for deep learning", algorithm 2) over parameter groups.

    Weight decay is part of the update that is scaled to the norm of the weights. As in the released code of ALBERT
    (`lamb_optimizer.py`), biases and norms, which have no weight decay, are not scaled, and norms are not bounded.
    """
    from pytorch_optimizer import Lamb

    for row in rows:
        row["adam"] = not row["decayed"]
    betas = (spec.beta1, spec.beta2)
    # Without `adam_debias` the package divides the learning rate by 1 - beta1^t, which is in no version of LAMB.
    optimizer: Any = Lamb(rows, lr=spec.lr, betas=betas, eps=spec.eps, weight_decouple=False, adam_debias=True)
    optimizer.clamp = torch.inf
    return optimizer  # type: ignore[no-any-return]
