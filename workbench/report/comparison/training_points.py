"""Scores along training: those of an arm at each point at which its runs saved their weights, and at their end."""

from __future__ import annotations

import statistics as plain
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.report.columns import AMOUNTS
from workbench.report.load.frames import Frames
from workbench.report.load.run_files import END
from workbench.report.statistics.paired_comparison import Estimate, t_interval


@dataclass(frozen=True)
class Place:
    """One arm of one budget at one point: scores by pre-training seed, and the mean amounts spent by then.

    `mark` is the name of the point in the schedule, "end" for the end of training. `unfinished` is true for a point
    before the end of a run whose learning rate decays: a run that ended there would have decayed, and would mostly
    have scored higher.
    """

    arm: str
    budget: str
    mark: str
    unfinished: bool
    scores: Mapping[int, float]
    runs: tuple[str, ...]
    spent: Mapping[str, float]

    @property
    def estimate(self) -> Estimate:
        """Return the mean over pre-training seeds with its interval."""
        return t_interval([self.scores[seed] for seed in sorted(self.scores)])


def places(frames: Frames, suite: str, tasks: Sequence[str]) -> tuple[Place, ...]:
    """Return the places of a suite by rising compute; none if no run was scored before its end."""
    rows = [row for row in frames.points.to_dict("records") if row["suite"] == suite and row["task"] in tasks]
    if all(row["mark"] == END for row in rows):
        return ()
    runs = frames.by_id()
    at: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        at.setdefault((row["run_id"], row["mark"]), {})[row["task"]] = row
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for (run_id, mark), scores in at.items():
        if len(scores) == len(tasks) and runs[run_id]["role"] == "arm":
            run = runs[run_id]
            first = next(iter(scores.values()))
            scored = first | {"seed": int(run["seed"]), "score": plain.fmean(row["value"] for row in scores.values())}
            groups.setdefault((run["arm"], run["budget"], mark), []).append(scored)
    unordered = [_place(*key, scores) for key, scores in groups.items()]
    return tuple(sorted(unordered, key=lambda place: (place.budget, place.arm, place.spent["flops_matmul"])))


def _place(arm: str, budget: str, mark: str, rows: Sequence[Mapping[str, Any]]) -> Place:
    """Return the place that the scored runs of one arm, budget and mark make."""
    ordered = sorted(rows, key=lambda row: row["seed"])
    spent = {column: plain.fmean(float(row[column]) for row in ordered) for column in AMOUNTS}
    unfinished = any(row["before_end_of_decay"] == "yes" for row in ordered)
    runs = tuple(str(row["run_id"]) for row in ordered)
    return Place(arm, budget, mark, unfinished, {row["seed"]: row["score"] for row in ordered}, runs, spent)


def lines(points: Iterable[Place], arm: str) -> list[list[Place]]:
    """Return the places of an arm as one line for each budget, in the order of training."""
    budgets: dict[str, list[Place]] = {}
    for place in points:
        if place.arm == arm:
            budgets.setdefault(place.budget, []).append(place)
    return [sorted(line, key=lambda place: place.spent["steps"]) for line in budgets.values()]
