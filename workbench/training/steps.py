"""Training steps: losses, gradients, and the update of the weights.

Paper: section 3.1 and table 6; released code: `model/optimization.py` (docs/electra.md 4).
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from workbench.data.corpus import Corpus
from workbench.errors import InputError, is_memory
from workbench.models.encoder import Encoder
from workbench.models.heads import MlmHead
from workbench.rng import seed_of
from workbench.spec.host import Host
from workbench.spec.run_spec import RunSpec
from workbench.tensors import Batch, Ratio, StepLoss
from workbench.training.concurrent_runs import TURNS, own_generator
from workbench.training.distributed import ALONE, Ranks, whole

log = logging.getLogger("workbench")
Autocast = AbstractContextManager[Any]


class Steps:
    """The steps of a run.

    On a GPU a step is recorded after the first few, and then launched as a whole (`Recorded`), unless the rows of a
    step do not fit into memory at once, or an update has constants that differ from step to step, as without bias
    correction. `bad` () is 1 if gradients of any step so far were not finite; that step, and those after it, change no
    weights. If several processes compute the run, this one computes its part of the rows of each step (`ranks`).
    """

    def __init__(
        self, spec: RunSpec, corpus: Corpus, host: Host, device: torch.device, autocast: Autocast, model: nn.Module,
        optimizer: torch.optim.Optimizer, ranks: Ranks = ALONE,
    ) -> None:  # fmt: skip
        self.spec, self.corpus, self.device, self.autocast, self.optimizer = spec, corpus, device, autocast, optimizer
        self.ranks = ranks
        if host.compile and device.type == "cuda":
            # Else compiled code adds the gradients of a table's rows in another order in a resumed run. torch warns of
            # operations without a fixed order, such as additions at picked positions, which are distinct here.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # as torch's documentation says
            torch.use_deterministic_algorithms(True, warn_only=True)
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
            warnings.filterwarnings("ignore", ".*deterministic", UserWarning)
        if ranks.count > 1:
            set_aside_unused(model, corpus.batch(0, 1, device), autocast)
        given = compiled(model, device) if host.compile else model
        self.micro = host.rows_at_once(spec.batch.size)
        self.hollow = Hollow(model) if self.micro * ranks.count < spec.batch.size else None
        self.model = model
        self.forward = ranks.parallel(given, optimizer, device) if ranks.count > 1 else given
        self.parameters = list(model.parameters())
        self.bad = torch.zeros((), device=device)
        optimizer.found_inf = self.bad  # type: ignore[attr-defined]  # a step changes no weights if this is 1
        self.recordable = is_recordable(spec, host)
        if self.recordable:
            on_device(optimizer, device)
        self.recorded: Recorded | None = None
        self.taken = 0

    def take(self, step: int) -> tuple[Sums, Tensor]:
        """Take a step; return its losses and metrics by name, and their values (n,) on the device in that order.

        If memory runs out, the whole step is computed again in smaller micro-batches, down to single rows, unless other
        processes wait for this one's gradients. The rows, random numbers, losses and gradients of a step do not depend
        on the size of micro-batches, except for dropout inside layers, so that without dropout only rounding differs.
        """
        self.taken += 1
        if self.recordable and self.micro == self.spec.batch.size and self.taken > RECORDED_AFTER:
            batch = self._batch(step, 0, self.micro)
            if self.recorded is None:
                self.recorded = record(self._whole, batch)
                self.recordable = self.recorded is not None
            if self.recorded is not None:
                return self.recorded(batch)
        while True:
            try:
                sums = self.gradients(step)
                break
            except (RuntimeError, MemoryError) as error:
                if self.micro == 1 or self.ranks.count > 1 or not is_memory(error):
                    raise
            # Outside the handler, since the traceback refers to the tensors that filled the memory.
            smaller = next(rows for rows in range(self.micro // 2, 0, -1) if self.spec.batch.size % rows == 0)
            log.warning("out of memory at step %d with %d rows at once; continuing with %d", step, self.micro, smaller)
            self.micro = smaller
            self.hollow = self.hollow or Hollow(self.model)
            self.forward.zero_grad(set_to_none=True)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        numbers = sums.stacked(self._update())
        self.ranks.add(numbers[1:])  # numbers[0], the gradient norm, is already of the averaged gradients
        return sums, numbers

    def gradients(self, step: int) -> Sums:
        """Accumulate the gradients of a step over micro-batches, and return its losses and metrics.

        The losses and metrics are what this process's rows add to the losses and metrics of the step. The gradients are
        the gradients of all rows, since the processes average them in the backward pass of the last micro-batch. Each
        loss is multiplied by the number of processes, which turns this average into the sum. Means are over the whole
        step: their denominators are added up over micro-batches and processes before the first backward pass.
        """
        ranks, micro, whole_step = self.ranks, self.micro, self.spec.batch.size
        sums, rows = Sums(micro), whole_step // ranks.count
        first = ranks.index * rows
        denominators, expected, counted = None, None, []
        if micro < rows:
            expected = self._denominators(step, first, rows)
            ranks.add(denominators := expected.clone())
        for start in range(first, first + rows, micro):
            batch = self._batch(step, start, micro)
            with without_gradient_sync(self.forward, ranks) if start + micro < first + rows else nullcontext():
                with self.autocast:
                    loss: StepLoss = self.forward(batch)
                loss.check_names("the objective")
                if micro < whole_step:
                    counted.append(loss.denominators(self.device))
                    if denominators is None:
                        ranks.add(denominators := counted[0].clone())
                    values = loss.of_step(denominators)
                else:
                    values = loss.values()
                (values["loss"] * ranks.count).backward()
            sums.add(values, loss.metrics)
        # Rounding may turn a few sampled tokens between two passes, so only more than a tenth is an error.
        if expected is not None and not torch.allclose(torch.stack(counted).sum(0), expected, rtol=0.1, atol=2):
            raise InputError(
                "the losses of this objective are means over other tokens when the same rows are computed again, so "
                "they cannot be added up from micro-batches; draw random numbers with workbench.rng.uniform("
                "batch.keys, ...), keep nothing between calls of forward, or compute each step in one piece, without "
                "--micro-batch"
            )
        return sums

    def _denominators(self, step: int, first: int, rows: int) -> Tensor:
        """Return the denominators (n,) of the means of a step over `rows` rows from row `first` on.

        Those that depend on weights, such as the number of tokens that a generator replaced, take a forward pass of
        each micro-batch, with the random numbers of the pass that follows.
        """
        if self.hollow is not None:
            of_rows = self.hollow.denominators(self._batch(step, first, rows))
            if of_rows is not None:
                return of_rows
        with torch.no_grad(), self.autocast:
            batches = (self._batch(step, start, self.micro) for start in range(first, first + rows, self.micro))
            return torch.stack([self.forward(batch).denominators(self.device) for batch in batches]).sum(0)

    def _batch(self, step: int, start: int, rows: int) -> Batch:
        """Return rows of a step from row `start` on, after seeding dropout for them."""
        batch = self.corpus.batch((step - 1) * self.spec.batch.size + start, rows, self.device)
        torch.manual_seed(seed_of(self.spec.seed, "dropout", step, start))
        return batch

    def _whole(self, batch: Batch) -> tuple[Sums, Tensor]:
        """Take a step with all of its rows at once."""
        with self.autocast:
            loss: StepLoss = self.forward(batch)
        loss.check_names("the objective")
        loss.total.backward()
        sums = Sums(self.micro)
        sums.add(loss.values(), loss.metrics)
        return sums, sums.stacked(self._update())

    def _update(self) -> Tensor:
        """Change the weights by their gradients, clear these, and return their norm ()."""
        norm, largest = whole(total_norm(self.parameters)), self.spec.optim.clip  # 0 sets no limit
        scale = ((norm + 1e-6) / largest).clamp(min=1) if largest else torch.ones_like(norm)  # as `clip_grad_norm_`
        self.optimizer.grad_scale = scale  # type: ignore[attr-defined]  # a step divides gradients by it
        torch.maximum(self.bad, (~torch.isfinite(norm)).float(), out=self.bad)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm


def compiled(model: nn.Module, device: torch.device) -> Any:
    """Return the model as torch's compiler computes it; on a GPU, one launch computes several independent kernels."""
    return torch.compile(model, fullgraph=True, options={"combo_kernels": True} if device.type == "cuda" else None)


def is_recordable(spec: RunSpec, host: Host) -> bool:
    """Return whether the steps of a run are recorded on this host, if its objective and the memory allow it.

    Without bias correction, epsilon changes from step to step; Muon and LAMB wait for the device. Recording a step that
    exchanges gradients with other devices was not tried.
    """
    same_each_time = spec.optim.bias_correction and spec.optim.kind == "adamw"
    on_one_gpu = host.resolved_device().startswith("cuda") and host.devices == 1
    return on_one_gpu and not host.plain and same_each_time


def set_aside_unused(model: nn.Module, batch: Batch, autocast: Autocast) -> None:
    """Let weights without a gradient require none, for which processes would wait; `batch` is any training row."""
    with autocast:
        loss: StepLoss = model(batch)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    for weight, gradient in zip(
        weights, torch.autograd.grad(loss.values()["loss"], weights, allow_unused=True), strict=True
    ):
        weight.requires_grad_(gradient is not None)


@contextlib.contextmanager
def without_gradient_sync(forward: Any, ranks: Ranks) -> Iterator[None]:
    """Add gradients up in this process in the block, without exchanging them with others."""
    with forward.no_sync() if ranks.count > 1 and not ranks.sharded else nullcontext():
        if ranks.sharded:
            forward.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            if ranks.sharded:
                forward.set_requires_gradient_sync(True)


def total_norm(parameters: list[nn.Parameter]) -> Tensor:
    """Return the 2-norm () of all gradients taken as one vector."""
    gradients = [weight.grad for weight in parameters if weight.grad is not None]
    return nn.utils.get_total_norm(gradients, foreach=True)


@dataclass
class Sums:
    """Losses and metrics of one step, summed over its micro-batches of `micro` rows, as tensors () on the device."""

    micro: int
    values: dict[str, Tensor] = field(default_factory=dict)
    ratios: dict[str, Ratio] = field(default_factory=dict)

    def add(self, values: dict[str, Tensor], metrics: dict[str, Ratio]) -> None:
        """Add what a micro-batch adds to the losses and metrics of the step."""
        for name, value in values.items():
            self.values[name] = self.values.get(name, 0.0) + value.detach().float()
        for name, (hits, among) in metrics.items():
            old = self.ratios.get(name, (0.0, 0.0))
            self.ratios[name] = (old[0] + hits, old[1] + among)

    def stacked(self, norm: Tensor) -> Tensor:
        """Return the norm () of the gradients, the losses, and both parts of each ratio, as one tensor (n,)."""
        return torch.stack([norm.float(), *self.values.values(), *(x.float() for r in self.ratios.values() for x in r)])


# ----------------------------------------
# The denominators of a step's means, which are known before the gradients of its first micro-batch are computed.
#
# The gradient of a sum of means, such as a loss over picked tokens plus a loss over rows, is the sum of the gradients
# of its micro-batches only if each of these divides by the denominators of the whole step. Nearly always they follow
# from the rows alone, as the number of picked tokens does, and are computed without any encoder (`Hollow`); what
# depends on weights, such as the number of tokens that a generator replaced, takes a forward pass of each micro-batch.


class Hollow:
    """A copy of an objective with weights on the meta device (shapes only), which shares the original's buffers.

    Its forward pass computes, at little cost, everything that does not depend on weights.
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
    """Compute only shapes for operations on meta tensors, and run all other operations as usual.

    `known` caches the results on meta tensors by operation and arguments, since torch's shape inference is slow.
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
            raise NotImplementedError("an operation on weights changes a tensor in place")
        key = (func, *kwargs)  # and all that the shape of the result may depend on
        for each in leaves:
            key += (each.shape, each.stride(), each.dtype) if isinstance(each, Tensor) else (type(each), each)
        if key not in self.known:
            args, kwargs = tree_map_only(Tensor, lambda each: each.to("meta"), (args, kwargs))
            self.known[key] = func(*args, **kwargs)
        return tree_map_only(Tensor, Tensor.detach, self.known[key])  # autograd needs a new tensor for each result


# ----------------------------------------
# A training step on a GPU as a CUDA graph: recorded once, and then launched as a whole.
#
# A step of a small encoder consists of a thousand kernels of a few microseconds, and launching them one by one from
# Python takes many times longer than computing them. The kernels are the same either way.


# Steps that are launched kernel by kernel before one is recorded. In these, autograd and the optimizer allocate what
# they keep, and code is compiled, which cannot be done while a step is recorded.
RECORDED_AFTER = 3
Compute = Callable[[Batch], tuple[Any, Tensor]]


def on_device(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Move the learning rates to the device, where recorded steps read them, since they differ from step to step."""
    for group in optimizer.param_groups:
        group["lr"], group["capturable"] = torch.tensor(float(group["lr"]), device=device), True


class Recorded:
    """A whole training step as a CUDA graph, for batches of one shape that have the same fields.

    `compute` returns facts that are the same for every step, and the step's numbers (n,). Raises RuntimeError if a
    step of this kind cannot be recorded, such as one that waits for the device.
    """

    def __init__(self, compute: Compute, batch: Batch) -> None:
        self.batch = Batch(**{name: tensor.clone() for name, tensor in batch.tensors().items()})
        self.graph = torch.cuda.CUDAGraph()
        strict = "global" if TURNS.get() is None else "thread_local"  # whose calls may not disturb the recording
        with (
            own_generator(batch.ids.device) as self.generator,
            torch.cuda.graph(self.graph, stream=torch.cuda.current_stream(), capture_error_mode=strict),
        ):
            self.facts, self.numbers = compute(self.batch)

    def __call__(self, batch: Batch) -> tuple[Any, Tensor]:
        """Carry out the step with `batch`, which is on the CPU or the GPU; return its facts and its numbers (n,)."""
        given = batch.tensors()
        for name, own in self.batch.tensors().items():
            own.copy_(given[name], non_blocking=True)
        if self.generator is not None:
            self.generator.manual_seed(torch.initial_seed())  # this step's seed
        self.graph.replay()
        return self.facts, self.numbers.clone()


def record(compute: Compute, batch: Batch) -> Recorded | None:
    """Record a step; return None, with a warning that says why, if it cannot be recorded."""
    try:
        return Recorded(compute, batch)
    except RuntimeError as error:
        # The random generator is still in its recording state, in which torch draws nothing: give it a fresh state.
        generator = torch.cuda.default_generators[batch.ids.device.index or 0]
        generator.graphsafe_set_state(torch.Generator(batch.ids.device).graphsafe_get_state())
        why = "memory ran out" if is_memory(error) else str(error).strip().partition("\n")[0]
        log.warning(
            "the training step cannot be recorded as a CUDA graph, so each step is launched kernel by kernel, "
            "which is slower: %s",
            why,
        )
        return None
