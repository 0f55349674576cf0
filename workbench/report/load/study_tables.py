"""The tables of one study, read from its run directories: a row for each run, score and part of a training curve.

A file that cannot be read is named in `notes`, and all others are still read. Nothing is averaged here, except the
logged rows within one part of a training curve. A run may also have been scored for other experiments; the scores that
count are chosen by the settings of this one. Published models in the store stand beside the runs.
"""

from __future__ import annotations

import functools
import logging
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workbench.errors import DAMAGE, plural, remedy
from workbench.report.load import run_files
from workbench.report.load.arm_names import PUBLISHED, arm_names, budget_of, code_of, kind_of
from workbench.report.load.run_files import FINISHED, Packed, RunFiles, number
from workbench.spec.parts import CONVENTIONS, COUNTS
from workbench.spec.run_spec import PLACES
from workbench.spec.scoring import EMBEDDINGS, FROM_PATHS, PATH_PREFIXES, place_of
from workbench.store import manage
from workbench.store.environment import SWITCH, kinds_of_arithmetic
from workbench.store.run_directory import RunDir
from workbench.store.run_store import RunStore

if TYPE_CHECKING:
    import pandas as pd

    from workbench.store.run_store import ExperimentRecord

FLOPS = tuple(f"flops_{convention}" for convention in CONVENTIONS)
AMOUNTS = ("steps", "tokens", "seconds", *FLOPS)  # what pre-training spends

log = logging.getLogger("workbench")
RUN = (
    "run_id", "role", "arm", "seed", "budget", "state", "reason", "steps", "tokens", "words", "epochs", "seconds",
    *FLOPS, "convention", "finetune_seconds", "spec", "data", "code", "arithmetic",
    "tags", "notes", "path",
)  # fmt: skip
SCORE = (
    "run_id", "suite", "task", "metric", "seed", "value", "seconds", "train_rows", "test_rows", "digest", "scorer",
    "ties", "path",
)  # fmt: skip
OTHER = ("run_id", "task", "seed", "split", "metric", "value")
BASELINE = ("run_id", "task", "baseline", "value")
POINT = (
    "run_id", "arm", "budget", "seed", "mark", "before_end_of_decay", *AMOUNTS,
    "suite", "task", "metric", "value", "scorer", "digest", "path",
)  # fmt: skip
RECORD = (
    "name", "experiment", "question", "axis", "command", "updated", "first_score", "tasks", "design", "text", "match",
    "tuning", "contrasts", "measures", "looks", "reported", "merged", "runs", "untrained",
)  # fmt: skip
# Schedules by which a shorter run has the same learning rates as the beginning of a longer one.
ANY_LENGTH = ("constant", "inverse-sqrt")


@dataclass(frozen=True)
class Frames:
    """One experiment, read from its record and its run directories.

    `runs` has the columns RUN, `scores` SCORE, `other` OTHER (every metric on every split), `baselines` BASELINE,
    `points` POINT (scores at points of training and at its end), and `curves` STRETCH and a column for each logged
    metric. `settings` and `environments` map a run id to the values of its spec and of its env.json, by dotted key.
    `record` is the experiment's record as plain data, and `notes` are sentences that a reader must see. `floors` are
    the values of losses that token frequencies alone reach, by run id and metric.
    """

    record: Mapping[str, Any]
    runs: pd.DataFrame
    scores: pd.DataFrame
    other: pd.DataFrame
    baselines: pd.DataFrame
    curves: pd.DataFrame
    settings: Mapping[str, Mapping[str, Any]]
    environments: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...]
    floors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    points: pd.DataFrame = field(default_factory=lambda: frame_of((), POINT))
    # run id -> task -> for each fine-tuning seed a sign for each test item: "+" right, "-" wrong, "=" half
    items: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)
    published: tuple[PublishedRun, ...] = ()  # models that others trained, with scores on the same tasks

    @property
    def axis(self) -> str:
        """The settings in which the runs differ, as keys separated by commas."""
        return str(self.record["axis"])

    @property
    def statistic(self) -> str:
        """How the scores of a run with several fine-tuning seeds are averaged: "mean" or "median"."""
        return "median" if run_files.part(self.record, "tasks").get("statistic") == "median" else "mean"

    def rows(self, table: Literal["runs", "scores", "other", "baselines"]) -> list[dict[str, Any]]:
        """Return a table as a list of dictionaries, one for each row."""
        return list(self._runs) if table == "runs" else _rows(getattr(self, table))

    def by_id(self) -> dict[str, dict[str, Any]]:
        """Return the row of `runs` for each run id."""
        return {str(row["run_id"]): row for row in self._runs}

    def logged(self, run_id: str) -> list[dict[str, float]]:
        """Return the rows of `curves` of one run, without the metrics that it did not log."""
        names, values, places = self._curves
        rows = values[places[run_id]].tolist() if run_id in places else ()
        return [{name: v for name, v in zip(names, row, strict=True) if v == v} for row in rows]

    @functools.cached_property
    def _runs(self) -> list[dict[str, Any]]:
        return _rows(self.runs)

    @functools.cached_property
    def _curves(self) -> tuple[list[str], Any, Any]:
        names = [str(name) for name in self.curves if name != "run_id"]
        values = self.curves[names].to_numpy(dtype=float)
        return names, values, self.curves.groupby("run_id", sort=False).indices


def frame_of(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Return rows as a table with these columns, also if there are no rows."""
    import pandas as pd

    return pd.DataFrame(list(rows), columns=list(columns))


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries, in a third of the time that its method `to_dict` takes."""
    names, columns = list(map(str, frame)), (frame[name].tolist() for name in frame)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


@dataclass
class _Read:
    """What was read of the runs."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    scores: list[dict[str, Any]] = field(default_factory=list)
    logged: dict[str, Packed] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    floors: dict[str, dict[str, float]] = field(default_factory=dict)
    points: list[dict[str, Any]] = field(default_factory=list)
    equal: dict[str, Any] = field(default_factory=dict)  # one copy of each content that many runs or scores share

    def flat(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return nested settings with dotted keys; equal keys and values share one object, to save memory."""
        return {sys.intern(key): self.once(item) for key, item in run_files.flatten(value).items()}

    def once(self, value: Any) -> Any:
        """Return the first value that is equal to `value`, so that equal values are kept in memory once."""
        return self.equal.setdefault(repr(value), value)


def read_study(store: RunStore, name: str, verify: bool = True) -> Frames:
    """Return the tables of one experiment; with `verify`, all files are compared with hashes. Raises InputError."""
    return read_record(store, store.experiment(name), verify)


def read_record(store: RunStore, experiment: ExperimentRecord, verify: bool = True) -> Frames:
    """Return the tables of a record, which need not be in the store: any of its runs can be read as one study."""
    record = {key: getattr(experiment, key) for key in RECORD}
    read, roles = _Read(), dict.fromkeys(record["untrained"], "untrained") | dict.fromkeys(record["runs"], "arm")
    order = dict.fromkeys([*record["runs"], *record["untrained"]])
    every_run = run_files.every_run(store, order, verify, run_files.rows_of_each(len(order)))
    for run_id, files in zip(order, every_run, strict=True):
        _add_run(read, store, run_id, roles[run_id], files)
    read.notes += [] if verify else ["Files were not compared with their hashes (--no-verify)."]
    first: dict[Any, dict[str, Any]] = {}  # the places of a text's first run, where runs are of many machines
    for of_run in read.settings.values():
        if of_run.get("data.fingerprint"):
            places = {key: of_run[key] for key in PLACES if key in of_run}
            of_run |= first.setdefault((of_run["data.fingerprint"], of_run.get("pair.files")), places)
    arms = arm_names(record["axis"], read.runs, read.settings)
    for row in read.runs:
        row["arm"] = arms[row["run_id"]]
    scores = choose(read.scores, record["tasks"], read.notes)
    published, left_out = read_published(store, scores, verify)
    read.notes += [*left_out, *(f"{score['task']}: {note}." for score in scores for note in score["notes"])]
    of_task = [{key: score[key] for key in ("run_id", "task", "seed")} for score in scores]
    other = (
        {**key, "split": split, "metric": metric, "value": value}
        for key, score in zip(of_task, scores, strict=True)
        for split, values in score["values"].items() for metric, value in values.items()
    )  # fmt: skip
    baselines = (
        {**key, "baseline": name, "value": value}
        for key, score in zip(of_task, scores, strict=True) for name, value in score["baselines"].items()
    )  # fmt: skip
    items: dict[str, dict[str, list[str]]] = {}
    for score in scores:
        items.setdefault(score["run_id"], {}).setdefault(score["task"], []).append(score["items"])
    return Frames(
        record, frame_of(read.runs, RUN), frame_of(scores, SCORE), frame_of(other, OTHER),
        frame_of(baselines, BASELINE), run_files.curve_table(read.logged), read.settings, read.environments,
        tuple(dict.fromkeys(read.notes)), read.floors,
        frame_of(_along(read, scores), POINT), items, published,
    )  # fmt: skip


def read_and_warn(store: RunStore, name: str, verify: bool = True) -> Frames:
    """Return the tables of `read_study`, and log a warning for each run that is left out: damaged or missing."""
    experiment = read_study(store, name, verify)
    for run in experiment.rows("runs"):
        if run["state"] == "damaged":
            warn_of_damaged_run(store.root / run["run_id"], run["reason"], "the command that trained it")
        elif run["state"] == "missing":
            how = "there is no such folder" if run["reason"] == "not started" else f"it was {run['reason']}"
            log.warning("%s is missing and is left out: %s", run["run_id"], how)
    return experiment


def warn_of_damaged_run(path: Path, reason: str, command: str) -> None:
    """Log a warning about a run that is left out, and how to repair it: restore its files, or give `command` again."""
    DAMAGE.warning("%s is damaged and is left out: %s; %s", path, reason, remedy(path, command))


def _add_run(read: _Read, store: RunStore, run_id: str, role: str, files: RunFiles | None) -> None:
    folder = store.root / run_id
    written = manage.notes_of(RunDir(folder))
    row: dict[str, Any] = {
        "run_id": run_id, "role": role, "path": run_id, "seed": -1, "budget": "unknown",
        "tags": ", ".join(written.tags), "notes": written.text,
    }  # fmt: skip
    read.runs.append(row)
    read.settings[run_id], read.environments[run_id] = {}, {}
    if files is None:
        row["state"], row["reason"] = "missing", store.removal(run_id) or "not started"
        return
    row["state"], row["reason"] = files.state, files.note or ("not begun" if files.state == "new" else "")
    try:
        spec, row["spec"] = run_files.spec_of(folder, files.records)
        settings = read.flat(spec)
        read.settings[run_id] = {key: value for key, value in settings.items() if key not in COUNTS}
        row["seed"] = spec["seed"]
        row["budget"], row["convention"] = map(read.once, budget_of(run_files.part(spec, "budget")))
        row["data"] = read.once(run_files.part(spec, "data").get("fingerprint", ""))
        if row["state"] == "damaged":
            return
        row |= run_files.totals(folder, files.curve.last, files.records)
        row |= run_files.words_and_epochs(spec, row["tokens"])
    except (ValueError, OSError) as error:
        if row["state"] != "damaged":
            row["state"], row["reason"] = "damaged", str(error)
        return
    if row["state"] in FINISHED:
        run = store.get(run_id)
        read.notes += [f"{run_id}: {failure}" for failure in run.failures().values()]
    if row["state"] == "interrupted":
        planned = number(run_files.optional(folder / "plan.json", files.records).get("steps"))
        of = "" if math.isnan(planned) else f" of {planned:,.0f}"
        step = row["steps"]
        where = "before its first step was logged" if math.isnan(step) else f"at step {step:,.0f}{of}"
        row["reason"] = f"stopped {where}; the same command resumes it"
    env = dict(run_files.optional(folder / "env.json", files.records))
    env.pop("run_id", None)
    read.environments[run_id], row["code"] = read.flat(env), read.once(code_of(env))
    row["arithmetic"] = read.once(SWITCH.join(kinds_of_arithmetic(env)))
    read.notes += [f"{run_id}: {files.fault}"] if files.fault else []
    read.floors[run_id] = run_files.floors(folder, files.records)
    if files.curve.rows:
        names, values = run_files.packed(files.curve.rows)
        read.logged[run_id] = read.once(names), values
    _add_scores(read, folder, row, files)


def _add_scores(read: _Read, folder: Path, row: dict[str, Any], files: RunFiles) -> None:
    run_id, scores = files.run_id, []
    for score, fault in run_files.scores_of(folder, files.records):
        read.notes += [f"{run_id}: {fault}"] if fault else []
        shared = {key: read.once(value) for key, value in score.items() if isinstance(value, dict | list | str)}
        scores += [{"run_id": run_id, **score, **shared, "path": f"{run_id}/scores/{score['path']}"}] if score else []
    row["finetune_seconds"] = math.fsum(s["seconds"] for s in scores if not math.isnan(s["seconds"]))
    if row["state"] not in FINISHED:
        return
    read.scores += scores
    for point, point_scores, fault in run_files.points_of(folder, files.records):
        read.notes += [f"{run_id}: {fault}"] if fault else []
        read.points += [
            {"run_id": run_id, **score, **point, "path": f"{run_id}/{score['path']}"} for score in point_scores
        ]


def _along(read: _Read, chosen: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the scores at points of training and at its end, of the tasks that were also measured before the end.

    A score of a point counts if the same run, task and digest is among the scores that were `chosen` at the end.
    """
    same = {(row["run_id"], row["task"], row["digest"]) for row in chosen}
    of_points = [row for row in read.points if (row["run_id"], row["task"], row["digest"]) in same]
    tasks = {row["task"] for row in of_points}
    runs = {row["run_id"]: row for row in read.runs}
    ends = [
        {**row, **{key: runs[row["run_id"]][key] for key in AMOUNTS}, "mark": run_files.END}
        for row in chosen if row["task"] in tasks and runs[row["run_id"]]["role"] == "arm"
    ]  # fmt: skip
    rows = []
    for row in (*of_points, *ends):
        run = runs[row["run_id"]]
        decays = str(read.settings[row["run_id"]].get("schedule.kind")) not in ANY_LENGTH
        before_end = "yes" if decays and row["mark"] != run_files.END else "no"
        rows.append({**row, **{key: run[key] for key in ("arm", "budget", "seed")}, "before_end_of_decay": before_end})
    place = {run_id: number for number, run_id in enumerate(runs)}
    return sorted(rows, key=lambda row: (place[row["run_id"]], row["task"], row["steps"]))


FROZEN = {"embeddings": "frozen"}  # the default of `tasks.embeddings`


def choose(scores: list[dict[str, Any]], tasks: Mapping[str, Any], notes: list[str]) -> list[dict[str, Any]]:
    """Return the scores of the tasks of this experiment, each task under one fine-tuning setting.

    A run may also have been scored for other experiments. If a task has scores under several settings, those that
    agree with the settings of the experiment are chosen, or else the setting with the most scores; `notes` gets a
    sentence on the others. A score that is not a number is left out.
    """
    chosen = []
    selected = _selected(scores, tasks.get("names")) or scores
    for task in dict.fromkeys(score["task"] for score in selected):
        groups: dict[str, list[dict[str, Any]]] = {}  # digest -> scores under one setting
        for score in sorted((s for s in selected if s["task"] == task), key=lambda s: s["digest"]):
            groups.setdefault(score["digest"], []).append(score)
        best = max(groups, key=lambda digest: (_agrees(groups[digest][0], tasks), len(groups[digest])))
        if others := [digest for digest in groups if digest != best]:
            count = sum(len(groups[digest]) for digest in others)
            notes.append(
                f"{task}: {plural(count, 'score')} under other fine-tuning settings or data "
                f"{'is' if count == 1 else 'are'} left out (digest "
                f"{', '.join(digest or 'unnamed' for digest in others)}; shown: {best or 'unnamed'})"
            )
        for score in groups[best]:
            if math.isnan(score["value"]):
                notes.append(f"{score['path']}: the score is not a number and is left out")
            else:
                chosen.append(score)
    return chosen


def _selected(scores: list[dict[str, Any]], names: Any) -> list[dict[str, Any]]:
    """Return the scores of the tasks that an experiment names: by task, by suite, or by the path of their data."""
    texts = [str(name) for name in names] if isinstance(names, list | tuple) else []
    suites = {*texts}
    if any("." in text or "/" in text or text.startswith(PATH_PREFIXES) for text in texts):
        suites |= {*FROM_PATHS}
    of_files = any(".py" in text for text in texts)  # scores of tasks in files of one's own hold the file's hash
    return [
        score for score in scores
        if score["task"] in texts or score["suite"] in suites or (of_files and "source" in score["finetune"])
    ]  # fmt: skip


def _agrees(score: Mapping[str, Any], tasks: Mapping[str, Any]) -> bool:
    finetune = score["finetune"]
    if score["suite"] in EMBEDDINGS:  # scores of frozen encoders do not name this setting, nor do records without it
        finetune, tasks = FROZEN | finetune, FROZEN | dict(tasks)
    shared = (finetune.keys() & tasks.keys()) - {"names", "seeds", "glue"}
    return all(tasks[key] is None or finetune[key] == tasks[key] for key in shared)


PlainRow = Mapping[str, Any]


@dataclass(frozen=True)
class PublishedRun:
    """A published model. `flops` are the training FLOPs that its source states, or NaN.

    `scores` maps each task to its scores by fine-tuning seed, and `suites` maps it to its suite.
    """

    run_id: str
    name: str
    flops: float
    source: str
    scores: Mapping[str, Mapping[int, float]]
    suites: Mapping[str, str]


def read_published(
    store: RunStore, chosen: Iterable[PlainRow], verify: bool
) -> tuple[tuple[PublishedRun, ...], list[str]]:
    """Return the published models of a store, and sentences on what is left out.

    A score counts if one of the `chosen` scores is of the same task, metric and data. Settings of fine-tuning may
    differ, since they depend on the size of a model.
    """
    same = {(row["task"], row["metric"], row["data"]) for row in chosen}
    names = [run.run_id for run in store.runs() if run.run_id.startswith(f"{PUBLISHED}-")] if same else []
    models, notes = [], []
    for files in filter(None, run_files.every_run(store, names, verify)):
        path = store.root / files.run_id
        spec = run_files.part(run_files.optional(path / "spec.json", files.records), "spec")
        if files.state == "damaged":
            notes.append(f"{_name(files.run_id, spec)} is damaged and is left out: {files.note}")
            warn_of_damaged_run(path, files.note, "the command that measured it")
        elif kind_of(spec) == PUBLISHED:
            model, left_out = _model(files, spec, path, same)
            models += [model] if model.scores else []
            notes += left_out
    return tuple(models), notes


def _model(files: RunFiles, spec: PlainRow, folder: Path, same: set[tuple[Any, ...]]) -> tuple[PublishedRun, list[str]]:
    """Return a published model with its comparable scores, and sentences on scores that are left out."""
    run_id, done = files.run_id, run_files.optional(folder / "done.json", files.records)
    read_scores = list(run_files.scores_of(folder, files.records))
    shown = _name(run_id, spec)
    notes = [f"{shown}: {fault}" for _, fault in read_scores if fault]
    usable = [row for row, _ in read_scores if row and not math.isnan(row["value"])]
    rows = [row for row in usable if (row["task"], row["metric"], row["data"]) in same]
    others = sorted({row["task"] for row in usable} & {task for task, _, _ in same} - {row["task"] for row in rows})
    notes += [f"{shown}: its scores on {task} are of other data and are left out" for task in others]
    suites = {row["task"]: row["suite"] for row in reversed(rows)}
    tasks = sorted(suites, key=lambda task: (place_of(str(suites[task])), task))
    by_task = {}
    for task in tasks:  # under the setting of fine-tuning that has most scores
        digests = sorted({row["digest"] for row in rows if row["task"] == task})
        groups = [[row for row in rows if (row["task"], row["digest"]) == (task, digest)] for digest in digests]
        by_task[task] = max(groups, key=len)
    return PublishedRun(
        run_id, str(run_files.part(spec, "published").get("name")),
        run_files.number(run_files.part(done, "flops").get("paper")), str(done.get("flops_source") or ""),
        {task: {row["seed"]: row["value"] for row in group} for task, group in by_task.items()},
        {task: group[0]["suite"] for task, group in by_task.items()},
    ), notes  # fmt: skip


def _name(run_id: str, spec: PlainRow) -> str:
    """Return a model's name and the id of its run; the id alone if the spec cannot be read."""
    name = run_files.part(spec, "published").get("name")
    return f"{name} ({run_id})" if name else run_id
