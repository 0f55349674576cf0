"""Evaluation of an encoder in any folder, for `workbench evaluate`."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

from workbench import progress
from workbench.errors import Diverged, plural
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec, size_in_words
from workbench.tasks.encoder_facts import encoder_facts
from workbench.tasks.measures import expected, take
from workbench.tasks.task import Suite, Task

log = logging.getLogger("workbench")


def evaluate(encoder: Path, suite: Suite, tasks: TasksSpec, scale: str, host: Host) -> tuple[list[dict[str, Any]], int]:
    """Measure an encoder on every task; return its scores with their settings, and how many measurements failed.

    `scale` names the settings in `tasks`, which are printed first. A measurement that diverges is logged as a
    warning, and the others go on. Raises InputError for a folder without an encoder.
    """
    facts = encoder_facts(encoder)
    length = min(tasks.length, facts.longest or tasks.length)
    place = "last token" if facts.reads_last else "first token"
    epochs = f"{tasks.epochs:g}" if tasks.epochs else "by task"
    planned = list(expected(suite, tasks))
    fine_tuned = [task for task, _, _ in planned if isinstance(task, Task)]
    if fine_tuned:
        progress.say(
            f"{encoder}, {size_in_words(facts.layers, facts.hidden)}, is fine-tuned "
            f"with the settings of scale {scale}: "
            f"learning rate {tasks.lr:g}, layer decay {tasks.layer_decay:g}, weight decay {tasks.weight_decay:g}, "
            f"batch {tasks.batch}, epochs {epochs}, dropout {tasks.dropout:g}, texts cut to {length} tokens and read "
            f"at the {place}, {plural(tasks.seeds, 'seed')}; --scale or --set tasks.lr=... changes them"
        )
    settings: dict[str, Any] = {"settings": scale, "length": length, "read_at": place}
    rows = []
    with progress.measuring(encoder.name, len(planned)) as display:
        for task, seed, _ in planned:
            try:
                score = take(encoder, task, tasks, seed, host, partial(display.step, task.name))
            except Diverged as error:
                advice = "; a lower learning rate, --set tasks.lr=, may help" if isinstance(task, Task) else ""
                log.warning("%s: %s%s", encoder, error, advice)
                continue
            display.scored(task.name, score.value)
            rows.append(score.to_json() | (settings if isinstance(task, Task) else {}))
    return rows, len(planned) - len(rows)
