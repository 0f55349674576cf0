"""Evaluation of an encoder in any folder, for `workbench evaluate`."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

from workbench import progress
from workbench.errors import Diverged, plural
from workbench.spec.host import Host
from workbench.spec.parts import TUNING_FIELDS, TasksSpec, size_in_words
from workbench.store.run_directory import RunDir
from workbench.tasks.common.contract import FINE_TUNING, Model, Suite, expected, keep, take
from workbench.tasks.common.encoder_folders import encoder_facts
from workbench.tasks.common.fine_tuning import Unfinished

log = logging.getLogger("workbench")
OF_RUN = "its run"  # the source of settings that an encoder brings along


def evaluate(
    encoder: Path, suite: Suite, tasks: TasksSpec, scale: str, host: Host, run: RunDir | None = None, name: str = ""
) -> tuple[list[dict[str, Any]], int]:
    """Measure an encoder on every task; return its scores with their settings, and how many measurements failed.

    The settings in `tasks` are printed first; `scale` is their name, unless they are the settings of the encoder's run.
    `name` is the name of the encoder, by default its folder. With a `run`, whose lease must be held, scores that it
    already has are not taken again, and each new one is written there. A measurement that diverges is logged as a
    warning, and the others go on. Raises InputError for a folder without an encoder.
    """
    name, facts = name or str(encoder), encoder_facts(encoder)
    of_run = facts.origin is not None and facts.origin.tasks == tasks.model_dump(include={*TUNING_FIELDS})
    source = OF_RUN if of_run else scale
    planned = list(expected(suite, tasks))
    reading = {task.name: task.reading(tasks, facts) for task in suite.tasks}
    if how := " and ".join(dict.fromkeys(phrase for phrase, _ in reading.values() if phrase)):
        epochs = f"{tasks.epochs:g}" if tasks.epochs else "by task"
        progress.say(
            f"{name}, {size_in_words(facts.layers, facts.hidden)}, is fine-tuned with the settings of "
            f"{source if of_run else f'scale {scale}'}: learning rate {tasks.lr:g}, layer decay {tasks.layer_decay:g}, "
            f"weight decay {tasks.weight_decay:g}, batch {tasks.batch}, epochs {epochs}, dropout {tasks.dropout:g}, "
            f"{how}, {plural(tasks.seeds, 'seed')}; --scale or --set tasks.lr=... changes them"
        )
    known, digests = dict[str, dict[str, Any]](), dict[str, Any]()
    if run is not None:
        run.want([file for _, _, file in planned])
        known, digests = run.scores(), run.weight_digests()
    rows = []
    with progress.measuring(Path(name).name, len(planned)) as display:
        for task, seed, file in planned:
            tuned = task.act == FINE_TUNING
            settings = {"settings": source, **reading[task.name][1]} if tuned else {}
            state = Unfinished(run, file, digests) if run is not None else None
            try:
                row = known.get(file)
                if row is None:
                    score = take(task, Model(encoder, tasks, seed, partial(display.step, task.name), state), host)
                    row = score.to_json() | settings
                    if run is not None and state is not None:
                        row = keep(run, file, score, settings | digests)
                        state.delete()
                        run.clear_failure(file)
            except Diverged as error:
                advice = "; a lower learning rate, --set tasks.lr=, may help" if tuned else ""
                log.warning("%s: %s%s", name, error, advice)
                if run is not None:
                    run.fail_score(file, task.name, seed, "diverged", str(error), act=task.act)
                continue
            display.scored(task.name, row["value"])
            rows.append(row)
    return rows, len(planned) - len(rows)
