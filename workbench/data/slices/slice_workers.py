"""Processes on this machine that encode the slices of a plan, each of which takes the next one that is free."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import IO

from workbench.data.slices.encode_slices import encode_missing
from workbench.data.slices.slice_plan import Plan
from workbench.data.streams import Advance
from workbench.errors import InputError
from workbench.spec.host import threads_for_each

log = logging.getLogger("workbench")
LOOK = 0.5  # seconds between two looks at the processes
PATIENCE = 10.0  # seconds for a process to end when nothing is left to do, or when it is told to
Child = tuple[subprocess.Popen[bytes], IO[bytes]]  # a process, and the file that takes its messages


def encode_with(plan: Plan, workers: int, advance: Advance) -> None:
    """Encode the missing slices of a plan by this number of processes; with one, it is this process.

    What a process that was killed leaves is encoded by the others, or in the end by this one. Raises InputError for
    text that cannot be read, and OSError if the disk fails.
    """
    if workers > 1:
        _share(plan, min(workers, len(plan.slices)), advance)
        advance = _nothing
    encode_missing(plan, advance)


def _nothing(_: int) -> None:
    """Report nothing: all slices were counted before."""


def _share(plan: Plan, workers: int, advance: Advance) -> None:
    """Start the processes, and wait until they have ended. An exception here ends them."""
    with ExitStack() as files:
        children: list[Child] = []
        try:
            for _ in range(workers):
                children.append(_started(plan, workers, files.enter_context(tempfile.TemporaryFile())))
            _wait(plan, children, advance)
        finally:
            _end([child for child, _ in children])


def _started(plan: Plan, workers: int, messages: IO[bytes]) -> Child:
    """Start a process with its share of the cores (RAYON_NUM_THREADS is read by the library of tokenizers)."""
    return subprocess.Popen(
        [sys.executable, "-m", "workbench", "encode-slices", str(plan.path), "--parent", str(os.getpid())],
        env=os.environ | {"RAYON_NUM_THREADS": str(threads_for_each(workers))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=messages,
    ), messages


def _end(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """Tell the processes to end, and kill those that do not, such as one that was stopped: nothing is lost by it."""
    for child in children:
        child.terminate()
    until = time.monotonic() + PATIENCE
    for child in children:
        try:
            child.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _wait(plan: Plan, children: Sequence[Child], advance: Advance) -> None:
    """Report progress until all processes have ended, or all slices are there and one still does not answer.

    Raises the error that ended one of them.
    """
    left, running, last = set(range(len(plan.slices))), list(children), time.monotonic()
    while running:
        if not left and time.monotonic() - last > PATIENCE:
            log.warning("all slices are there, and a worker does not answer; it is ended")
            return
        time.sleep(LOOK)
        for number in [number for number in left if plan.folder(number).is_dir()]:
            left.remove(number)
            advance(plan.slices[number].size)
            last = time.monotonic()
        for child in [child for child in running if child[0].poll() is not None]:
            running.remove(child)
            _judge(*child)


def _judge(child: subprocess.Popen[bytes], messages: IO[bytes]) -> None:
    """Raise the error with which a process ended; one that was killed is reported, and the others go on."""
    code = child.returncode
    messages.seek(0)
    lines = messages.read().decode(errors="replace").strip().splitlines()
    last = lines[-1].removeprefix("workbench: ") if lines else ""
    if code == 2:
        raise InputError(last)
    if code == 74:
        raise OSError(errno.EIO, last)
    for line in lines:
        log.warning("%s", line.removeprefix("workbench: "))
    if code:
        log.warning("a worker ended early, with %s", f"signal {-code}" if code < 0 else f"exit code {code}")
