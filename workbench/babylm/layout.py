"""Export of the runs of an experiment in BabyLM's layout: models by revision, predictions, and collated files.

OUT/models/RUN/REVISION/                                    a Hugging Face folder each
OUT/results/RUN/REVISION/zero_shot/BACKEND/TASK/SET/        predictions.json
OUT/results/RUN/REVISION/finetune/TASK/                     predictions.json
OUT/results/RUN/all_full_preds_and_fast_scores_BACKEND.json
OUT/scores.csv                                              scores by BabyLM's arithmetic, and ours
"""

from __future__ import annotations

import csv
import json
import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.babylm import collated, model_folder
from workbench.babylm.predictions import SETS, Predicted, of_labels, of_pairs
from workbench.babylm.revisions import Revision, missing, revisions, track
from workbench.errors import DAMAGE, InputError, remedy
from workbench.spec.parts import TasksSpec
from workbench.store import validation
from workbench.store.atomic import disk_errors, draft_in, place_first, sweep_old, sync_tree
from workbench.store.run_directory import RunDir
from workbench.store.run_store import RunStore, check_outside
from workbench.tasks import minimal_pairs
from workbench.tasks.babylm_glue import SUITE
from workbench.tasks.minimal_pairs import PairSet

log = logging.getLogger("workbench")


def export(store: RunStore, record: str, out: Path, verify: bool = True) -> list[dict[str, Any]]:
    """Write the export to the folder `out` in one step and return the rows of scores.csv.

    `out` must be empty or absent. Damaged runs, and runs that are not trained to their end, are named in warnings
    and left out; with `verify` every file is compared with its hash. Raises InputError if no run is left, or if the
    pairs that were scored are no longer available.
    """
    taken = InputError(f"--babylm {out}: this path is a file or a folder that is not empty; name a new folder")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise taken
    check_outside(store.root, out, "--babylm")
    experiment = store.experiment(record)
    runs = undamaged(map(store.get, experiment.runs), verify)
    if not runs:
        raise InputError(f"{record} has no trained run to export; run its command again, which trains what is missing")
    pairs = _pairs(experiment.base_spec().tasks)
    existing = next(place for place in out.absolute().parents if place.is_dir())  # folders below are made at the end
    sweep_old(existing)
    draft = draft_in(existing)
    with disk_errors(out):
        try:
            table = [row for run in runs for row in _run(run, pairs, draft)]
            _csv(table, draft / "scores.csv")
            sync_tree(draft)
            out.parent.mkdir(parents=True, exist_ok=True)
            if not place_first(draft, out):
                raise taken
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return table


def undamaged(runs: Iterable[RunDir], verify: bool) -> list[RunDir]:
    """Return the trained runs whose files are undamaged, and name the others in warnings."""
    left = []
    for run in runs:
        if not run.trained:
            log.warning("%s is not trained to its end, so it is left out", run.run_id)
        elif fault := validation.fault(run.path, full=verify):
            fix = remedy(run.path, "the command that trained it")
            DAMAGE.warning("%s is damaged and is left out: %s; %s", run.path, fault, fix)
        else:
            left.append(run)
    return left


def _pairs(tasks: TasksSpec) -> dict[str, PairSet]:
    """Return BabyLM's sets of minimal pairs that the experiment selected, by name."""
    names = tuple(name for name in tasks.names if Path(name).name.partition(".jsonl")[0] in SETS)
    return {pairs.name: pairs for pairs in minimal_pairs.load(names, tasks.model_copy(update={"held_out": 0.0}))}


def _run(run: RunDir, pairs: Mapping[str, PairSet], out: Path) -> list[dict[str, Any]]:
    """Write the models and predictions of one run; return its rows of scores.csv."""
    by_backend: dict[str, dict[str, list[Predicted]]] = {}
    for revision in revisions(run):
        if run.has_weights(revision.place):
            model_folder.write(run, revision.folder(run), out / "models" / run.run_id / revision.name, revision.name)
        else:
            log.warning("%s: the weights of %s were deleted, so no model is written", run.run_id, revision.name)
        for backend, each in _predicted(run, revision, pairs):
            by_backend.setdefault(backend, {}).setdefault(revision.name, []).append(each)
            path = out / "results" / run.run_id / revision.name / each.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(each.predictions, ensure_ascii=False), encoding="utf-8")
    if absent := missing(run):
        log.warning(
            "%s has no weights of the revisions %s; train it in another store with --evaluate-at words",
            run.run_id, ", ".join(absent),
        )  # fmt: skip
    for fault in _faults(by_backend):
        log.warning("%s: %s, so it is left out of the collated files", run.run_id, fault)
    if not by_backend:
        log.warning("%s has no scores of BabyLM's tasks with predictions, so only models are written", run.run_id)
    tuned = by_backend.pop("finetune", {})
    table = []
    for backend, by_revision in (by_backend or {"mlm": {}}).items():
        whole = {
            name: [*by_revision.get(name, ()), *tuned.get(name, ())] for name in dict.fromkeys([*by_revision, *tuned])
        }
        if not whole:
            continue
        path = out / "results" / run.run_id / f"all_full_preds_and_fast_scores_{backend}.json"
        path.write_text(json.dumps(collated.collated(whole, track(run)), ensure_ascii=False), encoding="utf-8")
        table += collated.rows(run.run_id, whole, backend)
    return table


def _faults(by_backend: Mapping[str, Mapping[str, list[Predicted]]]) -> list[str]:
    """Return each fault in a number of rows once."""
    every = (each for by_task in by_backend.values() for predictions in by_task.values() for each in predictions)
    return list(dict.fromkeys(each.counts for each in every if each.counts))


def _predicted(run: RunDir, revision: Revision, pairs: Mapping[str, PairSet]) -> Iterator[tuple[str, Predicted]]:
    """Yield the predictions of one revision with their backend, which is "finetune" for fine-tuned tasks.

    Of several fine-tuning seeds only the first is exported, because BabyLM's pipeline has one.
    """
    scores = run.scores(revision.place).values()
    for score in sorted(scores, key=lambda score: (score["task"], score["seed"])):
        if score["suite"] == SUITE and "predicted" in score and score["seed"] == 0:
            yield "finetune", of_labels(score["task"], score["predicted"], score)
        given = pairs.get(score["task"])
        if given is None or "chosen" not in score:
            continue
        if score["data"] != given.fingerprint:
            log.warning(
                "%s: %s was scored on other pairs than the files hold now, and is left out", run.run_id, given.name
            )
            continue
        for scorer, signs in score["chosen"].items():
            ours = score["value"] if scorer == score["scorer"] else score["values"][scorer]["accuracy"]
            made = of_pairs(given, scorer, signs, ours)
            yield made.file.split("/")[1], made


def _csv(table: list[dict[str, Any]], path: Path) -> None:
    """Write the table of scores."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = ("run_id", "revision", "backend", "task", "pipeline", "with_f1", "ours", "ties", "rows", "missing")
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(table)
