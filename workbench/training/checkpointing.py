"""Saving and restoring the state of training, from a run's own checkpoints or from its parent's."""

from __future__ import annotations

import errno
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from workbench.errors import DamagedRun, InputError, RankLost, is_memory
from workbench.spec.host import Host
from workbench.spec.run_spec import RunSpec
from workbench.store import checkpoint
from workbench.store.atomic import read_object
from workbench.store.checkpoint import Checkpoint, Files, Metrics
from workbench.store.lease import Lease
from workbench.store.run_store import RunDir

log = logging.getLogger("workbench")
SAVING = 0.02  # largest share of the time for checkpoints that are written by time, as the reliability goals demand
MOMENTS = ("exp_avg", "exp_avg_sq", "step", "momentum_buffer")  # what AdamW, LAMB and Muon keep of each weight


def due(step: int, host: Host, since: float, took: float) -> bool:
    """Return whether to write a checkpoint; the last one was written `since` seconds ago and took `took` seconds."""
    if host.save_every:
        return step % host.save_every == 0
    return since >= max(host.save_seconds, took / SAVING)


def save(
    run: RunDir, step: int, seconds: float, saving: float, tensors: Mapping[str, Mapping[str, Tensor]],
    log_content: Mapping[str, Any], parts: Parts | None = None,
) -> None:  # fmt: skip
    """Write a checkpoint of weights, their moments and the place in training; shared weights are written once.

    `tensors` are made by `tensors_of`. `seconds` is the time of training so far, and `saving` the part of it spent on
    checkpoints. `log_content` is the size and hash of the log up to this step. In a sharded run the
    tensors are the first of the `parts` that its processes write.
    """
    state = {"step": step, "seconds": seconds, "saving": saving, "run_id": run.run_id, "log": dict(log_content)}
    write = checkpoint.save if parts is None else parts.save
    write(run.path / "checkpoints", step, tensors, state, owner=run.owner)


def tensors_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Tensor]]:
    """Return the weights of a model and the optimizer's moments of them by name, as two groups of a checkpoint."""
    names = dict(model.named_parameters())
    moments = {
        f"{name}.{key}": optimizer.state[parameter][key]
        for name, parameter in names.items()
        if parameter in optimizer.state
        for key in MOMENTS
        if key in optimizer.state[parameter]
    }
    return {"model": {name: p.detach() for name, p in names.items()}, "optimizer": moments}


def restore(run: RunDir, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, float, float]:
    """Load the newest undamaged checkpoint into model and optimizer; return its step and its seconds as `load` does.

    Returns zeros if there is none. Raises DamagedRun if all are damaged, or this one belongs to another run.
    """
    newest = checkpoint.newest(run.path / "checkpoints", run.run_id)
    if newest is None:
        return 0, 0.0, 0.0
    for warning in newest.warnings:
        log.warning(warning)
    return load(newest, model, optimizer)


def check_log(run: RunDir, step: int, log_content: Mapping[str, Any]) -> None:
    """Raise DamagedRun if the logged rows up to a checkpoint changed after it was written."""
    state = read_object(run.path / "checkpoints" / f"step-{step:08d}" / "state.json")["state"]
    if state.get("log") != log_content:
        raise DamagedRun(
            f"{run.path / 'metrics.jsonl'} has changed since the checkpoint of step {step} was written; "
            f"move the run's folder away and give the same command again"
        )


def load(saved: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, float, float]:
    """Load a checkpoint into model and optimizer; return its step, its seconds of training and of saving."""
    weights, moments = saved.tensors("model"), saved.tensors("optimizer")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
            for key in MOMENTS:
                if f"{name}.{key}" in moments:
                    optimizer.state[parameter][key] = moments[f"{name}.{key}"].to(parameter.device)
    return saved.step, float(saved.state["seconds"]), float(saved.state.get("saving", 0.0))  # a fine-tuning has none


# The weights of a run that are copied from its parent's, by the first part of their names (see `StartSpec`).
TAKEN: dict[str, dict[str, tuple[str, ...]]] = {
    "encoder": {"encoder.": ("encoder.",)},
    "generator": {"encoder.": ("encoder.", "generator.body."), "head.": ("generator.head.",)},
}


def inherit(
    parent: RunDir, spec: RunSpec, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[int, float, float]:
    """Load the weights that `spec.start` takes from the end of the parent's training.

    Return the step after which training continues, and the parent's seconds of training and of saving. Raises
    InputError if the parent's last checkpoint is missing, or lacks weights that are to be taken.
    """
    assert spec.start is not None
    newest = checkpoint.newest(parent.path / "checkpoints", parent.run_id)
    if newest is None or newest.step != parent.read_json("done.json")["steps"]:
        raise DamagedRun(
            f"{parent.path} is trained, but its last checkpoint is missing; delete that folder to train it again"
        )
    if spec.start.take == "all":
        return load(newest, model, optimizer)
    weights, copied = newest.tensors("model"), TAKEN[spec.start.take]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            for source, targets in copied.items():
                for target in targets:
                    if name.startswith(target):
                        given = weights.get(source + name.removeprefix(target))
                        if given is None or given.shape != parameter.shape:
                            raise InputError(f"the parent {parent.run_id} has no weights for {name} of this run")
                        parameter.copy_(given)
    return 0, float(newest.state["seconds"]), float(newest.state["saving"])


# ----------------------------------------
# Checkpoints written by a thread while training goes on.
#
# Training waits for a copy of weights and moments in main memory, and not for hashing, the disk, and reading back. The
# thread writes as `checkpoint.save` does, so that a checkpoint appears complete or not at all, and only one is written
# at a time. Until it has appeared, an interrupted run goes on from the one before it.


@dataclass(eq=False)
class BackgroundWriter(AbstractContextManager["BackgroundWriter"]):
    """Work on copies of tensors in a thread, one after another; a context that ends when the last one is done.

    An error of the thread is raised by the next call of `took`, `begin` or `wait`, or at the end of the context, unless
    another error ends it. The copies take 12 bytes of main memory a weight in fp32, and are kept for the next
    checkpoint.
    """

    device: torch.device
    copies: dict[str, dict[str, Tensor]] = field(default_factory=dict, init=False)
    stall: float = field(default=0.0, init=False)  # seconds for which training waited for the last checkpoint
    _work: float = field(default=0.0, init=False)  # processor seconds of the thread for the last checkpoint
    _pool: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1, "checkpoint"), init=False)
    _pending: Future[None] | None = field(default=None, init=False)

    @property
    def took(self) -> float:
        """The seconds that the last checkpoint took from training; infinite while it is being written.

        On a CPU these include the processor time of the thread, since training computes on the same cores. Raises the
        error that kept the checkpoint from being written.
        """
        if self._pending is not None and not self._pending.done():
            return math.inf
        self.wait()
        return self.stall + (self._work if self.device.type == "cpu" else 0.0)

    def begin(self, tensors: Groups, work: Callable[[Groups], None], begun: float) -> None:
        """Copy the tensors, and let the thread carry out `work` on the copies, after waiting for the work before.

        `begun` is the monotonic time from which on training has waited. Without memory for the copies, training waits
        until the work on the tensors themselves is done.
        """
        self.wait()
        copies = self._copied(tensors)

        def timed() -> None:
            start = time.thread_time()
            work(tensors if copies is None else copies)
            self._work = time.thread_time() - start

        self._pending = self._pool.submit(timed)
        if copies is None:
            self.wait()
        self.stall = time.monotonic() - begun

    def wait(self) -> None:
        """Wait until the work is done, and raise its error."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self.wait()
        except Exception as fault:
            if error is None:
                raise
            log.warning("the last checkpoint was not written: %s", fault)
        finally:
            self._pool.shutdown()

    def _copied(self, tensors: Groups) -> Groups | None:
        """Return copies of the tensors in main memory, or None if there is not enough.

        The memory is used again for the next checkpoint, and is pinned for tensors of a GPU.
        """
        try:
            for group, named in tensors.items():
                kept = self.copies.setdefault(group, {})
                for name, tensor in named.items():
                    if name not in kept:
                        kept[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
                    kept[name].copy_(tensor, non_blocking=True)
            if self.device.type == "cuda":
                torch.cuda.current_stream(self.device).synchronize()
            return {group: {name: self.copies[group][name] for name in named} for group, named in tensors.items()}
        except (RuntimeError, MemoryError) as error:
            if not is_memory(error):
                raise
        self.copies.clear()
        log.warning("training waits for checkpoints, as there is no memory for a copy of weights and moments")
        return None


@dataclass(eq=False)
class CheckpointWriter(BackgroundWriter):
    """The checkpoints of a run whose rows are in `metrics`.

    If several processes write `parts` of them, this one is the first.
    """

    run: RunDir
    metrics: Metrics
    parts: Parts | None = None

    def save(self, step: int, seconds: float, saving: float, tensors: Groups, begun: float) -> None:
        """Begin to write a checkpoint of a step; arguments as of `save` and `begin`."""
        content = self.metrics.content()

        def write(copies: Groups) -> None:
            self.metrics.sync()
            save(self.run, step, seconds, saving, copies, content, self.parts)

        self.begin(tensors, write, begun)


# ----------------------------------------
# Checkpoints of a sharded run, of which each process writes the parts of the tensors that it has.
#
# The first process names a folder through torch's store of keys; the others write their files there and answer with
# sizes and hashes, which go into the manifest. Files are as torch's distributed checkpoints have them in safetensors
# (`torch.distributed.checkpoint.HuggingFaceStorageReader` reads them). Torch's own writers are not used: they exchange
# pickled objects, know neither hashes nor staging, and serialize a whole file in memory.


WAIT = 0.02  # seconds between looks for what another process answers
Groups = Mapping[str, Mapping[str, Tensor]]


class Parts(AbstractContextManager["Parts"]):
    """The writing of checkpoints by the process `index` of `count`; a context, whose error ends all waiting.

    `store` are the keys of this run's processes, and `offsets` say by name where this process's tensors begin in whole
    ones. Every process calls `save` or `write` for the same checkpoints in the same order. A process that does not
    answer for `seconds` counts as ended.
    """

    def __init__(self, store: Any, index: int, count: int, offsets: checkpoint.Offsets, seconds: float) -> None:
        self.store, self.index, self.count, self.offsets, self.seconds = store, index, count, offsets, seconds
        self._number = 0
        self._over = threading.Event()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            self._over.set()

    def save(
        self, folder: Path, step: int, tensors: Groups, state: Mapping[str, Any], owner: Lease | None = None
    ) -> None:
        """Write a checkpoint with the other processes, as `checkpoint.save` does. Raises RankLost if one has ended."""
        self._number += 1
        place = f"draft/{self._number}"
        try:
            named = self._named(tensors)
            checkpoint.save(folder, step, named, state, owner=owner, beside=self._told, offsets=self.offsets)
        finally:
            if not self.store.check([place]):  # nothing was written, and the others wait for a folder
                self.store.set(place, "")

    def write(self, tensors: Groups) -> None:
        """Write the parts of this process, which is not the first, into the folder that the first one names.

        An error of the disk is left to the first process.
        """
        self._number += 1
        draft = self._awaited(f"draft/{self._number}")
        if not draft:
            return
        answer: dict[str, Any]
        try:
            answer = {"files": checkpoint.write_part(Path(draft), self._named(tensors), self.offsets)}
        except OSError as error:
            answer = {"error": [error.errno or errno.EIO, error.strerror, str(error.filename)]}
        self.store.set(f"part/{self._number}/{self.index}", json.dumps(answer))

    def _named(self, tensors: Groups) -> Groups:
        """Return the groups under the names of this process's parts."""
        return {f"{group}-{self.index + 1:05d}-of-{self.count:05d}": tensors[group] for group in tensors}

    def _told(self, draft: Path) -> Callable[[], Files]:
        """Tell the others the folder; return a function that waits for their files, and raises their OSError."""
        self.store.set(f"draft/{self._number}", str(draft.absolute()))

        def files() -> Files:
            files: Files = {}
            for index in range(1, self.count):
                answer = json.loads(self._awaited(f"part/{self._number}/{index}"))
                if "error" in answer:
                    raise OSError(*answer["error"])
                files |= answer["files"]
            return files

        return files

    def _awaited(self, key: str) -> str:
        """Return the value of a key once it is there. Raises RankLost if it does not come."""
        until = time.monotonic() + self.seconds
        while not self.store.check([key]):
            if self._over.wait(WAIT) or time.monotonic() > until:
                raise RankLost("another process of this run ended or did not answer while a checkpoint was written")
        return str(self.store.get(key).decode())
