"""Training of an encoder together with a head, which every kind of fine-tuning shares.

Clark et al. 2020, table 7 and appendix; released code: `finetune/` and `configure_finetuning.py` (docs/electra.md 5).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from workbench import cpu
from workbench.errors import Diverged, Interrupted
from workbench.memory import forget_peak, peak_memory
from workbench.rng import seed_of
from workbench.signals import heed, stop_signals
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec
from workbench.tasks.finetuning.rates import layerwise_optimizer, optim_spec, schedule_spec
from workbench.tasks.finetuning.unfinished import Unfinished
from workbench.tasks.score import Effort, Progress
from workbench.training.checkpointing import due
from workbench.training.optimizer import lr_factor, set_rate
from workbench.training.plan import warmup_steps

LOOK = 50  # steps between checks that the loss is finite, each of which waits for the device


@dataclass(frozen=True)
class Setting:
    """Where one fine-tuning is computed: the task's name, the seed, the host and its device.

    `unfinished` is the place of its state if it can be interrupted and go on. `begun` is a time of `time.monotonic`.
    """

    task: str
    seed: int
    host: Host
    device: str
    unfinished: Unfinished | None
    begun: float

    def autocast(self) -> torch.autocast:
        """Return the context in which outputs are computed, in bfloat16 or in float32."""
        half = self.host.resolved_precision() == "bf16"
        return torch.autocast(self.device.partition(":")[0], torch.bfloat16, enabled=half)

    def effort(self, steps: int, earlier: float) -> Effort:
        """Return what the fine-tuning took by now; `earlier` is what `fit` returned."""
        return Effort(steps, earlier + time.monotonic() - self.begun, peak_memory(self.device))

    def order(self) -> int:
        """Return the seed of the order of the training rows."""
        return seed_of(self.seed, "finetune", self.task, "order")


@contextmanager
def setting(task: str, seed: int, host: Host, unfinished: Unfinished | None = None) -> Iterator[Setting]:
    """Prepare this process for a fine-tuning; within the block, torch's draws are a function of (seed, task)."""
    device = host.resolved_device()
    cpu.prepare(host.threads, host.plain, device)
    forget_peak(device)
    with torch.random.fork_rng([device] if device.startswith("cuda") else []):
        torch.manual_seed(seed_of(seed, "finetune", task, "head and dropout"))
        yield Setting(task, seed, host, device, unfinished, time.monotonic())


def step_count(rows: int, epochs: float, spec: TasksSpec) -> int:
    """Return the number of steps of fine-tuning on this many training rows, at least 1."""
    return max(1, round(epochs * math.ceil(rows / spec.batch)))


def fit(
    model: nn.Module, loss_of: Callable[[Any], Tensor], batches: Iterator[Any], steps: int, spec: TasksSpec,
    where: Setting, progress: Progress | None = None,
) -> float:  # fmt: skip
    """Train a model in place, whose part `encoder` has layer-wise learning rates, and leave it in evaluation mode.

    `loss_of` returns the loss () of one of the `batches`, of which one is taken for each of the `steps`. `progress` is
    called with (step, steps) after each step. Return the seconds that earlier processes spent on this fine-tuning,
    whose state is restored if there is one. Raises Diverged if the loss is NaN or infinite, and Interrupted after a
    signal, once the state is saved.
    """
    optim, schedule, state = optim_spec(spec), schedule_spec(spec), where.unfinished
    optimizer, warmup = layerwise_optimizer(model, spec), warmup_steps(schedule, steps)
    done, earlier = state.restore(model, optimizer, where.device) if state is not None else (0, 0.0)
    for _ in range(done):
        next(batches)
    bad = torch.zeros((), device=where.device)
    saved, took = time.monotonic(), 0.0
    model.train()
    stopping: AbstractContextManager[list[int]] = stop_signals() if state is not None else nullcontext([])
    with stopping as stopped:
        for step in range(done + 1, steps + 1):
            heed()
            set_rate(optimizer, optim, optim.lr * lr_factor(step - 1, steps, warmup, schedule), step)
            loss = loss_of(next(batches))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), optim.clip, foreach=True)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            bad += ~torch.isfinite(loss.detach())
            keep = state is not None and (bool(stopped) or due(step, where.host, time.monotonic() - saved, took))
            if (keep or step % LOOK == 0 or step == steps) and bad.item():
                act = f"fine-tuning on {where.task} (seed {where.seed})"
                raise Diverged(f"the loss of {act} is not finite by step {step}", step)
            if state is not None and keep:
                begun = time.monotonic()
                state.save(step, earlier + begun - where.begun, model, optimizer, where.device)
                saved = time.monotonic()
                took = saved - begun
            if progress is not None:
                progress(step, steps)
            if stopped and (keep or step == steps):  # a signal after the decision to save stops after the next step
                raise Interrupted(stopped[0])
    model.eval()
    return earlier
