"""Training of an encoder together with a head, which every kind of fine-tuning shares.

Clark et al. 2020, table 7 and appendix; released code: `finetune/` and `configure_finetuning.py` (docs/electra.md 5).
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from workbench import cpu
from workbench.errors import DamagedRun, Diverged, Interrupted
from workbench.process import forget_peak, heed, peak_memory, stop_signals
from workbench.rng import seed_of
from workbench.spec.host import Host
from workbench.spec.parts import OptimSpec, ScheduleSpec, TasksSpec
from workbench.store import checkpoint
from workbench.store.lease import Lease
from workbench.tasks.common.contract import Progress
from workbench.training import checkpointing
from workbench.training.checkpointing import due
from workbench.training.optimizer import Group, adamw, lr_factor, set_rate
from workbench.training.plan import warmup_steps

LOOK = 50  # steps between checks that the loss is finite; a check waits for the device


@dataclass(frozen=True)
class Setting:
    """Where one fine-tuning is computed: the task's name, the seed, the host and its device."""

    task: str
    seed: int
    host: Host
    device: str
    unfinished: Unfinished | None  # the place of its state if it can be interrupted and go on
    begun: float  # by `time.monotonic`
    order: int  # seed of the order of the training rows

    def autocast(self) -> torch.autocast:
        """Return the context in which outputs are computed, in bfloat16 or in float32."""
        half = self.host.resolved_precision() == "bf16"
        return torch.autocast(self.device.partition(":")[0], torch.bfloat16, enabled=half)

    def effort(self, steps: int, earlier: float) -> dict[str, Any]:
        """Return the cost fields of `Scores` for the fine-tuning so far; `earlier` is the result of `fit`."""
        seconds = earlier + time.monotonic() - self.begun
        return {"steps": steps, "seconds": seconds, "peak_memory_bytes": peak_memory(self.device)}


@contextmanager
def setting(task: str, seed: int, host: Host, unfinished: Unfinished | None = None) -> Iterator[Setting]:
    """Prepare this process for a fine-tuning; within the block, torch's draws are a function of (seed, task)."""
    device = host.resolved_device()
    cpu.prepare(host.threads, host.plain, device)
    forget_peak(device)
    with torch.random.fork_rng([device] if device.startswith("cuda") else []):
        torch.manual_seed(seed_of(seed, "finetune", task, "head and dropout"))
        yield Setting(task, seed, host, device, unfinished, time.monotonic(), seed_of(seed, "finetune", task, "order"))


def fit(
    model: nn.Module, loss_of: Callable[[Any], Tensor], batches: Iterator[Any], steps: int, spec: TasksSpec,
    where: Setting, progress: Progress | None = None,
) -> float:  # fmt: skip
    """Train a model in place, whose part `encoder` has layer-wise learning rates, and leave it in evaluation mode.

    `loss_of` returns the loss () of a batch; each of the `steps` takes the next of the `batches`. `progress` is
    called with (step, steps) after each step. Return the seconds that earlier processes spent on this fine-tuning,
    whose state is restored if there is one. Raises Diverged if the loss is NaN or infinite, and Interrupted after a
    signal, once the state is saved.
    """
    (optim, schedule), state = recipe(spec), where.unfinished
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


# ---- layer-wise learning rates ----

LAYER = re.compile(r"(?:^|\.)(?:layer|layers|h|block|blocks)\.(\d+)\.")
EMBEDDING = re.compile(r"embed|(?:^|\.)(?:wte|wpe)\.")


def recipe(spec: TasksSpec) -> tuple[OptimSpec, ScheduleSpec]:
    """Return the settings of AdamW, with pre-training's betas and epsilon (table 7), and of the linear schedule."""
    optim = OptimSpec(lr=spec.lr, weight_decay=spec.weight_decay, clip=spec.clip, bias_correction=spec.bias_correction)
    return optim, ScheduleSpec(warmup=spec.warmup, overlap=spec.overlap)


def layer_factor(name: str, layers: int, spec: TasksSpec) -> float:
    """Return the factor decay^(layers + 1 - depth) of the learning rate of a weight of the encoder, by its name.

    The depth is 0 in the embeddings and their projection, and i + 1 in layer i (from 0). A weight that belongs to no
    single layer, such as a final layer norm or a weight that all layers share, has the depth of the top layer,
    `layers`. The released code has one more power, which is `extra_decay` (docs/electra.md 5). The factor of the head
    is 1.
    """
    outside = 0 if EMBEDDING.search(name) else layers
    depth = int(match[1]) + 1 if (match := LAYER.search(name)) else outside
    return spec.layer_decay ** (layers + 1 + spec.extra_decay - depth)


def layerwise_optimizer(model: Any, spec: TasksSpec) -> torch.optim.AdamW:
    """Return AdamW with a parameter group for each learning rate of a layer, with and without weight decay.

    The weights of `model.encoder` have the rates of their layers; all others, a head's, have the peak rate.
    """
    layers = int(model.encoder.config.num_hidden_layers)

    def group_of(name: str, weight: nn.Parameter) -> Group:
        inside = name.startswith("encoder.")
        ratio = layer_factor(name.removeprefix("encoder."), layers, spec) if inside else 1.0
        return Group(weight.ndim > 1, ratio)  # no decay of biases and norms, in an encoder of any family

    return adamw(model, recipe(spec)[0], group_of)


# ---- the state of a fine-tuning that has not ended ----
# RUN/unfinished/CoLA-1f0c2a9b-0/step-00001200/     as a checkpoint of pre-training (`workbench.store.checkpoint`)
# The state of a fine-tuning which `workbench submit` repeats lies in the cache. A state is written as often as
# checkpoints of pre-training are, and after a signal, and deleted once the score is stored. The order of the rows and
# the rates are functions of the step, so a state holds the weights, the optimizer's moments and torch's draws.

log = logging.getLogger("workbench")
FOLDER = "unfinished"  # of a run


class Place(Protocol):
    """A folder that holds states: a run's (`RunDir`), or one of the cache."""

    owner: Lease | None  # of the folder, if it has a lease

    def file(self, name: str) -> Path:
        """Return the path of a file or folder within."""

    def remove(self, name: str) -> None:
        """Delete a file or folder within, if it exists."""


@dataclass(frozen=True)
class Unfinished:
    """The place for the state of one fine-tuning.

    `score` is the name of the file of the score, which says task, settings and seed, and `weights` are the hashes of
    the encoder; a state that was saved for others, in this run or in another one, is not used.
    """

    run: Place
    score: str
    weights: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{FOLDER}/{Path(self.score).stem}"

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> tuple[int, float]:
        """Load the newest state; return its step and seconds, or zeros. A damaged state is deleted with a warning."""
        try:
            newest = checkpoint.newest(self.run.file(self.name))
            if newest is None:
                return 0, 0.0
            if newest.state.get("weights") != dict(self.weights):
                raise DamagedRun(f"{newest.path} belongs to other weights")
            if newest.state.get("score") != self.name:
                raise DamagedRun(f"{newest.path} belongs to {ascii(newest.state.get('score'))[:80]}")
        except DamagedRun as error:
            log.warning(f"{error}; this fine-tuning begins again".replace("\n", " "))
            self.delete()
            return 0, 0.0
        draws = newest.tensors("draws")
        step, seconds, _ = checkpointing.load(newest, model, optimizer)
        torch.set_rng_state(draws["cpu"])
        if "device" in draws:
            torch.cuda.set_rng_state(draws["device"], device)
        return step, seconds

    def save(self, step: int, seconds: float, model: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> None:
        """Write the state after a step, in which `seconds` were spent in all. Raises OSError or LeaseLost."""
        draws = {"cpu": torch.get_rng_state()}
        if device.startswith("cuda"):
            draws["device"] = torch.cuda.get_rng_state(device)
        tensors = checkpointing.tensors_of(model, optimizer) | {"draws": draws}
        state = {"seconds": seconds, "weights": dict(self.weights), "score": self.name}
        checkpoint.save(self.run.file(self.name), step, tensors, state, owner=self.run.owner)

    def delete(self) -> None:
        """Delete the state, if there is one."""
        self.run.remove(self.name)
