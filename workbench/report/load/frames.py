"""Tables of one experiment, read from its run directories: a row for each run, score and part of a training curve.

A file that cannot be read is named in `notes`, and all others are still read. Nothing is averaged here, except the
logged rows within one part of a training curve.
"""

from __future__ import annotations

import functools
import logging
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workbench.errors import DAMAGE, remedy
from workbench.report.columns import AMOUNTS, FLOPS
from workbench.report.load import logged_rows, published_scores, run_files
from workbench.report.load.chosen_scores import choose
from workbench.report.load.logged_rows import LoggedRows
from workbench.report.load.naming import arm_names, budget_of, code_of
from workbench.report.load.published_scores import PublishedRun
from workbench.report.load.run_files import FINISHED, RunFiles, number
from workbench.report.load.training_curves import rows_of_each
from workbench.spec.parts import COUNTS
from workbench.spec.run_spec import PLACES
from workbench.store.environment import SWITCH, kinds_of_arithmetic

if TYPE_CHECKING:
    import pandas as pd

    from workbench.store.run_store import ExperimentRecord, RunStore

log = logging.getLogger("workbench")
RUN = (
    "run_id", "role", "arm", "seed", "budget", "state", "reason", "steps", "tokens", "words", "epochs", "seconds",
    *FLOPS, "convention", "finetune_seconds", "spec", "data", "code", "arithmetic",
    "path",
)  # fmt: skip
SCORE = (
    "run_id",
    "suite",
    "task",
    "metric",
    "seed",
    "value",
    "seconds",
    "train_rows",
    "test_rows",
    "digest",
    "scorer",
    "ties",
    "path",
)
OTHER = ("run_id", "task", "seed", "split", "metric", "value")
BASELINE = ("run_id", "task", "baseline", "value")
POINT = (
    "run_id", "arm", "budget", "seed", "mark", "before_end_of_decay", *AMOUNTS,
    "suite", "task", "metric", "value", "scorer", "digest", "path",
)  # fmt: skip
STRETCH = logged_rows.STRETCH
# Schedules by which a shorter run has the same learning rates as the beginning of a longer one.
ANY_LENGTH = ("constant", "inverse-sqrt")


@dataclass(frozen=True)
class Frames:
    """One experiment, read from its record and its run directories.

    `runs` has the columns RUN, `scores` SCORE, `other` OTHER (every metric on every split), `baselines` BASELINE,
    `points` POINT, and `curves` STRETCH and a column for each metric that any run logged. `settings` and
    `environments` map a run id to the values of its spec and of its env.json, by dotted key. `record` is the
    experiment's record as plain data, and `notes` are sentences that a reader must see. `floors` are the values of
    losses that token frequencies alone reach.
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
    bins: Mapping[str, int] = field(default_factory=dict)  # run id -> steps that one row of its curve covers
    logged: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)  # run id -> its rows of `curves`
    floors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # run id -> metric -> value
    points: pd.DataFrame = field(default_factory=lambda: no_points())  # scores at points of training and at its end
    # run id -> task -> for each fine-tuning seed a sign for each test item: "+" right, "-" wrong, "=" half
    items: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)
    published: tuple[PublishedRun, ...] = ()  # models that others trained, with scores on the same tasks

    @property
    def axis(self) -> str:
        """Return the axis of the experiment: the settings in which its runs differ, as keys separated by commas."""
        return str(self.record["axis"])

    @property
    def statistic(self) -> str:
        """Return what of a run's scores with several fine-tuning seeds is its score, "mean" or "median"."""
        return "median" if run_files.part(self.record, "tasks").get("statistic") == "median" else "mean"

    def rows(self, table: Literal["runs", "scores", "other", "baselines"]) -> list[dict[str, Any]]:
        """Return a table as a list of dictionaries, one for each row."""
        return list(self._runs) if table == "runs" else _rows(getattr(self, table))

    def by_id(self) -> dict[str, dict[str, Any]]:
        """Return the row of `runs` for each run id."""
        return dict(self._by_id)

    @functools.cached_property
    def _runs(self) -> list[dict[str, Any]]:
        return _rows(self.runs)

    @functools.cached_property
    def _by_id(self) -> dict[str, dict[str, Any]]:
        return {str(row["run_id"]): row for row in self._runs}


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries, in a third of the time that its method `to_dict` takes."""
    names, columns = list(map(str, frame)), (frame[name].tolist() for name in frame)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


@dataclass
class _Gathered:
    """The rows collected for the tables."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    scores: list[dict[str, Any]] = field(default_factory=list)
    logged: LoggedRows = field(default_factory=LoggedRows)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    bins: dict[str, int] = field(default_factory=dict)
    floors: dict[str, dict[str, float]] = field(default_factory=dict)
    points: list[dict[str, Any]] = field(default_factory=list)
    equal: dict[str, Any] = field(default_factory=dict)  # one copy of each content that many runs or scores share

    def flat(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return nested settings with dotted keys, with the keys and values of former ones where they are equal."""
        return {sys.intern(key): self.once(item) for key, item in run_files.flatten(value).items()}

    def once(self, value: Any) -> Any:
        """Return an equal value that was given before, or else this one."""
        return self.equal.setdefault(repr(value), value)


def no_points() -> pd.DataFrame:
    """Return a table of points without rows."""
    import pandas as pd

    return pd.DataFrame(columns=list(POINT))


def read(store: RunStore, name: str, verify: bool = True) -> Frames:
    """Return the tables of one experiment. Raises InputError if the store has no record of this name.

    With `verify`, every file of a run is compared with its hash; without it, only file sizes and the hashes inside
    JSON files are checked.
    """
    import pandas as pd

    experiment = store.experiment(name)
    record = _plain(experiment)
    gathered = _gathered(store, record, verify)
    gathered.notes += [] if verify else ["Files were not compared with their hashes (--no-verify)."]
    _in_one_place(gathered.settings)
    arms = arm_names(record["axis"], gathered.runs, gathered.settings)
    for row in gathered.runs:
        row["arm"] = arms[row["run_id"]]
    chosen = choose(gathered.scores, record["tasks"], gathered.notes)
    published, left_out = published_scores.read(store, chosen, verify)
    gathered.notes += left_out
    gathered.notes += [f"{s['task']}: {note}." for s in chosen for note in s["notes"]]
    other = [
        {"run_id": s["run_id"], "task": s["task"], "seed": s["seed"], "split": split, "metric": metric, "value": value}
        for s in chosen for split, values in s["values"].items() for metric, value in values.items()
    ]  # fmt: skip
    baselines = [
        {"run_id": s["run_id"], "task": s["task"], "baseline": name, "value": value}
        for s in chosen for name, value in s["baselines"].items()
    ]  # fmt: skip
    items: dict[str, dict[str, list[str]]] = {}
    for score in chosen:
        items.setdefault(score["run_id"], {}).setdefault(score["task"], []).append(score["items"])
    return Frames(
        record,
        pd.DataFrame(gathered.runs, columns=list(RUN)),
        pd.DataFrame(chosen, columns=list(SCORE)),
        pd.DataFrame(other, columns=list(OTHER)),
        pd.DataFrame(baselines, columns=list(BASELINE)),
        gathered.logged.frame(),
        gathered.settings,
        gathered.environments,
        tuple(dict.fromkeys(gathered.notes)),
        gathered.bins,
        gathered.logged,
        gathered.floors,
        pd.DataFrame(_along(gathered, chosen), columns=list(POINT)),
        items,
        published,
    )


def _plain(experiment: ExperimentRecord) -> dict[str, Any]:
    """Return what a report uses of an experiment's record, as plain data."""
    texts = {
        k: str(getattr(experiment, k))
        for k in ("name", "experiment", "question", "axis", "command", "updated", "first_score")
    }
    tables = {k: dict(getattr(experiment, k)) for k in ("tasks", "design", "text")}
    lists = {
        k: list(getattr(experiment, k))
        for k in ("match", "tuning", "contrasts", "measures", "looks", "reported", "runs", "untrained")
    }
    return texts | tables | lists


def _gathered(store: RunStore, record: Mapping[str, Any], verify: bool) -> _Gathered:
    """Return what is read of all runs of a record, in its order, with those that have no folder."""
    gathered = _Gathered()
    roles = dict.fromkeys(record["runs"], "arm")
    for run_id in record["untrained"]:
        roles.setdefault(run_id, "untrained")
    files_of_runs = run_files.every_run(store, roles, verify, rows_of_each(len(roles)))
    files = next(files_of_runs, None)  # those of the next run of `roles` that has a folder
    for run_id, role in roles.items():
        if files is not None and files.run_id == run_id:
            _add(gathered, store, run_id, role, files)
            files = next(files_of_runs, None)
        else:
            _add(gathered, store, run_id, role, None)
    return gathered


def read_and_warn(store: RunStore, name: str, verify: bool = True) -> Frames:
    """Return what `read` does, and log a warning for each run that is left out because it is damaged or missing."""
    experiment = read(store, name, verify)
    warn_of_damage(experiment, store.root)
    return experiment


def warn_of_damage(experiment: Frames, store: Path) -> None:
    """Log a warning for each run of a record that is left out because its files are damaged or missing."""
    for run in experiment.rows("runs"):
        if run["state"] == "damaged":
            path = store / run["run_id"]
            fix = remedy(path, "the command that trained it")
            DAMAGE.warning("%s is damaged and is left out: %s; %s", path, run["reason"], fix)
        elif run["state"] == "missing":
            log.warning("%s is missing and is left out: there is no such folder", run["run_id"])


def _add(gathered: _Gathered, store: RunStore, run_id: str, role: str, files: RunFiles | None) -> None:
    """Add one run. `files` is what was read of it, or None if the run has no folder."""
    folder = store.root / run_id
    row: dict[str, Any] = {"run_id": run_id, "role": role, "path": run_id, "seed": -1, "budget": "unknown"}
    gathered.runs.append(row)
    gathered.settings[run_id], gathered.environments[run_id] = {}, {}
    if files is None:
        row["state"], row["reason"] = "missing", "not started"
        return
    row["state"], row["reason"] = files.state, files.note or ("not begun" if files.state == "new" else "")
    try:
        spec, row["spec"] = run_files.spec_of(folder, files.records)
        settings = gathered.flat(spec)
        gathered.settings[run_id] = {key: value for key, value in settings.items() if key not in COUNTS}
        row["seed"] = spec["seed"]
        row["budget"], row["convention"] = map(gathered.once, budget_of(run_files.part(spec, "budget")))
        row["data"] = gathered.once(run_files.part(spec, "data").get("fingerprint", ""))
        if row["state"] == "damaged":
            return
        row |= run_files.totals(folder, files.curve.last, files.records)
        row |= run_files.seen(spec, row["tokens"])
    except (ValueError, OSError) as error:
        if row["state"] != "damaged":
            row["state"], row["reason"] = "damaged", str(error)
        return
    if row["state"] in FINISHED:
        run = store.get(run_id)
        gathered.notes += [f"{run_id}: {failure}" for failure in run.failures().values()]
    if row["state"] == "interrupted":
        row["reason"] = _interruption(row["steps"], run_files.optional(folder / "plan.json", files.records))
    env = dict(run_files.optional(folder / "env.json", files.records))
    env.pop("run_id", None)
    gathered.environments[run_id], row["code"] = gathered.flat(env), gathered.once(code_of(env))
    row["arithmetic"] = gathered.once(SWITCH.join(kinds_of_arithmetic(env)))
    gathered.notes += [f"{run_id}: {files.fault}"] if files.fault else []
    gathered.floors[run_id] = run_files.floors(folder, files.records)
    gathered.bins[run_id] = files.curve.width * files.curve.every
    gathered.logged.add(run_id, files.curve.rows)
    _add_scores(gathered, folder, row, files)


def _interruption(step: float, plan: Mapping[str, Any]) -> str:
    """Return the reason why a run is not finished, at the last logged step, NaN for none."""
    steps = number(plan.get("steps"))
    of = "" if math.isnan(steps) else f" of {steps:,.0f}"
    where = "before its first step was logged" if math.isnan(step) else f"at step {step:,.0f}{of}"
    return f"stopped {where}; the same command resumes it"


def _add_scores(gathered: _Gathered, folder: Path, row: dict[str, Any], files: RunFiles) -> None:
    """Add the scores of a run at the end of training and at its points, and the time they took."""
    run_id, scores = files.run_id, []
    for score, fault in run_files.scores_of(folder, files.records):
        gathered.notes += [f"{run_id}: {fault}"] if fault else []
        shared = {key: gathered.once(value) for key, value in score.items() if isinstance(value, dict | list | str)}
        scores += [{"run_id": run_id, **score, **shared, "path": f"{run_id}/scores/{score['path']}"}] if score else []
    row["finetune_seconds"] = math.fsum(s["seconds"] for s in scores if not math.isnan(s["seconds"]))
    if row["state"] not in FINISHED:
        return
    gathered.scores += scores
    for point, point_scores, fault in run_files.points_of(folder, files.records):
        gathered.notes += [f"{run_id}: {fault}"] if fault else []
        gathered.points += [
            {"run_id": run_id, **score, **point, "path": f"{run_id}/{score['path']}"} for score in point_scores
        ]


def _in_one_place(settings: Mapping[str, dict[str, Any]]) -> None:
    """Give all runs of one text the places of the first, since seeds and arms may come from several machines."""
    first: dict[tuple[Any, ...], dict[str, Any]] = {}
    for of_run in settings.values():
        if of_run.get("data.fingerprint"):
            places = {key: of_run[key] for key in PLACES if key in of_run}
            content = (of_run["data.fingerprint"], of_run.get("pair.files"))
            of_run |= first.setdefault(content, places)


def _along(gathered: _Gathered, chosen: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the scores along training: those of points, and those at the end of training.

    A score of a point counts if the same run, task and digest is among the scores that were `chosen` at the end. Only
    tasks that some run was scored on before its end have rows.
    """
    same = {(row["run_id"], row["task"], row["digest"]) for row in chosen}
    of_points = [row for row in gathered.points if (row["run_id"], row["task"], row["digest"]) in same]
    tasks = {row["task"] for row in of_points}
    runs = {row["run_id"]: row for row in gathered.runs}
    ends = [
        {**row, **{key: runs[row["run_id"]][key] for key in AMOUNTS}, "mark": run_files.END}
        for row in chosen if row["task"] in tasks and runs[row["run_id"]]["role"] == "arm"
    ]  # fmt: skip
    rows = []
    for row in (*of_points, *ends):
        run = runs[row["run_id"]]
        decays = str(gathered.settings[row["run_id"]].get("schedule.kind")) not in ANY_LENGTH
        before_end = "yes" if decays and row["mark"] != run_files.END else "no"
        rows.append({**row, **{key: run[key] for key in ("arm", "budget", "seed")}, "before_end_of_decay": before_end})
    place = {run_id: number for number, run_id in enumerate(runs)}
    return sorted(rows, key=lambda row: (place[row["run_id"]], row["task"], row["steps"]))
