"""Checkpoints written by a thread while training goes on.

Training waits for a copy of weights and moments in main memory, and not for hashing, the disk, and reading back. The
thread writes as `checkpoint.save` does, so that a checkpoint appears complete or not at all, and only one is written
at a time. Until it has appeared, an interrupted run goes on from the one before it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from workbench.memory import is_memory
from workbench.store.run_store import RunDir
from workbench.tracking import Metrics
from workbench.training.checkpoint_parts import Groups, Parts
from workbench.training.resume import save

log = logging.getLogger("workbench")


class BackgroundWriter:
    """Work on copies of tensors in a thread, one after another; a context that ends when the last one is done.

    An error of the thread is raised by the next call of `took`, `begin` or `wait`, or at the end of the context, unless
    another error ends it. The copies take 12 bytes of main memory a weight in fp32, and are kept for the next
    checkpoint.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.copies: dict[str, dict[str, Tensor]] = {}
        self.stall = 0.0  # seconds for which training waited for the last checkpoint
        self._work = 0.0  # processor seconds of the thread for the last checkpoint
        self._pool = ThreadPoolExecutor(1, "checkpoint")
        self._pending: Future[None] | None = None

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
        self._pending = self._pool.submit(self._timed, lambda: work(tensors if copies is None else copies))
        if copies is None:
            self.wait()
        self.stall = time.monotonic() - begun

    def wait(self) -> None:
        """Wait until the work is done, and raise its error."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self.wait()
        except Exception as fault:
            if error is None:
                raise
            log.warning("the last checkpoint was not written: %s", fault)
        finally:
            self._pool.shutdown()

    def _timed(self, work: Callable[[], None]) -> None:
        """Carry out `work` and keep the processor time that it took."""
        begun = time.thread_time()
        work()
        self._work = time.thread_time() - begun

    def _copied(self, tensors: Groups) -> Groups | None:
        """Return copies of the tensors in main memory, or None if there is not enough."""
        try:
            return self._copies(tensors)
        except (RuntimeError, MemoryError) as error:
            if not is_memory(error):
                raise
        self.copies.clear()
        log.warning("training waits for checkpoints, as there is no memory for a copy of weights and moments")
        return None

    def _copies(self, tensors: Groups) -> Groups:
        """Return copies in memory that is used again for the next checkpoint, and pinned for tensors of a GPU."""
        for group, named in tensors.items():
            kept = self.copies.setdefault(group, {})
            for name, tensor in named.items():
                if name not in kept:
                    kept[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
                kept[name].copy_(tensor, non_blocking=True)
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        return {group: {name: self.copies[group][name] for name in named} for group, named in tensors.items()}


class CheckpointWriter(BackgroundWriter):
    """The checkpoints of a run whose rows are in `metrics`.

    If several processes write `parts` of them, this one is the first.
    """

    def __init__(self, run: RunDir, metrics: Metrics, device: torch.device, parts: Parts | None = None) -> None:
        super().__init__(device)
        self.run, self.metrics, self.parts = run, metrics, parts

    def save(self, step: int, seconds: float, saving: float, tensors: Groups, begun: float) -> None:
        """Begin to write a checkpoint of a step; arguments as of `resume.save` and `begin`."""
        content = self.metrics.content()

        def write(copies: Groups) -> None:
            self.metrics.sync()
            save(self.run, step, seconds, saving, copies, content, self.parts)

        self.begin(tensors, write, begun)
