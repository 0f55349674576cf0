"""The denominators of a step's means, which are known before the gradients of its first micro-batch are computed.

The gradient of a sum of means, such as a loss over picked tokens plus a loss over rows, is the sum of the gradients of
its micro-batches only if each of these divides by the denominators of the whole step. Nearly always they follow from
the rows alone, as the number of picked tokens does, and are computed without any encoder (`Hollow`); what depends on
weights, such as the number of tokens that a generator replaced, takes a forward pass of each micro-batch.
"""

from __future__ import annotations

import copy
import logging
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from workbench.errors import InputError
from workbench.models.encoder import Encoder
from workbench.models.heads import MlmHead
from workbench.tensors import Batch

log = logging.getLogger("workbench")


class Hollow:
    """A copy of an objective whose weights have shapes and no values, and whose buffers are those of the original.

    Its forward pass computes at little cost what does not depend on weights.
    """

    def __init__(self, objective: nn.Module) -> None:
        self.known: dict[Any, Any] = {}
        memo: dict[int, Any] = {id(each): each for each in objective.buffers()}
        memo |= {id(w): nn.Parameter(w.detach().to("meta"), w.requires_grad) for w in objective.parameters()}
        try:
            self.objective: nn.Module | None = copy.deepcopy(objective, memo)
        except Exception:  # of an objective of the user that holds an open file, for example
            self.objective = None
            return
        for part in self.objective.modules():
            if isinstance(part, Encoder):
                part.hollow = True
            elif isinstance(part, MlmHead):
                part.plain = True  # our kernels read values

    def denominators(self, batch: Batch) -> Tensor | None:
        """Return `StepLoss.denominators` (n,) of a batch; None, now and later, if they depend on weights."""
        if self.objective is None:
            return None
        try:
            with torch.no_grad(), _Shapes(self.known):
                found: Tensor = self.objective(batch).denominators(batch.ids.device)
            if not found.is_meta:
                return found
            why = "they depend on weights"
        except InputError:
            raise
        except Exception as error:  # whatever cannot do without values
            why = str(error).strip().partition("\n")[0] or type(error).__name__
        log.warning(
            "the denominators of this objective's means do not follow from the rows alone, so a step in several "
            "micro-batches takes one more forward pass, about a third more time: %s",
            why,
        )
        self.objective = None
        return None


class _Shapes(TorchDispatchMode):
    """Compute only shapes of what depends on meta tensors, and all else as usual.

    `known` keeps the results of operations on meta tensors by operation and arguments, since torch takes longer for
    their shapes than for a small sum.
    """

    def __init__(self, known: dict[Any, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.known = known

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        if not any(isinstance(each, Tensor) and each.is_meta for each in leaves):
            if torch.Tag.nondeterministic_seeded in func.tags:  # micro-batches draw other numbers
                raise NotImplementedError("torch draws random numbers for them")
            return func(*args, **kwargs)
        if func._schema.is_mutable:
            raise NotImplementedError("a tensor is changed in place by one that depends on weights")
        key = (func, *kwargs, *map(_facts, leaves))
        if key not in self.known:
            args, kwargs = tree_map_only(Tensor, lambda each: each.to("meta"), (args, kwargs))
            self.known[key] = func(*args, **kwargs)
        return tree_map_only(Tensor, Tensor.detach, self.known[key])  # autograd takes the same tensor only once


def _facts(argument: Any) -> tuple[Any, ...]:
    """Return what the shape of an operation's result may depend on."""
    if isinstance(argument, Tensor):
        return argument.shape, argument.stride(), argument.dtype
    return type(argument), argument
