"""Evaluation of an encoder in any folder, for `workbench evaluate`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from workbench import progress
from workbench.errors import Diverged, plural
from workbench.spec.host import Host
from workbench.spec.parts import TasksSpec, size_in_words
from workbench.store.run_directory import RunDir
from workbench.tasks.encoder_facts import EncoderFacts, encoder_facts
from workbench.tasks.measures import expected, take
from workbench.tasks.task import Measure, Suite, Task

log = logging.getLogger("workbench")


def evaluate(
    encoder: Path, suite: Suite, tasks: TasksSpec, scale: str, host: Host, run: RunDir | None = None, name: str = ""
) -> tuple[list[dict[str, Any]], int]:
    """Measure an encoder on every task; return its scores with their settings, and how many measurements failed.

    `scale` names the settings in `tasks`, which are printed first; `name` is that of the encoder, by default its
    folder. With a `run`, whose lease must be held, scores that it already has are not taken again, and each new one is
    written there. A measurement that diverges is logged as a warning, and the others go on. Raises InputError for a
    folder without an encoder.
    """
    name, facts = name or str(encoder), encoder_facts(encoder)
    length = min(tasks.length, facts.longest or tasks.length)
    place = "last token" if facts.reads_last else "first token"
    planned = list(expected(suite, tasks))
    if any(isinstance(task, Task) for task, _, _ in planned):
        progress.say(_settings(name, facts, tasks, scale, length, place))
    settings: dict[str, Any] = {"settings": scale, "length": length, "read_at": place}
    keep = _kept(run, [file for _, _, file in planned])
    rows = []
    with progress.measuring(Path(name).name, len(planned)) as display:
        for task, seed, file in planned:
            step = partial(display.step, task.name)
            measure = partial(_measured, encoder, task, tasks, seed, host, step, settings)
            try:
                row = keep(file, measure)
            except Diverged as error:
                advice = "; a lower learning rate, --set tasks.lr=, may help" if isinstance(task, Task) else ""
                log.warning("%s: %s%s", name, error, advice)
                if run is not None:
                    run.fail_score(file, task.name, seed, "diverged", str(error), act=task.act)
                continue
            display.scored(task.name, row["value"])
            rows.append(row)
    return rows, len(planned) - len(rows)


def _measured(
    encoder: Path, task: Measure, tasks: TasksSpec, seed: int, host: Host, step: Callable[[int, int], None],
    settings: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Return one new score as plain data, with the settings of the fine-tuning if there was one."""
    score = take(encoder, task, tasks, seed, host, step).to_json()
    return {**score, **settings} if isinstance(task, Task) else score


def _kept(run: RunDir | None, files: list[str]) -> Callable[[str, Callable[[], dict[str, Any]]], dict[str, Any]]:
    """Return a function that gives the score of a file: from the run if it is there, else measured, then written."""
    if run is None:
        return lambda file, measure: measure()
    run.want(files)
    known, digests = run.scores(), run.weight_digests()

    def keep(file: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if file in known:
            return known[file]
        score = measure()
        run.write_json(f"scores/{file}", score | digests)
        run.clear_failure(file)
        return score

    return keep


def _settings(name: str, facts: EncoderFacts, tasks: TasksSpec, scale: str, length: int, place: str) -> str:
    """Return a sentence on the settings of the fine-tuning."""
    epochs = f"{tasks.epochs:g}" if tasks.epochs else "by task"
    return (
        f"{name}, {size_in_words(facts.layers, facts.hidden)}, is fine-tuned with the settings of scale {scale}: "
        f"learning rate {tasks.lr:g}, layer decay {tasks.layer_decay:g}, weight decay {tasks.weight_decay:g}, "
        f"batch {tasks.batch}, epochs {epochs}, dropout {tasks.dropout:g}, texts cut to {length} tokens and read "
        f"at the {place}, {plural(tasks.seeds, 'seed')}; --scale or --set tasks.lr=... changes them"
    )
