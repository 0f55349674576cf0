"""What the processes of a run do that are not its first: they wait for what that one announces, and take part."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import objectives
from workbench.execution.several_devices.devices import (
    OVER,
    WAIT,
    Training,
    host_of_each,
    rendezvous,
    seconds,
    store_of_launcher,
)
from workbench.execution.several_devices.shared_scoring import part_of_scoring
from workbench.signals import end_with_parent, heed
from workbench.spec.host import PARENT, Host, number_by_launcher
from workbench.store.run_store import RunDir, RunStore

if TYPE_CHECKING:
    from workbench.training.distributed import Ranks

log = logging.getLogger("workbench")


def follow_all() -> None:
    """Take part in every training that the first process announces, until its command is over.

    Raises InputError if the environment variables are not set by which that process is found, and RankLost if it is not
    there.
    """
    rank = number_by_launcher("RANK")
    if PARENT in os.environ:
        end_with_parent(number_by_launcher(PARENT))
    log.setLevel(logging.ERROR)  # the first process says everything once
    store, number = _store_of_follower(), 1
    store.set(f"ready/{rank}", "")
    while (text := _next(store, number)) is not None:
        _take_part(Training.read(text), store)
        number += 1


def _store_of_follower() -> Any:
    return store_of_launcher(False) if PARENT in os.environ else rendezvous()


def _next(store: Any, number: int) -> str | None:
    """Wait for the announcement of a training; return None if the command is over, or its first process is gone."""
    key = f"training/{number}"
    try:
        while not store.check([key]):
            heed()
            time.sleep(WAIT)
        text = store.get(key).decode()
    except RuntimeError:  # the process that holds the store has ended
        return None
    return None if text == OVER else text


def _take_part(training: Training, store: Any) -> None:
    """Compute this process's part of a run."""
    from workbench.training.distributed import group, part_of

    run, host = RunStore(Path(training.run).parent).get(Path(training.run).name), host_of_each(Host(**training.host))
    index, device = number_by_launcher("RANK"), host.resolved_device()
    work = _following(run, host) if training.scoring is None else part_of_scoring(run, host, training.scoring)
    with group(part_of(store, f"group/{training.number}"), index, host.devices, device, seconds(), host.shard) as ranks:
        work(ranks)


def _following(run: RunDir, host: Host) -> Callable[[Ranks], None]:
    """Return the work of this process for the training of a run, whose text is opened here."""
    from workbench.data.corpus import corpus_of
    from workbench.data.prepare import prepare
    from workbench.execution.wanted_scores import plan_of
    from workbench.training import loop

    objectives.keep_source(spec := run.spec().placed(host.places), run.path / "objective.py")
    corpus = corpus_of(prepare(spec), spec)
    return lambda ranks: loop.follow(spec, plan_of(run), corpus, host, ranks)
