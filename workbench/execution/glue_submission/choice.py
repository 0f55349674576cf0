"""The choice of the run that is submitted and of its scores, by dev sets alone; the card records how it was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from workbench.errors import InputError, plural, suggest
from workbench.report import find_record
from workbench.report.load import study_tables
from workbench.report.load.run_files import FINISHED
from workbench.report.load.runs_table import find_run
from workbench.spec.scoring import mean_score
from workbench.store.run_directory import RunDir
from workbench.store.run_store import RunStore
from workbench.tasks.glue import ROWS

Score = Mapping[str, Any]


@dataclass(frozen=True)
class Source:
    """The run whose encoder is submitted, and a sentence on how it was chosen."""

    run: RunDir
    how: str


@dataclass(frozen=True)
class SeedChoice:
    """Which fine-tuning seeds are submitted: this one, or the best ones on dev, as many as `ensemble`."""

    seed: int | None = None
    ensemble: int = 1

    def __post_init__(self) -> None:
        if self.seed is not None and self.ensemble > 1:
            raise InputError(
                f"--seed {self.seed} names one fine-tuning and --ensemble {self.ensemble} averages several; keep one"
            )

    def taken(self, scores: Sequence[Score]) -> list[Score]:
        """Return the scores that are submitted, of all those of a task under one setting; [] if there are too few."""
        if self.seed is not None:
            return [score for score in scores if score["seed"] == self.seed]
        best = sorted(scores, key=lambda score: (-score["value"], score["seed"]))[: self.ensemble]
        return best if len(best) == self.ensemble else []

    def lacking(self) -> str:
        """Return, for the message about a task without such scores, what is missing."""
        if self.seed is not None:
            return f"no score with fine-tuning seed {self.seed}"
        return "no score" if self.ensemble == 1 else f"fewer than {plural(self.ensemble, 'fine-tuning seed')}"

    def rule(self, available: int) -> str:
        """Return how the seeds of a task with scores of this many seeds were chosen."""
        if self.seed is not None:
            return f"seed {self.seed}, as given"
        if self.ensemble > 1:
            return f"an ensemble of {self.ensemble}, the best on dev of {plural(available, 'fine-tuning seed')}"
        return f"the best on dev of {plural(available, 'fine-tuning seed')}"


def source_of(store: RunStore, word: str, arm: str | None) -> Source:
    """Return the run that a word means: a run, or the best one of an experiment's arm. Raises InputError."""
    records = store.experiments()
    if word not in {name for record in records for name in (record.name, record.experiment)}:
        run = find_run(store, word)
        if arm is not None:
            raise InputError(f"--arm {arm} chooses among the arms of an experiment, and {run.run_id} is a run")
        return Source(run, "named by its user")
    return _best_of_arm(store, study_tables.read_and_warn(store, find_record(store, word), verify=False), arm)


def _best_of_arm(store: RunStore, experiment: study_tables.Frames, arm: str | None) -> Source:
    """Return the run of an arm with the most GLUE tasks, and of those the one with the best mean on dev."""
    runs = [row for row in experiment.rows("runs") if row["role"] == "arm" and row["state"] in FINISHED]
    arms = list(dict.fromkeys(str(row["arm"]) for row in runs))
    name = experiment.record["name"]
    if arm is None and len(arms) > 1:
        raise InputError(f"{name} has the arms {', '.join(arms)}; choose one with --arm")
    if arm is not None and arm not in arms:
        raise InputError(f"--arm {arm}: {name} has no trained run of such an arm{suggest(arm, arms)}")
    able = [row["run_id"] for row in runs if arm in (None, row["arm"])]
    values: dict[str, dict[str, list[float]]] = {run_id: {} for run_id in able}
    for score in experiment.rows("scores"):
        if score["run_id"] in values and score["suite"] == "glue" and score["task"] in ROWS:
            values[score["run_id"]].setdefault(str(score["task"]), []).append(score["value"])
    means = {
        run_id: (len(of_run), mean_score("glue", {task: fmean(each) for task, each in of_run.items()})[1])
        for run_id, of_run in values.items()
        if of_run
    }
    if not means:
        raise InputError(f"{name} has no trained run with a score on GLUE; measure its models with --tasks glue first")
    best = max(means, key=lambda run_id: means[run_id])
    tasks, mean = means[best]
    how = f"the best mean on dev, {mean:.2f} over {plural(tasks, 'task')}, of {plural(len(means), 'run')} of {name}"
    return Source(store.get(best), how + (f", arm {arm or arms[0]}"))


def scores_by_task(run: RunDir, wanted: SeedChoice) -> dict[str, tuple[list[Score], str]]:
    """Return for each GLUE task the scores whose fine-tunings are submitted, and how they were chosen.

    Scores of one task under several settings are never mixed: those of the setting with the best one are taken. Those
    on held-out training rows, by which a search chooses, do not count.
    """
    groups: dict[str, dict[str, list[Score]]] = {}
    for score in run.scores().values():
        if score["task"] in ROWS and score["value"] is not None and "held-out" not in score["values"]:
            groups.setdefault(score["task"], {}).setdefault(score["digest"], []).append(score)
    chosen = {}
    for task, by_digest in groups.items():
        able = [scores for scores in by_digest.values() if wanted.taken(scores)]
        if able:
            scores = max(able, key=lambda scores: max(score["value"] for score in wanted.taken(scores)))
            rule = wanted.rule(len(scores))
            several = f", under the best of {len(able)} settings" if len(able) > 1 else ""
            chosen[task] = (wanted.taken(scores), rule + several)
    return chosen
