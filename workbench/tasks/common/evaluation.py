"""Evaluation of an encoder in any folder, for `workbench evaluate`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from workbench import progress
from workbench.errors import Diverged, plural
from workbench.spec.host import Host
from workbench.spec.parts import TUNING_FIELDS, TasksSpec, size_in_words
from workbench.store.run_directory import RunDir
from workbench.tasks.common.contract import FINE_TUNING, Measure, Model, Suite, expected, keep, take
from workbench.tasks.common.encoder_folders import EncoderFacts, encoder_facts
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
        progress.say(_settings(name, facts, tasks, source if of_run else f"scale {scale}", how))
    write = _writer(run, [file for _, _, file in planned], host)
    rows = []
    with progress.measuring(Path(name).name, len(planned)) as display:
        for task, seed, file in planned:
            step = partial(display.step, task.name)
            tuned = task.act == FINE_TUNING
            model = Model(encoder, tasks, seed, step)
            try:
                row = write(file, model, task, {"settings": source, **reading[task.name][1]} if tuned else {})
            except Diverged as error:
                advice = "; a lower learning rate, --set tasks.lr=, may help" if tuned else ""
                log.warning("%s: %s%s", name, error, advice)
                if run is not None:
                    run.fail_score(file, task.name, seed, "diverged", str(error), act=task.act)
                continue
            display.scored(task.name, row["value"])
            rows.append(row)
    return rows, len(planned) - len(rows)


def _writer(
    run: RunDir | None, files: list[str], host: Host
) -> Callable[[str, Model, Measure, Mapping[str, Any]], dict[str, Any]]:
    """Return a function that gives the content of a score's file: from the run if it is there, else measured.

    Its arguments are the file, the encoder, the measure and the settings to be added. A new score is written to the
    run.
    """
    if run is None:
        return lambda file, model, task, settings: {**take(task, model, host).to_json(), **settings}
    run.want(files)
    known, digests = run.scores(), run.weight_digests()

    def write(file: str, model: Model, task: Measure, settings: Mapping[str, Any]) -> dict[str, Any]:
        if file in known:
            return known[file]
        state = Unfinished(run, file, digests)
        score = take(task, replace(model, unfinished=state), host)
        content = keep(run, file, score, {**settings, **digests})
        state.delete()
        run.clear_failure(file)
        return content

    return write


def _settings(name: str, facts: EncoderFacts, tasks: TasksSpec, source: str, reading: str) -> str:
    """Return a sentence on the settings of the fine-tuning, and on their source."""
    epochs = f"{tasks.epochs:g}" if tasks.epochs else "by task"
    return (
        f"{name}, {size_in_words(facts.layers, facts.hidden)}, is fine-tuned with the settings of {source}: "
        f"learning rate {tasks.lr:g}, layer decay {tasks.layer_decay:g}, weight decay {tasks.weight_decay:g}, "
        f"batch {tasks.batch}, epochs {epochs}, dropout {tasks.dropout:g}, {reading}, "
        f"{plural(tasks.seeds, 'seed')}; --scale or --set tasks.lr=... changes them"
    )
