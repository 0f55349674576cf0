"""Estimates of the time that fine-tuning takes on this machine, from a few steps of the fine-tuner.

A classifier over an encoder of the run's widths is trained for a few steps on made-up rows, once on short and once on
long ones; its time is a linear function of the matrix products of a step. An encoder of more than DEEP layers is timed
with DEEP of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.errors import plural
from workbench.models import flops
from workbench.progress import clock
from workbench.spec.host import Host, cores, threads_for_each
from workbench.spec.parts import EncoderSpec, TasksSpec, size_in_words
from workbench.spec.stages import ResolvedSpec
from workbench.tasks.finetuning.workload import Rows, Workload, workload
from workbench.tasks.task import Suite

DEEP = 4  # layers
TRIES = 3  # steps, of which the fastest counts: other processes may disturb some
ENOUGH = 1.0  # seconds of steps, after which no further step is timed
MOST = {"cpu": 4e11, "cuda": 6e13}  # FLOPs of a timed step; with more, it has fewer rows
SHORT = 16  # tokens of the rows of the first timing
BACKWARD = 2  # times the products of a forward pass


@dataclass(frozen=True)
class Speed:
    """The time of a step: `step` seconds, and `product` more for each FLOP in matrix products."""

    step: float
    product: float


def planned(
    encoders: Sequence[ResolvedSpec], suite: Suite, tasks: TasksSpec, tokenizer: Path, host: Host, workers: int
) -> tuple[str, list[dict[str, Any]]]:
    """Return the time of all fine-tunings of some encoders, as a sentence and as a row for each size and task."""
    sizes: dict[str, list[ResolvedSpec]] = {}
    for spec in encoders:
        sizes.setdefault(spec.encoder.model_dump_json(), []).append(spec)
    if workers > 1:
        host = replace(host, threads=host.threads or threads_for_each(workers))
    rows, each, total = list[dict[str, Any]](), dict[str, float](), 0.0
    for alike in sizes.values():
        works = [workload(task, tasks, tokenizer, alike[0].encoder.positions) for task in suite.tasks]
        for task, work, seconds in zip(suite.tasks, works, tuning_seconds(alike[0], works, tasks, host), strict=True):
            size = size_in_words(alike[0].encoder.layers, alike[0].encoder.hidden)
            count = len(alike) * task.seeds(tasks)
            rows.append({"task": task.name, "encoder": size, "steps": work.steps, "seconds": seconds, "times": count})
            total += count * seconds
            each[task.name] = max(seconds, each.get(task.name, 0.0))
    total /= min(workers, len(encoders))
    shares = ", ".join(f"{name} {clock(seconds)}" for name, seconds in each.items())
    missing = f"; without {', '.join(suite.missing)}, which are not there" if suite.missing else ""
    return (
        f"fine-tuning time for {plural(len(encoders), 'encoder')}, untrained ones included: about {clock(total)} here "
        f"(a few steps timed; one fine-tuning takes {shares}){missing}"
    ), rows


def tuning_seconds(spec: ResolvedSpec, works: Sequence[Workload], tasks: TasksSpec, host: Host) -> list[float]:
    """Return the seconds that one fine-tuning of each workload takes here, reading its tests included."""
    longest = [length for work in works for rows in work.train for length in rows]
    middle = max(2 * SHORT, sorted(longest)[len(longest) * 3 // 4])
    speed = measured(spec, tasks, host, (SHORT, min(middle, spec.encoder.positions)))
    return [_seconds(spec.encoder, work, speed) for work in works]


def _seconds(encoder: EncoderSpec, work: Workload, speed: Speed) -> float:
    """Return the seconds of a fine-tuning at a speed."""
    step = (1 + BACKWARD) * work.batch * _forward(encoder, work.train)
    tests = work.tested * _forward(encoder, work.test)
    return work.steps * (work.passes * speed.step + speed.product * step) + speed.product * tests


def _forward(encoder: EncoderSpec, examples: Rows) -> float:
    """Return the mean FLOPs of reading one of the examples."""
    total = sum(flops.encoder(encoder, length).matmul for rows in examples for length in rows)
    return total / max(1, len(examples))


def measured(spec: ResolvedSpec, tasks: TasksSpec, host: Host, lengths: Sequence[int]) -> Speed:
    """Return the speed of the fine-tuner here with an encoder of a spec, by steps with rows of two lengths."""
    device = host.resolved_device()
    precision = host.resolved_precision(spec.encoder.hidden)
    host = replace(host, device=device, precision=precision, threads=host.threads or cores())
    layers = min(DEEP, spec.encoder.layers)
    sizes = {"layers": layers, "dropout": tasks.dropout, "attention_dropout": tasks.dropout}
    shallow = spec.changed({f"encoder.{name}": value for name, value in sizes.items()})
    most = MOST.get(device.partition(":")[0], MOST["cpu"])
    works, seconds = list[float](), list[float]()
    for length in lengths:
        row = (1 + BACKWARD) * flops.encoder(shallow.encoder, length).matmul
        rows = max(1, min(tasks.batch, int(most / row)))
        works.append(float(rows * row))
        seconds.append(_timed(shallow, tasks, host, rows, length))
    product = max(0.0, (seconds[1] - seconds[0]) / (works[1] - works[0]))
    start = max(0.0, seconds[1] - product * works[1])
    return Speed(start * spec.encoder.layers / layers, product)


def _timed(spec: ResolvedSpec, tasks: TasksSpec, host: Host, rows: int, length: int) -> float:
    """Return the seconds of a step of fine-tuning on made-up rows: the fastest of a few, after one that warms up."""
    import torch
    from torch import nn

    from workbench import cpu
    from workbench.models.encoder import build_encoder
    from workbench.tasks.finetuning.classifier import Classifier
    from workbench.tasks.finetuning.rates import layerwise_optimizer

    cpu.prepare(host.threads, host.plain, host.device)
    autocast = torch.autocast(host.device.partition(":")[0], torch.bfloat16, enabled=host.precision == "bf16")
    taken = list[float]()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Classifier(build_encoder(spec).model, 2, tasks.dropout).to(host.device).train()
        optimizer = layerwise_optimizer(model, tasks)
        ids = torch.randint(spec.encoder.vocab, (rows, length)).to(host.device)
        real = torch.ones_like(ids)
        real[0, -1] = 0
        labels = torch.zeros(rows, dtype=torch.int64, device=host.device)
        inputs = {"input_ids": ids, "attention_mask": real}
        while len(taken) <= TRIES and sum(taken[1:]) < ENOUGH and (not taken or taken[0] < 5 * ENOUGH):
            begun = time.perf_counter()
            with autocast:
                outputs = model(inputs)
            nn.functional.cross_entropy(outputs.float(), labels).backward()
            nn.utils.clip_grad_norm_(model.parameters(), tasks.clip, foreach=True)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            next(model.parameters()).flatten()[0].item()  # waits for the device
            taken.append(time.perf_counter() - begun)
    return min(taken[1:] or taken)
