"""Scores of published models in a store, on the same tasks and data as the runs of an experiment."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import DAMAGE, remedy
from workbench.report.load import run_files
from workbench.report.load.naming import PUBLISHED, kind_of
from workbench.spec.scoring import place_of
from workbench.store.run_store import RunStore

Row = Mapping[str, Any]


@dataclass(frozen=True)
class PublishedRun:
    """A published model. `flops` are those that its source states, NaN if it states none.

    `scores` maps each task to its scores by fine-tuning seed, and `suites` maps it to its suite.
    """

    run_id: str
    name: str
    flops: float
    source: str
    scores: Mapping[str, Mapping[int, float]]
    suites: Mapping[str, str]


def read(store: RunStore, chosen: Iterable[Row], verify: bool) -> tuple[tuple[PublishedRun, ...], list[str]]:
    """Return the published models of a store, and sentences on what of them is left out.

    A score counts if one of the `chosen` scores is of the same task, metric and data. Settings of fine-tuning may
    differ, since each model has those for its size.
    """
    same = {(row["task"], row["metric"], row["data"]) for row in chosen}
    names = [run.run_id for run in store.runs() if run.run_id.startswith(f"{PUBLISHED}-")] if same else []
    models, notes = [], []
    for files in run_files.every_run(store, names, verify):
        spec = run_files.part(run_files.optional(store.root / files.run_id / "spec.json", files.records), "spec")
        if files.state == "damaged":
            notes.append(f"{_shown(files.run_id, spec)} is damaged and is left out: {files.note}")
            path = store.root / files.run_id
            fix = remedy(path, "the command that measured it")
            DAMAGE.warning("%s is damaged and is left out: %s; %s", path, files.note, fix)
        elif kind_of(spec) == PUBLISHED:
            model, left_out = _model(files, spec, store.root / files.run_id, same)
            models += [model] if model.scores else []
            notes += left_out
    return tuple(models), notes


def _model(
    files: run_files.RunFiles, spec: Row, folder: Path, same: set[tuple[Any, ...]]
) -> tuple[PublishedRun, list[str]]:
    """Return a published model with its comparable scores, and sentences on those that are left out."""
    run_id, done = files.run_id, run_files.optional(folder / "done.json", files.records)
    read_scores = list(run_files.scores_of(folder, files.records))
    shown = _shown(run_id, spec)
    notes = [f"{shown}: {fault}" for _, fault in read_scores if fault]
    usable = [row for row, _ in read_scores if row and not math.isnan(row["value"])]
    rows = [row for row in usable if (row["task"], row["metric"], row["data"]) in same]
    others = sorted({row["task"] for row in usable} & {task for task, _, _ in same} - {row["task"] for row in rows})
    notes += [f"{shown}: its scores on {task} are of other data and are left out" for task in others]
    by_task = {task: _largest([row for row in rows if row["task"] == task]) for task in _tasks(rows)}
    return PublishedRun(
        run_id, str(run_files.part(spec, "published").get("name")),
        run_files.number(run_files.part(done, "flops").get("paper")), str(done.get("flops_source") or ""),
        {task: {row["seed"]: row["value"] for row in group} for task, group in by_task.items()},
        {task: group[0]["suite"] for task, group in by_task.items()},
    ), notes  # fmt: skip


def _shown(run_id: str, spec: Row) -> str:
    """Return a model's name, which its run's id does not have, and the id; the id alone if the spec cannot be read."""
    name = run_files.part(spec, "published").get("name")
    return f"{name} ({run_id})" if name else run_id


def _tasks(rows: Sequence[Row]) -> list[str]:
    return sorted({row["task"] for row in rows}, key=lambda task: (place_of(_suite(rows, task)), task))


def _suite(rows: Sequence[Row], task: str) -> str:
    return next(str(row["suite"]) for row in rows if row["task"] == task)


def _largest(rows: Sequence[Row]) -> list[Row]:
    """Return the scores under the setting of fine-tuning that has most of them."""
    groups = {
        digest: [row for row in rows if row["digest"] == digest] for digest in sorted({r["digest"] for r in rows})
    }
    return max(groups.values(), key=len)
