"""Weights, gradients and moments split over the processes of a run, by torch's FSDP2 (`fully_shard`).

Between steps each process holds its part of every weight and moment. In a step it gathers the weights of one layer
after another, and keeps its part of their gradients; tables, heads and what else is outside of layers are gathered for
the whole step, as are layers whose weights are read without calling them (`layers_of`). Computation in bf16 is that of
one device, by autocast over weights in fp32, and not FSDP2's own policy, which would compute norms in bf16 too.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from workbench.cpu.designs import is_known
from workbench.models.encoder import Encoder
from workbench.models.families import family_of
from workbench.training.resume import MOMENTS, tensors_of

Groups = dict[str, dict[str, Tensor]]


def split(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Split the weights of process 0, and the moments, which all processes have alike, over the processes in place.

    Dropping the whole moments frees their memory. The optimizer keeps its groups.
    """
    before = dict(model.named_parameters())
    for weight in before.values():
        dist.broadcast(weight.data, 0)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer in layers_of(model, device):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    after = dict(model.named_parameters())
    part_of = {id(before[name]): after[name] for name in before}
    for group in optimizer.param_groups:
        group["params"] = [part_of[id(weight)] for weight in group["params"]]
    for name, weight in before.items():
        state = optimizer.state.pop(weight, None)
        if state:
            optimizer.state[after[name]] = {key: _like(value, after[name]) for key, value in state.items()}


def layers_of(model: nn.Module, device: torch.device) -> list[nn.Module]:
    """Return the layers of all encoders whose forward pass calls them, each once.

    Encoders that our own kernels compute, XLNet, and query streams read the weights of layers instead, and ALBERT has
    one layer.
    """
    encoders = [part for part in model.modules() if isinstance(part, Encoder)]
    calling = [each for each in encoders if not (each.predicts_by_query or reads_layers(each, device))]
    stacks = [next(part for part in each.model.modules() if isinstance(part, nn.ModuleList)) for each in calling]
    return list(dict.fromkeys(layer for stack in stacks if len(stack) > 1 for layer in stack))


def reads_layers(encoder: Encoder, device: torch.device) -> bool:
    """Return whether an encoder computes with the weights of its layers without calling these on this device."""
    kernels = device.type == "cpu" and is_known(encoder.model.config)
    return family_of(encoder.spec).distances or kernels


def _like(moment: Any, weight: Any) -> Any:
    """Return this process's part of a moment, which is split as its weight is; counts of steps stay whole."""
    if not isinstance(moment, Tensor) or moment.shape != weight.shape:
        return moment
    return distribute_tensor(moment.to(weight.device), weight.device_mesh, weight.placements)


def parts(model: nn.Module, optimizer: torch.optim.Optimizer) -> Groups:
    """Return this process's parts of weights and moments, for a checkpoint.

    What is not split, such as counts of steps, is of the first process alone; parts without rows are left out.
    """
    return {
        group: {
            name: tensor.to_local() if isinstance(tensor, DTensor) else tensor
            for name, tensor in tensors.items()
            if (tensor.to_local().numel() if isinstance(tensor, DTensor) else dist.get_rank() == 0)
        }
        for group, tensors in tensors_of(model, optimizer).items()
    }


def offsets(model: nn.Module) -> dict[str, list[int]]:
    """Return by name the index at which this process's part of each weight, and of its moments, begins."""
    found: dict[str, list[int]] = {}
    for name, weight in model.named_parameters():
        assert isinstance(weight, DTensor)
        _, start = compute_local_shape_and_global_offset(weight.shape, weight.device_mesh, weight.placements)
        found[name] = list(start)
        found |= {f"{name}.{key}": [] if key == "step" else list(start) for key in MOMENTS}
    return found


def gathered(model: nn.Module, keep: bool) -> dict[str, Tensor]:
    """Return whole weights by name on the CPU; {} unless `keep`.

    All processes must call this at the same time, since each has a part.
    """
    weights = {}
    for name, weight in model.named_parameters():
        value = whole(weight.detach())
        if keep:
            weights[name] = value.cpu()
    return weights


def whole(tensor: Tensor) -> Tensor:
    """Gather a tensor from its parts in all processes, which must all call this at the same time."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
