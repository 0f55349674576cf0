"""Evaluation of encoders in any folder; scores of models that others trained are runs of the kind "published"."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from workbench import progress
from workbench.data import hugging_face, model_files
from workbench.data.hugging_face import known_model, model_folder
from workbench.data.tokenizer import contradiction, load_published_tokenizer
from workbench.errors import DamagedRun, Diverged, InputError, LeaseHeld, encodable, plural, remedy
from workbench.spec.host import Host
from workbench.spec.parts import TUNING_FIELDS, PublishedSpec, TasksSpec, size_in_words
from workbench.spec.run_spec import RunSpec, digest
from workbench.spec.stages import BoundRun, ResolvedSpec
from workbench.store.atomic import sha256
from workbench.store.environment import environment
from workbench.store.run_directory import home_of
from workbench.store.run_store import RunDir, RunStore
from workbench.tasks.common import contract
from workbench.tasks.common.contract import FINE_TUNING, Suite, expected, keep, take
from workbench.tasks.common.encoder_folders import encoder_facts
from workbench.tasks.common.fine_tuning import Unfinished

log = logging.getLogger("workbench")
OF_RUN = "its run"  # the source of settings that an encoder brings along


@dataclass(frozen=True)
class Model:
    """A model that is measured: the name that was given, and the folder with its files."""

    name: str
    folder: Path

    @property
    def known_as(self) -> str:
        """The name in the store: that on the hub, or the last part of a folder's path."""
        if known := known_model(self.name):
            return known.name
        place = Path(self.name).expanduser()  # `folder` may be a copy in the cache, with weights in another format
        return place.resolve().name if place.exists() else self.name


def models(names: Sequence[str], allow_bin: bool) -> list[Model]:
    """Return the models of these names or folders, downloaded if needed. Raises InputError."""
    opened = []
    for name in dict.fromkeys(names):
        folder = model_folder(name, allow_bin)
        opened.append(Model(name, model_files.with_safetensors(folder) if allow_bin else folder))
    return opened


def folder_of(published: PublishedSpec) -> Path:
    """Return the folder of the model whose scores a run holds. Raises InputError if it has other files."""
    if "/" not in published.name and not Path(published.name).is_dir():
        raise InputError(
            f"the run holds scores of {published.name}, and no folder of this name is here; give the same command "
            f"where {published.name} is, with --runs"
        )
    model = models([published.name], allow_bin=True)[0]
    if digest(_hashes(model.folder), 64) != published.files:
        raise InputError(f"{model.folder} holds other files than those of {published.name} that were measured")
    return model.folder


def stated_flops(model: Model, given: float | None) -> tuple[float | None, str]:
    """Return the training FLOPs of a model, `given` by --flops or published, or None, and who states them."""
    known = known_model(model.name)
    if given is not None:
        return given, "--flops"
    return (known.flops, known.flops_source or known.source) if known and known.flops else (None, "not stated")


@contextlib.contextmanager
def opened(root: Path, model: Model, host: Host, flops: float | None) -> Iterator[RunDir]:
    """Yield the run of a model's scores in the store at `root`, which is made if need be, with its lease held.

    Raises InputError if the run is damaged or in use.
    """
    if not encodable(model.known_as):
        raise InputError(f"{model.known_as!a} is not UTF-8, so no record can contain this name; rename the folder")
    files = _hashes(model.folder)
    run = RunStore(root).open(_bound(PublishedSpec(name=model.known_as, files=digest(files, 64))))
    if run.damage:
        raise DamagedRun(f"{run.path} is damaged: {run.damage}; {remedy(run.path)}")
    try:
        with run.lease(patience=0):
            _state_training(run, model, host, flops, files)
            yield run
    except LeaseHeld:
        raise InputError(
            f"{run.path} is being measured by another process; give the same command again later"
        ) from None


def _bound(published: PublishedSpec) -> BoundRun:
    from workbench.spec.presets import resolve

    base = resolve("nano", {"budget.steps": 0})
    return BoundRun(ResolvedSpec(base.replace(published=published.model_dump())))


def _state_training(run: RunDir, model: Model, host: Host, flops: float | None, files: dict[str, str]) -> None:
    """Write what is stated of a model's training, unless the same is there already."""
    amount, source = stated_flops(model, flops)
    stated = {"flops": {"paper": amount} if amount is not None else {}, "flops_source": source}
    if not run.trained:
        device, precision = host.resolved_device(), host.resolved_precision()
        run.write_json("env.json", environment(host.command or sys.argv, device=device, precision=precision))
        run.finish({"steps": 0, "tokens": 0, "encoder": files, **stated})
        return
    done = run.read_json("done.json")
    is_news = flops is not None or (amount is not None and not done["flops"])
    if is_news and {key: done.get(key) for key in stated} != stated:
        run.write_json("done.json", done | stated)


def _hashes(folder: Path) -> dict[str, str]:
    progress.say(f"reading {folder}")
    files = {
        "config.json": Path(os.path.realpath(folder / "config.json")),
        **hugging_face.check_encoder_folder(folder).weights,
        **hugging_face.check_tokenizer_folder(folder),
    }
    return {name: sha256(path) for name, path in sorted(files.items())}


def gone_on(base: RunSpec, given: Mapping[str, Any]) -> RunSpec:
    """Return a spec with the sizes, heads and tokenizer of the published pair that it goes on from.

    Raises InputError.
    """
    from workbench.models import published_pair
    from workbench.tasks.common.token_rows import check_tokens

    assert base.pair is not None
    pair = published_pair.find(base.pair)
    known = known_model(pair.names[0])
    settings = published_pair.settings(pair)
    ids = load_published_tokenizer(pair.discriminator.folder).get_vocab().values()
    check_tokens(pair.discriminator.folder, [list(ids)], settings["encoder.vocab"])
    keys = settings | {"pair.files": pair.files, "pair.flops": known.flops if known else None}
    for key, value in keys.items():
        if key in given and given[key] is not None and str(given[key]) != str(value):
            raise InputError(
                f"--set {key}={given[key]} contradicts start.from, whose models have {value}; leave it out"
            )
    spec = base.changed(keys)
    published_pair.check_generator(spec, pair)
    published_pair.check(pair)
    assert spec.pair is not None
    progress.say(f"where a run begins: {spec.pair.spent_before()}")
    return spec


def measure(
    model: Model, suite: Suite, base: RunSpec, host: Host, root: Path, flops: float | None
) -> tuple[list[dict[str, Any]], int]:
    """Measure a model with the settings of `base`, into the store at `root`; return scores and failures.

    Nothing is kept of an encoder that lies in a run, nor without tasks, so no store is made for them.
    """
    of_a_run = (home_of(model.folder)[0].path / "spec.json").is_file()  # whose scores are those of the run
    if not of_a_run and (doubt := contradiction(load_published_tokenizer(model.folder))):
        progress.warn_once(f"{model.name}: {doubt} in its tokenizer_config.json")
    if of_a_run or not suite.tasks:
        rows, failed = evaluate(model.folder, suite, base.tasks, base.scale, host, name=model.name)
    else:
        for suite_name in dict.fromkeys(task.suite for task in suite.tasks):  # the measures of a suite need the same
            next(task for task in suite.tasks if task.suite == suite_name).check(model.folder)
        with opened(root, model, host, flops) as run:
            rows, failed = evaluate(model.folder, suite, base.tasks, base.scale, host, run, model.name)
    return [{"model": model.name, **row} for row in rows], failed


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
                    score = take(
                        task, contract.Model(encoder, tasks, seed, partial(display.step, task.name), state), host
                    )
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
