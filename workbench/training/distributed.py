"""One run on several devices: each process computes a part of every batch, and torch averages the gradients.

The rows of a step, and the random numbers of each row, are those of one process, whatever the number of processes. So
only rounding differs, and dropout inside layers, which differs as it does between sizes of micro-batches.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.nn.parallel import DistributedDataParallel

from workbench.cpu.layers import is_known
from workbench.errors import RankLost
from workbench.models.encoder import Encoder
from workbench.training.checkpointing import MOMENTS, Parts, tensors_of

STOP, STEP, GATHER, SAVE = 0, 1, 2, 3  # what process 0 tells the others to do next

# What the messages of torch's own errors contain if another process of the group has ended, or does not answer.
SIGNS = ("gloo", "NCCL", "Connection closed", "Connection reset", "Timed out")


@dataclass(frozen=True)
class Ranks:
    """The processes that compute one run: this one's number `index` among `count`, and the group for its messages.

    Process 0 decides, writes and reports; the others compute their rows. `parallel`, `share` and `parts` are for
    several processes; with one, the other methods do nothing.
    `control` is a group over CPU memory, which does not wait for a GPU. If they are `sharded`, each holds a part of the
    weights and of the optimizer's moments. `store` has the keys of these processes, which wait `seconds`
    for each other.
    """

    index: int = 0
    count: int = 1
    control: Any = None
    sharded: bool = False
    store: Any = None
    seconds: float = 0.0

    def parallel(self, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> nn.Module:
        """Return the model, which averages its gradients over several processes; all get the weights of process 0."""
        if self.sharded:
            split(model, optimizer, device)
            return model
        with warnings.catch_warnings():  # of a new name of broadcast_buffers, which older versions do not have
            warnings.simplefilter("ignore", FutureWarning)
            return DistributedDataParallel(model, broadcast_buffers=False)

    def add(self, numbers: Tensor) -> None:
        """Replace numbers (n,) on the device by their sums over all processes."""
        if self.count > 1:
            dist.all_reduce(numbers)

    def total(self, numbers: Any) -> Any:
        """Return the sums of an array of numpy (n,) over all processes."""
        if self.count == 1:
            return numbers
        dist.all_reduce(summed := torch.from_numpy(numbers).clone(), group=self.control)
        return summed.numpy()

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the whole weights of a sharded model by name on the CPU; {} in processes other than the first.

        All processes call this at the same time, the others when GATHER is announced.
        """
        if self.index == 0:
            self.announce(GATHER)
        weights = {}
        for name, weight in model.named_parameters():
            value = whole(weight.detach())
            if self.index == 0:
                weights[name] = value.cpu()
        return weights

    def parts(self, model: nn.Module) -> Parts:
        """Return how the processes of a sharded run write checkpoints together."""
        offsets: dict[str, list[int]] = {}  # by name, where this process's part of each weight and its moments begins
        for name, weight in model.named_parameters():
            assert isinstance(weight, DTensor)
            _, start = compute_local_shape_and_global_offset(weight.shape, weight.device_mesh, weight.placements)
            offsets |= {name: list(start), **{f"{name}.{key}": list(start) for key in MOMENTS}, f"{name}.step": []}
        return Parts(self.store, self.index, self.count, offsets, self.seconds)

    def tensors(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Tensor]]:
        """Return the weights and moments that this process writes into a checkpoint, by group and name.

        If they are sharded, the others write theirs when SAVE is announced, as it is here. What is not split, such as
        counts of steps, is of the first process alone; parts without rows are left out.
        """
        groups = tensors_of(model, optimizer)
        if self.sharded and self.index == 0:
            self.announce(SAVE)
        for tensors in groups.values() if self.sharded else ():
            for name, tensor in list(tensors.items()):
                tensors[name] = part = tensor.to_local() if isinstance(tensor, DTensor) else tensor
                if not part.numel() or (self.index and not isinstance(tensor, DTensor)):
                    del tensors[name]
        return groups

    def announce(self, what: int) -> None:
        """Tell the other processes, from process 0, what to do next: STOP, STEP, GATHER or SAVE."""
        dist.broadcast(torch.tensor([what]), 0, group=self.control)

    def awaited(self) -> int:
        """Return what process 0 announces next."""
        word = torch.empty(1, dtype=torch.int64)
        dist.broadcast(word, 0, group=self.control)
        return int(word.item())

    @contextlib.contextmanager
    def leading(self) -> Iterator[None]:
        """Tell the other processes to stop when the block, in process 0, ends."""
        try:
            yield
        finally:
            with contextlib.suppress(RuntimeError):  # the others may have ended already
                self.announce(STOP)

    def share(self, model: nn.Module, optimizer: torch.optim.Optimizer, done: int) -> int:
        """Copy the moments of all weights from process 0 to the others, and return the steps that it has `done`."""
        names = dict(model.named_parameters())
        kept = [(name, key) for name, weight in names.items() for key in MOMENTS if key in optimizer.state[weight]]
        sizes = [(*each, optimizer.state[names[each[0]]][each[1]].shape) for each in kept]
        facts: list[Any] = [done, sizes]
        dist.broadcast_object_list(facts, 0, group=self.control)
        for name, key, size in facts[1]:
            weight = names[name]
            value = optimizer.state[weight][key].float().cpu() if self.index == 0 else torch.empty(size)
            dist.broadcast(value, 0, group=self.control)
            if self.index:
                optimizer.state[weight][key] = value.to(weight.device)
        return int(facts[0])


ALONE = Ranks()


def key_store(address: str, port: int, holds: bool, seconds: float) -> Any:
    """Return torch's store of keys at this address; the process that `holds` it serves the others, at port 0 at any."""
    return dist.TCPStore(  # type: ignore[attr-defined]
        address, port, None, is_master=holds, timeout=timedelta(seconds=seconds), wait_for_workers=False
    )  # fmt: skip


def part_of(store: Any, name: str) -> Any:
    """Return a part of a store, whose keys are apart from all others."""
    return dist.PrefixStore(name, store)  # type: ignore[attr-defined]


@contextlib.contextmanager
def group(store: Any, index: int, count: int, device: str, seconds: float, sharded: bool = False) -> Iterator[Ranks]:
    """Join the processes of a run through torch's `store` of keys, and leave them after the block.

    A collective that takes more than `seconds` is an error. Raises RankLost if another process ended, or did not answer
    in this time.
    """
    backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    patience = timedelta(seconds=seconds)
    with telling_of_loss():
        dist.init_process_group(backend, store=store, rank=index, world_size=count, timeout=patience)
        try:
            control = dist.new_group(backend="gloo", timeout=patience)
            yield Ranks(index, count, control, sharded, part_of(store, "checkpoints"), seconds)
        finally:
            dist.destroy_process_group()


@contextlib.contextmanager
def telling_of_loss() -> Iterator[None]:
    """Raise RankLost in place of torch's errors about a process that ended or does not answer."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or any(sign in str(error) for sign in SIGNS):
            raise RankLost(
                "another process of this run ended or did not answer; the same command goes on from the last checkpoint"
            ) from error
        raise


# ----------------------------------------
# Weights, gradients and moments split over the processes of a run, by torch's FSDP2 (`fully_shard`).
#
# Between steps each process holds its part of every weight and moment. In a step it gathers the weights of one layer
# after another, and keeps its part of their gradients; tables, heads and what else is outside of layers are gathered
# for the whole step, as are layers whose weights are read without calling them (`layers_of`). Computation in bf16 is
# that of one device, by autocast over weights in fp32, and not FSDP2's own policy, which would compute norms in bf16
# too.


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
        if state := optimizer.state.pop(weight, None):
            own: Any = after[name]
            for key, moment in state.items():  # counts of steps stay whole
                if isinstance(moment, Tensor) and moment.shape == own.shape:
                    state[key] = distribute_tensor(moment.to(own.device), own.device_mesh, own.placements)
            optimizer.state[own] = state


def layers_of(model: nn.Module, device: torch.device) -> list[nn.Module]:
    """Return the layers of all encoders whose forward pass calls them, each once.

    Encoders that our own kernels compute, XLNet, and query streams read the weights of layers instead, and ALBERT has
    one layer.
    """
    layers: dict[nn.Module, None] = {}
    for encoder in (part for part in model.modules() if isinstance(part, Encoder)):
        config = getattr(encoder.model, "config", None)
        kernels = device.type == "cpu" and not encoder.family.source and config is not None and is_known(config)
        if encoder.predicts_by_query or encoder.family.READS_LAYERS or kernels:
            continue
        for stack in [part for part in encoder.model.modules() if isinstance(part, nn.ModuleList)][:1]:
            layers |= dict.fromkeys(stack if len(stack) > 1 else ())
    return list(layers)


def whole(tensor: Tensor) -> Tensor:
    """Gather a tensor from its parts in all processes, which must all call this at the same time."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
