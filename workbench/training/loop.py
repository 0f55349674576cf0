"""The training loop, which is the same for all objectives and independent of tasks.

Paper: section 3.1 and table 6; released code: `model/optimization.py` (docs/electra.md 4).
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from workbench import cpu, objectives
from workbench.data.corpus import Corpus
from workbench.errors import DamagedRun, Diverged, InputError, Interrupted
from workbench.models import published_pair
from workbench.models.corruption import WordStarts
from workbench.models.encoder import Encoder, build_encoder
from workbench.models.generators import count_text
from workbench.models.heads import MlmHead
from workbench.process import heed, stop_signals
from workbench.spec.host import Host
from workbench.spec.run_spec import RunSpec
from workbench.store import checkpoint
from workbench.store.atomic import DISK
from workbench.store.checkpoint import Metrics
from workbench.store.run_store import RunDir
from workbench.tensors import StepLoss
from workbench.training.checkpointing import BackgroundWriter, CheckpointWriter, check_log, due, inherit, restore
from workbench.training.concurrent_runs import TURNS, own_stream
from workbench.training.distributed import ALONE, GATHER, SAVE, STEP, STOP, Ranks
from workbench.training.optimizer import lr_factor, make_optimizer, set_rate
from workbench.training.plan import Plan, Snapshots, spent_by
from workbench.training.steps import RECORDED_AFTER, Steps, Sums

log = logging.getLogger("workbench")
Progress = Callable[[int, int, dict[str, Any]], None]  # step, steps, latest row of metrics


def build(spec: RunSpec, host: Host | None = None) -> nn.Module:
    """Return the objective with its initial weights on the CPU; encoders of equal seeds are equal in all objectives."""
    objective = objectives.build(spec, build_encoder(spec))
    return plainly(objective) if host is not None and host.plain else objective


def plainly(model: nn.Module) -> nn.Module:
    """Return the model, set to Hugging Face's forward pass and losses from all logits (the reference in tests)."""
    for part in model.modules():
        if isinstance(part, (Encoder, MlmHead)):
            part.plain = True
    return model


def train(
    run: RunDir, spec: RunSpec, plan: Plan, corpus: Corpus, host: Host, guard: Callable[[], None] = lambda: None,
    progress: Progress | None = None, mirror: Any = None, parent: RunDir | None = None,
    snapshots: Snapshots | None = None, ranks: Ranks = ALONE,
) -> nn.Module:  # fmt: skip
    """Pre-train to the end of the plan and return the model.

    Training starts from the newest undamaged checkpoint of the run; if it has none, from the end of `parent`, or from
    the initial weights. `guard` is called before metrics are written, and raises an error if this process no longer
    owns the run; `mirror` copies new rows to a tracker. `snapshots` are the points at which weights are kept for later
    scores; the time that they take counts as saving. If memory runs out, a step is computed again in smaller
    micro-batches. If `ranks` has other processes, they take the same steps in `follow`. Checkpoints are written during
    training, and all of them are on disk when this function ends.

    Raises Diverged if gradients are not finite (they are not applied), Interrupted after writing a checkpoint, and
    OSError if the disk fails.
    """
    device, model, autocast = _on_device(spec, corpus, host)
    optimizer = make_optimizer(model, spec.optim)
    metrics = Metrics(run.path / "metrics.jsonl", run.owner)
    done, spent, saving = _begin(run, spec, plan, model, optimizer, metrics, parent)
    if mirror is not None:
        mirror.news()  # only now, since rows after the checkpoint were removed
    if snapshots is not None:
        snapshots.begin(done)
    size = plan.parameters["total"]
    new = max(1, 2 - len(checkpoint.steps(run.path / "checkpoints")))  # checkpoints that need new disk space
    kept = snapshots.room(done, size) if snapshots is not None else 0
    checkpoint.room(run.path, new * 12 * size + kept + 4 * size)  # a checkpoint holds each weight three times in fp32

    if ranks.count > 1:
        ranks.share(model, optimizer, done)
    whole = copy.deepcopy(model).cpu() if ranks.sharded else model  # which snapshots and the caller get
    steps = Steps(spec, corpus, host, device, autocast, model, optimizer, ranks)
    window = Window(spec, plan, spent, saving)
    saved, turns = time.monotonic(), TURNS.get()

    parts = ranks.parts(model) if ranks.sharded else None
    writer = CheckpointWriter(device, run, metrics, parts)

    with (
        stop_signals() as stopped, own_stream(device), ranks.leading() if ranks.count > 1 else contextlib.nullcontext(),
        writer, parts or contextlib.nullcontext(),
    ):  # fmt: skip
        for step in range(done + 1, plan.steps + 1):
            if turns is not None:
                turns.hand_on()
            if ranks.count > 1:
                ranks.announce(STEP)
            window.pending.append((step, _rates(optimizer, spec, plan, step), *steps.take(step)))
            last = step == plan.steps or bool(stopped)
            keep = last or due(step, host, time.monotonic() - saved, writer.took)
            point = snapshots is not None and snapshots.due(step)
            if keep or point or step % host.log_every == 0:
                if turns is not None:
                    turns.await_device(device)
                rows = window.rows(device)  # else the only line that waits for the device
                guard()
                metrics.append(rows)
                if mirror is not None:
                    mirror.news()
                if steps.bad.item():
                    writer.wait()
                    raise diverged(rows, spec, checkpoint.steps(run.path / "checkpoints"))
                if progress is not None:
                    progress(step, plan.steps, rows[-1])
            begun = time.monotonic()
            if whole is not model and (point or step == plan.steps):
                gathered = ranks.weights(model)
                with torch.no_grad():
                    for name, weight in whole.named_parameters():
                        weight.copy_(gathered[name])
            if snapshots is not None and point:
                snapshots.keep(whole, step, window.seconds)
                window.saving += time.monotonic() - begun
                begun = time.monotonic()
            if keep:
                writer.save(step, window.seconds, window.saving, ranks.tensors(model, optimizer), begun)
                window.saving += writer.stall
                saved = time.monotonic()
            if stopped and keep:  # a signal after the decision to save stops after the next step
                break
    if stopped:
        raise Interrupted(stopped[0])
    return whole


def check_losses(spec: RunSpec, corpus: Corpus, host: Host, in_parts: bool) -> None:
    """Raise InputError if the losses and metrics of an objective cannot be logged, by their names; computes two rows.

    Also if steps are computed `in_parts`, and the losses cannot be added up from parts. Other errors of the objective
    are left to its training, which fails alone. Raises OSError if the disk fails.
    """
    file = objectives.file_of(objectives.load(spec))
    try:
        device, model, autocast = _on_device(spec, corpus, host)
        with autocast:
            loss = model(corpus.batch(0, min(2, spec.batch.size), device))
    except (InputError, KeyboardInterrupt, Interrupted):
        raise
    except BaseException as error:  # also SystemExit, which an objective's own code may raise
        if isinstance(error, OSError) and error.errno in DISK:
            raise
        heed()
        return
    if isinstance(loss, StepLoss):
        loss.check_names(file)
        if in_parts:
            loss.denominators(device, file)


def follow(spec: RunSpec, plan: Plan, corpus: Corpus, host: Host, ranks: Ranks) -> None:
    """Take the steps of `train` in a process other than the first, which alone heeds signals, until it ends them."""
    device, model, autocast = _on_device(spec, corpus, host)
    optimizer = make_optimizer(model, spec.optim)
    done = ranks.share(model, optimizer, 0)
    steps = Steps(spec, corpus, host, device, autocast, model, optimizer, ranks)
    with (
        stop_signals(), own_stream(device), BackgroundWriter(device) as writer,
        ranks.parts(model) if ranks.sharded else contextlib.nullcontext() as parts,
    ):  # fmt: skip
        while (what := ranks.awaited()) != STOP:
            if what == GATHER:
                ranks.weights(model)
                continue
            if what == SAVE and parts is not None:
                writer.begin(ranks.tensors(model, optimizer), parts.write, time.monotonic())
                continue
            done += 1
            _rates(optimizer, spec, plan, done)
            steps.take(done)


def _rates(optimizer: torch.optim.Optimizer, spec: RunSpec, plan: Plan, step: int) -> dict[str, float]:
    """Set the learning rates of a step, counted from 1, and return them by name."""
    rate = spec.optim.lr * lr_factor(step - 1, plan.steps, plan.warmup_steps, spec.schedule)
    return set_rate(optimizer, spec.optim, rate, step)


def _on_device(
    spec: RunSpec, corpus: Corpus, host: Host
) -> tuple[torch.device, nn.Module, AbstractContextManager[Any]]:
    """Return the device of a run, its model there in training mode, and the context in which losses are computed."""
    device = torch.device(host.resolved_device())
    cpu.prepare(host.threads, host.plain, host.resolved_device())
    model = build(spec, host)
    if device.type == "cuda":
        corpus.hold(device)
    count_text(model, corpus.counts, corpus.pairs)
    for part in model.modules():
        if isinstance(part, WordStarts):
            part.table.copy_(torch.from_numpy(corpus.word_starts()))
    half = host.resolved_precision(spec.encoder.hidden) == "bf16"
    return device, model.to(device).train(), torch.autocast(device.type, torch.bfloat16, enabled=half)


def _begin(
    run: RunDir, spec: RunSpec, plan: Plan, model: nn.Module, optimizer: torch.optim.Optimizer, metrics: Metrics,
    parent: RunDir | None,
) -> tuple[int, float, float]:  # fmt: skip
    """Load the newest checkpoint of the run, or else the end of its parent, and cut the log to its last step.

    Returns the steps that are done, the seconds that they took, and the part of these that saving took. Raises
    DamagedRun if log or plan do not fit the checkpoint.
    """
    done, spent, saving = restore(run, model, optimizer)
    resumed = done
    if parent is not None and not done:
        done, spent, saving = inherit(parent, spec, model, optimizer)
    elif spec.pair is not None and not done:
        published_pair.load(model, spec)
    if metrics.rewind(done) != done and done != plan.first:
        raise DamagedRun(
            f"{run.path}: metrics.jsonl lacks rows before step {done}, the step of the checkpoint; "
            f"move that folder away and give the same command again"
        )
    if done:
        run.rows_to(done, plan.first)
    if resumed:
        check_log(run, resumed, metrics.content())
    if done > plan.steps:
        raise DamagedRun(
            f"{run.path}: plan.json ends at step {plan.steps}, but there is a checkpoint of step {done}; "
            f"move that folder away and give the same command again"
        )
    return done, spent, saving


@dataclass
class Window:
    """The steps since metrics were last written, whose values stay on the device until `rows` is called.

    `pending` has of each step its learning rates, its losses and metrics by name, and their values (n,) in that order.
    `seconds` is the time of training so far, which includes `saving`, the time spent on checkpoints.
    """

    spec: RunSpec
    plan: Plan
    seconds: float
    saving: float
    pending: list[tuple[int, dict[str, float], Sums, Tensor]] = field(default_factory=list)
    last: float = field(default_factory=time.perf_counter)

    def rows(self, device: torch.device) -> list[dict[str, Any]]:
        """Return one row of metrics for each step of the window, and remove these steps from it."""
        numbers = torch.stack([values for *_, values in self.pending]).cpu().tolist()
        now = time.perf_counter()
        each, tokens = (now - self.last) / len(self.pending), self.spec.batch.size * self.spec.data.length
        memory = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
        rows = []
        for (step, rates, sums, _), line in zip(self.pending, numbers, strict=True):
            self.seconds += each
            values = dict(zip(["gradient_norm", *sums.values], line, strict=False))
            ratios, parts = {}, iter(line[1 + len(sums.values) :])
            for name in sums.ratios:
                hits, among = next(parts), next(parts)
                ratios[name] = hits / among if among else None
            rows.append({
                **spent_by(self.plan, self.spec, step), "seconds": self.seconds, **rates, **values, **ratios,
                "tokens_per_second": tokens / each, "device_memory_bytes": memory,
                "micro_batch": sums.micro, "saving_share": self.saving / self.seconds,
            })  # fmt: skip
        self.pending.clear()
        self.last = now
        return rows


def seconds_per_step(spec: RunSpec, corpus: Corpus, host: Host, steps: int = 5) -> float:
    """Return the measured seconds of one training step, which turn a budget in seconds into steps."""
    device, model, autocast = _on_device(spec, corpus, host)
    taken = Steps(spec, corpus, host, device, autocast, model, make_optimizer(model, spec.optim))
    first, start = 2 if device.type == "cpu" else RECORDED_AFTER + 2, 0.0
    with own_stream(device):
        for step in range(1, first + steps + 1):
            if step == first + 1:  # the first steps fill caches
                start = time.perf_counter()
            taken.take(step)[1].tolist()
    return (time.perf_counter() - start) / steps


def diverged(rows: list[dict[str, Any]], spec: RunSpec, saved: list[int]) -> Diverged:
    """Return the exception about the first step with gradients that are not finite, after which no weight changed."""
    first = next((r for r in rows if not math.isfinite(r["gradient_norm"])), rows[-1])
    start = (first["step"] - 1) * spec.batch.size
    return Diverged(
        f"loss {first['loss']:g}, gradient norm {first['gradient_norm']:g} at step {first['step']} "
        f"(rows {start} to {start + spec.batch.size - 1} of the training stream); this step did not change the "
        f"weights, and the last checkpoint is of step {saved[-1] if saved else 0}",
        first["step"],
    )
