"""Estimates of training time on this machine, from a few steps of shallow copies of the same run.

Two copies of the model, with 1 and with 4 layers, train on few rows; widths, vocabulary, objective, precision and
threads are as in the run. The time of a step is taken as linear in the FLOPs of its matrix products: the line through
both copies gives the time of the full model, and optimizer time is scaled by the number of weights. Results stay in
the cache for ten minutes.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.bench.machine import available_memory, ceiling
from workbench.spec.host import Host, cores
from workbench.spec.parts import Special
from workbench.spec.run_spec import RunSpec, digest
from workbench.spec.stages import ResolvedSpec
from workbench.store.atomic import cache_root, read_object, write_atomic
from workbench.training.plan import EFFICIENCY, Plan, plan

SHALLOW, DEEP = 1, 4
WORK = {"cpu": 2e10, "cuda": 3e12}  # approximate FLOPs of one timed step; a single row may need more
MOST = 20  # times WORK; if a single row needs more, a matrix product is timed instead
TRIES = 4  # steps, of which the fastest counts: other processes may disturb some
ENOUGH = 1.0  # seconds of steps of one copy, after which no further step is timed
PATIENCE = 20.0  # seconds of timing; later runs are estimated from those timed so far
FRESH = 600.0  # seconds for which a timing in the cache is valid: other work on the machine comes and goes
VERSION = 1


@dataclass(frozen=True)
class Timed:
    """FLOPs (`work`) and seconds (`learning`) of the passes of a shallow copy, and seconds to update its `weights`."""

    work: float
    learning: float
    weights: int
    update: float


def training_seconds(runs: Iterable[tuple[ResolvedSpec, Plan]], host: Host) -> list[float]:
    """Return the seconds that the steps of each run will take here, without the steps of its parents.

    After PATIENCE seconds, further runs get the speed of the timed run that is nearest in size.
    """
    start, speeds, estimates = time.monotonic(), list[tuple[float, float]](), list[float]()
    for spec, planned in runs:
        if spec.budget.unit == "seconds":
            estimates.append(spec.budget.amount * (1 - spec.start.share if spec.start else 1))
            continue
        work = float(planned.flops_per_step["matmul"])
        if speeds and time.monotonic() - start > PATIENCE:
            speed = min(speeds, key=lambda pair: abs(math.log(pair[0] / work)))[1]
        else:
            speed = work / step_seconds(spec, planned, host)
            speeds.append((work, speed))
        estimates.append((planned.steps - planned.first) * work / speed)
    return estimates


def step_seconds(spec: ResolvedSpec, planned: Plan, host: Host) -> float:
    """Return the seconds of one training step, from the cache or measured now."""
    device = host.resolved_device()
    precision = host.resolved_precision(spec.encoder.hidden)
    host = replace(host, device=device, precision=precision, threads=host.threads or cores())
    path = cache_root() / "timings" / f"{_key(spec, host)}.json"
    if (cached := _kept(path)) is not None:
        return cached
    seconds = _measured(spec, planned, host)
    with contextlib.suppress(OSError):  # without the file, the step is timed again next time
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps({"format": VERSION, "at": time.time(), "seconds": seconds}).encode())
    return seconds


def _kept(path: Path) -> float | None:
    """Return the seconds that a file of the cache holds; None if it is missing, old or damaged."""
    try:
        raw = read_object(path, format=VERSION)
    except (OSError, ValueError):
        return None
    at, seconds = raw.get("at"), raw.get("seconds")
    if not isinstance(at, float) or not isinstance(seconds, float):
        return None
    return seconds if 0 <= time.time() - at < FRESH and 0 < seconds < math.inf else None


def _key(spec: RunSpec, host: Host) -> str:
    """Return a hash of all that decides the speed of a step: the run without seed, budget and data, and the host."""
    import torch

    from workbench.store.environment import cpu_name

    fields = spec.model_dump(mode="json", include=set(_DECIDES)) | {"rows": spec.batch.size, "length": spec.data.length}
    how = [host.device, host.precision, host.threads, host.plain, host.rows_at_once(spec.batch.size), host.devices]
    return digest([VERSION, fields, how, cpu_name(), cores(), torch.__version__], 24)


_DECIDES = ("objective", "source", "options", "recipe", "encoder", "generator", "tying", "corruption", "head")


def _measured(spec: ResolvedSpec, planned: Plan, host: Host) -> float:
    """Return the seconds of one training step, measured on shallow copies on one device.

    If the copies are too large, or training them fails, the time follows from the speed of a matrix product.
    """
    full, layers = float(planned.flops_per_step["matmul"]), spec.encoder.layers
    rows = _rows(spec, host)
    copies = [_copy(spec, count, rows) for count in sorted({min(SHALLOW, layers), min(DEEP, layers)})]
    dearest = plan(copies[-1])
    too_large = dearest.memory_bytes > available_memory(host) / 2
    if too_large or float(dearest.flops_per_step["matmul"]) > MOST * _work(host):
        return full / (ceiling(host, 0.2) * EFFICIENCY)
    try:
        timed = [_timed(copy, host) for copy in copies]
    except (Exception, SystemExit):  # a user's objective may fail; its error is reported when it is run
        return full / (ceiling(host, 0.2) * EFFICIENCY)
    last, work = timed[-1], full * rows / spec.batch.size
    learning = last.learning * work / last.work
    if len(timed) > 1 and last.work > timed[0].work:
        slope = (last.learning - timed[0].learning) / (last.work - timed[0].work)
        line = last.learning + slope * (work - last.work)
        learning = min(max(line, learning / 2), 2 * learning)  # limits the effect of a disturbed timing
    return learning * spec.batch.size / host.devices / rows + last.update * planned.parameters["total"] / last.weights


def _copy(spec: ResolvedSpec, layers: int, rows: int) -> ResolvedSpec:
    """Return the run with this number of layers and of rows per step, and special tokens that fit its vocabulary."""
    few = spec.encoder.vocab <= Special().mask
    special = Special(pad=0, unk=1, cls=2, sep=3, mask=4) if few else spec.data.special
    return spec.changed({
        "encoder.layers": layers, "batch.size": rows, "start": None, "schedule.warmup": None,
        "data.special": special.model_dump(),
    }).replace(budget={"steps": 1})  # fmt: skip


def _rows(spec: ResolvedSpec, host: Host) -> int:
    """Return the rows of a timed step: about WORK with DEEP layers, and at most as many as a run computes at once."""
    one = float(plan(_copy(spec, min(DEEP, spec.encoder.layers), 1)).flops_per_step["matmul"])
    return max(1, min(host.rows_at_once(spec.batch.size), int(_work(host) / one)))


def _work(host: Host) -> float:
    return WORK.get(host.device.partition(":")[0], WORK["cpu"])


def _timed(spec: ResolvedSpec, host: Host) -> Timed:
    """Train a copy on made-up rows: the first step warms up and compiles kernels, of the others the fastest counts."""
    import numpy as np
    import torch

    from workbench import cpu
    from workbench.models.generators import count_text
    from workbench.training.loop import build
    from workbench.training.optimizer import make_optimizer
    from workbench.training.steps import total_norm

    cpu.prepare(host.threads, host.plain, host.device)
    autocast = torch.autocast(host.device.partition(":")[0], torch.bfloat16, enabled=host.precision == "bf16")
    learning, update, clock = list[float](), list[float](), time.perf_counter
    with torch.random.fork_rng(devices=[]):
        model = build(spec, host)
        one = np.ones(1, dtype=np.int64)
        count_text(model, lambda: one.repeat(spec.encoder.vocab), lambda: (one - 1, one))
        model.to(host.device).train()
        optimizer, parameters = make_optimizer(model, spec.optim), list(model.parameters())
        for attempt in range(1 + TRIES):
            batch = _made_up(spec, attempt, host.device)
            start = clock()
            with autocast:
                loss = model(batch)
            loss.total.backward()
            total_norm(parameters).item()
            middle = clock()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            next(model.parameters()).flatten()[0].item()  # waits for the device
            learning.append(middle - start)
            update.append(clock() - middle)
            if sum(learning[1:]) > ENOUGH:
                break
    work = float(plan(spec).flops_per_step["matmul"])
    return Timed(work, min(learning[1:]), sum(p.numel() for p in parameters), min(update[1:]))


def _made_up(spec: RunSpec, number: int, device: str) -> Any:
    """Return a batch of random tokens, with frequencies proportional to the reciprocal of their rank."""
    import numpy as np
    import torch

    from workbench.rng import row_keys
    from workbench.tensors import Batch

    shape = (spec.batch.size, spec.data.length)
    ranks = spec.encoder.vocab ** np.random.default_rng(number).random(shape)
    ids = torch.from_numpy(np.minimum(ranks.astype(np.int64) + 4, spec.encoder.vocab - 1))
    ids[:, 0], ids[:, -1] = spec.data.special.cls, spec.data.special.sep
    keys = row_keys(spec.seed, torch.arange(spec.batch.size) + number * spec.batch.size)
    if spec.data.pairs is None:
        return Batch(ids=ids.to(device), keys=keys.to(device))
    middle = spec.data.length // 2
    ids[:, middle] = spec.data.special.sep
    segments = (torch.arange(spec.data.length) > middle).long().expand_as(ids).contiguous()
    attention, broken = torch.ones_like(ids, dtype=torch.bool), keys % 2 == 0
    return Batch(*(each.to(device) for each in (ids, keys, attention, segments, broken)))
