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
from workbench.spec.parts import TUNING_FIELDS, TasksSpec, size_in_words
from workbench.store.run_directory import RunDir
from workbench.tasks.common.contract import Score, keep
from workbench.tasks.common.encoder_folders import EncoderFacts, encoder_facts
from workbench.tasks.common.examples import Measure, Suite, Task
from workbench.tasks.common.fine_tuning import Unfinished
from workbench.tasks.embeddings import Embedding
from workbench.tasks.measures import expected, take
from workbench.tasks.squad import LENGTH as SQUAD_LENGTH
from workbench.tasks.squad import Squad
from workbench.tasks.tagging import Tagging

log = logging.getLogger("workbench")
OF_RUN = "its run"  # the source of settings that an encoder brings along
Measuring = Callable[[Unfinished | None], Score]  # measures, going on from a state if there is one


def evaluate(
    encoder: Path, suite: Suite, tasks: TasksSpec, scale: str, host: Host, run: RunDir | None = None, name: str = ""
) -> tuple[list[dict[str, Any]], int]:
    """Measure an encoder on every task; return its scores with their settings, and how many measurements failed.

    `scale` names the settings in `tasks`, unless these are those of the encoder's run, and they are printed first;
    `name` is that of the encoder, by default its
    folder. With a `run`, whose lease must be held, scores that it already has are not taken again, and each new one is
    written there. A measurement that diverges is logged as a warning, and the others go on. Raises InputError for a
    folder without an encoder.
    """
    name, facts = name or str(encoder), encoder_facts(encoder)
    of_run = facts.origin is not None and facts.origin.tasks == tasks.model_dump(include={*TUNING_FIELDS})
    source = OF_RUN if of_run else scale
    length = min(tasks.length, facts.longest or tasks.length)
    place = "last token" if facts.reads_last else "first token"
    planned = list(expected(suite, tasks))
    wanted = tasks.squad_length or SQUAD_LENGTH
    windows = min(wanted, facts.longest or wanted)
    if how := _reading([task for task, _, _ in planned], length, place, windows):
        progress.say(_settings(name, facts, tasks, source if of_run else f"scale {scale}", how))
    settings: dict[str, Any] = {"settings": source, "length": length}
    shown_of = {
        Task: settings | {"read_at": place}, Tagging: settings, Squad: {"settings": source}, Embedding: settings,
    }  # fmt: skip
    write = _writer(run, [file for _, _, file in planned])
    rows = []
    with progress.measuring(Path(name).name, len(planned)) as display:
        for task, seed, file in planned:
            step = partial(display.step, task.name)
            measure = partial(take, encoder, task, tasks, seed, host, step)
            shown = shown_of.get(type(task), {}) if task.act == "fine-tuning" else {}
            try:
                row = write(file, measure, shown)
            except Diverged as error:
                advice = "; a lower learning rate, --set tasks.lr=, may help" if task.act == "fine-tuning" else ""
                log.warning("%s: %s%s", name, error, advice)
                if run is not None:
                    run.fail_score(file, task.name, seed, "diverged", str(error), act=task.act)
                continue
            display.scored(task.name, row["value"])
            rows.append(row)
    return rows, len(planned) - len(rows)


def _writer(run: RunDir | None, files: list[str]) -> Callable[[str, Measuring, Mapping[str, Any]], dict[str, Any]]:
    """Return a function that gives the content of a score's file: from the run if it is there, else measured.

    Its arguments are the file, the measurement, and the settings to be added. A new score is written to the run.
    """
    if run is None:
        return lambda file, measure, settings: {**measure(None).to_json(), **settings}
    run.want(files)
    known, digests = run.scores(), run.weight_digests()

    def write(file: str, measure: Measuring, settings: Mapping[str, Any]) -> dict[str, Any]:
        if file in known:
            return known[file]
        state = Unfinished(run, file, digests)
        content = keep(run, file, measure(state), {**settings, **digests})
        state.delete()
        run.clear_failure(file)
        return content

    return write


def _reading(tasks: list[Measure], length: int, place: str, windows: int) -> str:
    """Return how fine-tuning reads its rows, in a phrase; "" if there is none. `windows` are SQuAD's, in tokens."""
    texts = f"texts cut to {length} tokens and read at the {place}"
    words = f"sentences of tagged words read in windows of {length} tokens"
    questions = f"questions read with windows of their paragraphs, {windows} tokens together"
    pairs = f"texts of pairs cut to {length} tokens, each one embedding"
    kinds = {type(task) for task in tasks if task.act == "fine-tuning"}
    phrases = {Task: texts, Tagging: words, Squad: questions, Embedding: pairs}
    return " and ".join(phrase for kind, phrase in phrases.items() if kind in kinds)


def _settings(name: str, facts: EncoderFacts, tasks: TasksSpec, source: str, reading: str) -> str:
    """Return a sentence on the settings of the fine-tuning, and on their source."""
    epochs = f"{tasks.epochs:g}" if tasks.epochs else "by task"
    return (
        f"{name}, {size_in_words(facts.layers, facts.hidden)}, is fine-tuned with the settings of {source}: "
        f"learning rate {tasks.lr:g}, layer decay {tasks.layer_decay:g}, weight decay {tasks.weight_decay:g}, "
        f"batch {tasks.batch}, epochs {epochs}, dropout {tasks.dropout:g}, {reading}, "
        f"{plural(tasks.seeds, 'seed')}; --scale or --set tasks.lr=... changes them"
    )
