"""A training step on a GPU as a CUDA graph: recorded once, and then launched as a whole.

A step of a small encoder consists of a thousand kernels of a few microseconds, and launching them one by one from
Python takes many times longer than computing them. The kernels are the same either way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar

import torch
from torch import Tensor

from workbench.memory import is_memory
from workbench.tensors import Batch

log = logging.getLogger("workbench")
# Steps that are launched kernel by kernel before one is recorded. In these, autograd and the optimizer allocate what
# they keep, and code is compiled, which cannot be done while a step is recorded.
RECORDED_AFTER = 3
Facts = TypeVar("Facts")
Compute = Callable[[Batch], tuple[Facts, Tensor]]


def own_stream(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which a GPU works in a stream other than the default one, which cannot be recorded."""
    return torch.cuda.stream(torch.cuda.Stream(device)) if device.type == "cuda" else nullcontext()


def on_device(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Move the learning rates to the device, where recorded steps read them, since they differ from step to step."""
    for group in optimizer.param_groups:
        group["lr"], group["capturable"] = torch.tensor(float(group["lr"]), device=device), True


class Recorded(Generic[Facts]):
    """A whole training step as a CUDA graph, for batches of one shape that have the same fields.

    `compute` returns facts that are the same for every step, and the step's numbers (n,). Raises RuntimeError if a
    step of this kind cannot be recorded, such as one that waits for the device.
    """

    def __init__(self, compute: Compute[Facts], batch: Batch) -> None:
        self.batch = Batch(**{name: tensor.clone() for name, tensor in batch.tensors().items()})
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=torch.cuda.current_stream()):
            self.facts, self.numbers = compute(self.batch)

    def __call__(self, batch: Batch) -> tuple[Facts, Tensor]:
        """Carry out the step with `batch`, which is on the CPU or the GPU; return its facts and its numbers (n,)."""
        given = batch.tensors()
        for name, own in self.batch.tensors().items():
            own.copy_(given[name], non_blocking=True)
        self.graph.replay()
        return self.facts, self.numbers.clone()


def record(compute: Compute[Facts], batch: Batch) -> Recorded[Facts] | None:
    """Record a step; return None, with a warning that says why, if it cannot be recorded."""
    try:
        return Recorded(compute, batch)
    except RuntimeError as error:
        # The generator still counts on being recorded, and would refuse to draw; a state of its own replaces that.
        generator = torch.cuda.default_generators[batch.ids.device.index or 0]
        generator.graphsafe_set_state(torch.Generator(batch.ids.device).graphsafe_get_state())
        why = "memory ran out" if is_memory(error) else str(error).strip().partition("\n")[0]
        log.warning(
            "the training step cannot be recorded as a CUDA graph, so each step is launched kernel by kernel, "
            "which is slower: %s",
            why,
        )
        return None
