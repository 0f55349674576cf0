"""Update rules besides AdamW, with the contract of torch's fused AdamW: Muon and LAMB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from workbench.spec.parts import OptimSpec


class Together(torch.optim.Optimizer):
    """Several optimizers as one, each with its own weights, which steps as torch's fused AdamW does.

    Before a step, gradients are divided by `grad_scale` (), and if `found_inf` () is not 0, no weight changes. To look
    at it, each step waits for the device, which the fused AdamW alone does not.
    """

    found_inf: Tensor | None = None
    grad_scale: Tensor | None = None

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})
        for part in parts:
            part.state = self.state
        own_groups, part_groups = self.param_groups, [group for part in parts for group in part.param_groups]
        assert all(
            one is other for one, other in zip(own_groups, part_groups, strict=True)
        )  # so that rates reach the parts

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


def muon(rows: list[dict[str, Any]], spec: OptimSpec) -> torch.optim.Optimizer:
    """Return Muon over parameter groups of matrices.

    Updates are scaled by 0.2 sqrt(max(rows, columns)), with which learning rate and weight decay of AdamW apply (Liu et
    al. 2025, "Muon is scalable for LLM training", section 2.2). Momentum is 0.95 with Nesterov's step, as in torch.
    """
    return torch.optim.Muon(rows, lr=spec.lr, adjust_lr_fn="match_rms_adamw")


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
