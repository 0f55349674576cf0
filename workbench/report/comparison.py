"""Scores averaged in the one order that the evidence allows, and every comparison that a report makes.

Fine-tuning seeds are averaged within a run and a task (`tasks.statistic`: by their mean or their median), tasks
within a run, runs of one arm and budget over their pre-training seeds. Intervals are over pre-training seeds;
differences pair runs of equal seed. Runs of different budgets are never averaged together, and a run that lacks a
task has no score.
"""

from __future__ import annotations

import itertools
import math
import statistics as plain
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from workbench.report.load.arm_names import UNTRAINED, start_of
from workbench.report.load.run_files import END
from workbench.report.load.study_tables import AMOUNTS, Frames
from workbench.report.results import NO_BUDGET, SPENT, Cell, Labels, Leaderboard, Pair, Scorers, TaskCell
from workbench.report.statistics import group_sequential, intervals
from workbench.report.statistics.group_sequential import NOTHING, Families, Family, Groups, gains_over_untrained, looks
from workbench.report.statistics.intervals import STATISTICS, Estimate, Tuned, score_of, t_interval
from workbench.report.statistics.paired_comparison import Compared
from workbench.report.statistics.power import noise_rows
from workbench.spec.scoring import OWN_SCORERS, Point, beside, counted, place_of, score_label

Rows = Mapping[str, Mapping[str, Any]]  # run id -> its row of `Frames.runs`
MetricRow = tuple[str, str, str, dict[str, Estimate]]  # task, split and metric, and every arm's score


def leaderboards(frames: Frames, order: bool = False) -> list[Leaderboard]:
    """Return the results of each suite with scores of trained runs; `order` adds the almost stochastic order."""
    boards = (leaderboard(frames, suite, order) for suite in sorted(set(frames.scores["suite"]), key=place_of))
    return [board for board in boards if board is not None]


def leaderboard(frames: Frames, suite: str, order: bool = False) -> Leaderboard | None:
    """Return the results of a suite; None if no trained run has a score for each of its tasks."""
    statistic, runs = frames.statistic, frames.by_id()
    tuned: dict[str, dict[str, dict[int, float]]] = {}  # run -> task -> fine-tuning seed -> score
    metrics: dict[str, str] = {}
    examples: dict[str, float] = {}  # the number of test examples of each task whose metric is an accuracy
    for row in frames.rows("scores"):
        if row["suite"] == suite:
            metrics.setdefault(row["task"], row["metric"])
            tuned.setdefault(row["run_id"], {}).setdefault(row["task"], {})[row["seed"]] = row["value"]
            if row["metric"] == "accuracy":
                examples[row["task"]] = row["test_rows"]
    tasks = counted(suite, metrics)
    metrics = {task: metrics[task] for task in (*tasks, *(task for task in metrics if task not in tasks))}
    missing = {run: tuple(task for task in tasks if task not in by_task) for run, by_task in tuned.items()}
    scores = {r: plain.fmean(score_of(tuned, r, task, statistic) for task in tasks) for r in tuned if not missing[r]}
    groups, untrained = _groups(runs, scores), _untrained_runs(frames, runs, tuned)
    trained = {key: run_ids for key, run_ids in groups.items() if key[1] != UNTRAINED}
    if not trained:
        return None
    seeds = {run: int(runs[run]["seed"]) for run in tuned}
    at: dict[str, dict[str, tuple[str, ...]]] = {}  # budget -> arm -> run ids
    for (budget, arm), run_ids in trained.items():
        at.setdefault(budget, {})[arm] = run_ids
    families = declared_families(frames, at)
    if late_measures(frames, tasks):
        families = dict.fromkeys(at, Family(exploratory=True))
    plans = {b: family.plan for b, family in families.items() if family.plan is not None}
    gains = gains_over_untrained(trained, scores, seeds, untrained, plans)
    every = [_cell(key, run_ids, runs, scores, gains.get(key)) for key, run_ids in groups.items()]
    cells = {budget: [cell for cell in every if cell.budget == budget] for budget in at}
    compute = {budget: plain.fmean(cell.spent["flops_paper"] for cell in cells[budget]) for budget in at}
    budgets = tuple(sorted(at, key=lambda budget: (compute[budget], budget)))
    largest = cells[budgets[-1]]
    family = {budget: families.get(budget, NOTHING) for budget in budgets}
    last = family[budgets[-1]]
    pairs = {budget: compare(cells[budget], order, family[budget]) for budget in budgets}
    items = {b: _item_intervals(frames, cells[b], pairs[b], tasks, tuned, family[b].level) for b in budgets}
    return Leaderboard(
        suite=suite, label=score_label(suite, metrics), tasks=tasks, metrics=metrics, budgets=budgets,
        cells=tuple(cell for cell in every if cell.arm != UNTRAINED),
        untrained=next((cell for cell in every if cell.arm == UNTRAINED), None),
        pairs=pairs,
        task_cells=tuple(task_cells(tuned, metrics, _groups(runs, tuned), seeds, untrained, statistic)),
        noise={b: tuple(noise_rows(tuned, tasks, metrics, at[b], seeds, examples, family[b].pairs, statistic,
                                   family[b].plan)) for b in budgets},
        baselines=_baselines(frames, metrics),
        run_scores=scores,
        missing={run: lacking for run, lacking in missing.items() if lacking},
        finetunings=tuple(sorted({len(values) for by_task in tuned.values() for values in by_task.values()})),
        published=beside(frames.axis, dict.fromkeys(a for _, a in trained)) if suite == "glue" else None,
        conventions={str(row["budget"]): str(row["convention"]) for row in runs.values() if row["role"] != UNTRAINED},
        families=families,
        labels=labels(frames),
        points=training_points(frames, suite, tasks),
        measured=_measured(frames, tasks),
        statistic=statistic,
        looks=tuple(looks(last.plan, {cell.arm: cell.scores for cell in largest}, last.pairs))
        if last.plan is not None and last.pairs else (),
        items=items,
        scorers=_scorers(frames, suite, tasks),
        beside=_beside(frames, tasks, largest) if suite in OWN_SCORERS else {},
        other_inputs=any(key.strip().startswith(("generator.", "corruption.")) for key in frames.axis.split(",")),
    )  # fmt: skip


def compare(cells: Iterable[Cell], order: bool = False, family: Family = NOTHING) -> tuple[Pair, ...]:
    """Compare every two arms of a budget; pairs outside the declared `family` are exploratory."""
    compared = group_sequential.compare({cell.arm: cell.scores for cell in cells}, family, order)
    return tuple(Pair(a, b, result) for (a, b), result in compared.items())


def _groups(runs: Rows, run_ids: Iterable[str]) -> Groups:
    """Return the runs of each budget and arm, in order of seed; arms are in the order of the record."""
    groups: dict[tuple[str, str], list[str]] = {}
    place = {run: number for number, run in enumerate(runs)}
    for run in sorted(run_ids, key=lambda run: (runs[run]["seed"], place[run])):
        is_untrained = runs[run]["role"] == UNTRAINED
        key = (NO_BUDGET, UNTRAINED) if is_untrained else (runs[run]["budget"], runs[run]["arm"])
        groups.setdefault(key, []).append(run)
    return {key: tuple(members) for key, members in groups.items()}


def _untrained_runs(frames: Frames, runs: Rows, run_ids: Collection[str]) -> dict[str, str]:
    """Return for each run the untrained run with the same seed, sizes and data."""
    starts = {run: start_of(runs[run]["seed"], frames.settings[run]) for run in run_ids}
    untrained = {starts[run]: run for run in run_ids if runs[run]["role"] == UNTRAINED}
    return {r: untrained[starts[r]] for r in run_ids if runs[r]["role"] != UNTRAINED and starts[r] in untrained}


def _cell(
    key: tuple[str, str], run_ids: tuple[str, ...], runs: Rows, scores: Mapping[str, float], gain: Compared | None
) -> Cell:
    by_seed = {int(runs[run]["seed"]): scores[run] for run in run_ids}
    spent = {column: plain.fmean(float(runs[run][column]) for run in run_ids) for column in SPENT}
    return Cell(key[1], key[0], by_seed, run_ids, spent, gain)


def task_cells(
    tuned: Tuned, metrics: Mapping[str, str], groups: Groups, seeds: Mapping[str, int], untrained: Mapping[str, str],
    statistic: str = "mean",
) -> Iterator[TaskCell]:  # fmt: skip
    """Yield the result of every task, budget and arm; fine-tuning seeds of a run are averaged by the `statistic`.

    `metrics` maps a task to its headline metric, `groups` (budget, arm) to run ids, `seeds` a run id to its
    pre-training seed, and `untrained` a run id to the untrained run with the same initial weights.
    """
    for task, metric in metrics.items():
        scores = {run: score_of(tuned, run, task, statistic) for run in tuned if task in tuned[run]}
        measured = {key: tuple(run for run in runs if run in scores) for key, runs in groups.items()}
        measured = {key: run_ids for key, run_ids in measured.items() if run_ids}
        gains = gains_over_untrained(measured, scores, seeds, untrained)
        for (budget, arm), run_ids in measured.items():
            values = [list(tuned[run][task].values()) for run in run_ids]
            yield TaskCell(
                task, metric, arm, budget, t_interval([scores[run] for run in run_ids]),
                plain.fmean(map(plain.median, values)), plain.fmean(map(max, values)), sum(map(len, values)),
                gains.get((budget, arm)), run_ids,
            )  # fmt: skip


def every_metric(
    rows: Iterable[Mapping[str, Any]], cells: Iterable[Cell], headline: Mapping[str, str], statistic: str = "mean"
) -> list[MetricRow]:
    """Return task, split, metric and {arm: estimate} of everything that was measured.

    The estimates are means over runs of the `statistic` over fine-tuning seeds. Tasks that have nothing but their
    headline metric are left out. `rows` are the rows of `Frames.other`.
    """
    values: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for row in rows:
        if row["task"] in headline and not math.isnan(row["value"]):
            key = (row["task"], row["split"], row["metric"])
            values.setdefault(key, {}).setdefault(row["run_id"], []).append(row["value"])
    tasks = Counter(task for task, _, _ in values)
    return [
        (*key, {c.arm: t_interval([STATISTICS[statistic](of_run[r]) for r in c.runs if r in of_run]) for c in cells})
        for key, of_run in values.items()
        if tasks[key[0]] > 1
    ]


def _scorers(frames: Frames, suite: str, tasks: Sequence[str]) -> dict[str, Scorers]:
    """Return the scorers of each arm on the counted tasks of a suite by the arms' own scorers; else nothing."""
    runs, scorers = frames.by_id(), dict[str, set[tuple[str, str]]]()
    for row in frames.rows("scores") if suite in OWN_SCORERS else ():
        if row["suite"] == suite and row["task"] in tasks:
            name, arm = row.get("scorer"), str(runs[row["run_id"]]["arm"])
            scorers.setdefault(arm, set()).add((row["task"], name if isinstance(name, str) else ""))
    return {arm: frozenset(each) for arm, each in scorers.items()}


def _beside(frames: Frames, tasks: Sequence[str], cells: Iterable[Cell]) -> dict[str, dict[str, Estimate]]:
    """Return the mean score of each arm by the scorers that stand beside its own, if all its runs have all tasks."""
    values: dict[tuple[str, str], dict[str, float]] = {}  # run and scorer -> task -> accuracy
    for row in frames.rows("other"):  # a scorer's name is a split beside "mean", whose metric is the accuracy
        if row["task"] in tasks and row["split"] != "mean" and row["metric"] == "accuracy":
            values.setdefault((row["run_id"], row["split"]), {})[row["task"]] = row["value"]
    result: dict[str, dict[str, Estimate]] = {}
    for cell, name in itertools.product(cells, dict.fromkeys(name for _, name in values)):
        means = [plain.fmean(by.values()) for run in cell.runs if len(by := values.get((run, name), {})) == len(tasks)]
        if len(means) == len(cell.runs):
            result.setdefault(cell.arm, {})[name] = t_interval(means)
    return result


def _item_intervals(
    frames: Frames, cells: Iterable[Cell], pairs: Iterable[Pair], tasks: Sequence[str], tuned: Tuned, level: float
) -> dict[frozenset[str], intervals.ItemInterval]:
    """Return each pair's interval over new seeds and new test items, if scores keep the result of each item."""
    runs, points = {}, {}
    for cell in cells:
        runs[cell.arm] = dict(zip(sorted(cell.scores), cell.runs, strict=True))
        for run in cell.runs:
            means = {task: plain.fmean(tuned[run][task].values()) for task in tasks}
            if (of_run := intervals.points_of_items(frames.items, run, tasks, means)) is not None:
                points[run] = of_run
    each = {}
    for pair in pairs:
        both = [(runs[pair.a][seed], runs[pair.b][seed]) for seed in pair.compared.seeds]
        if (interval := intervals.item_interval(pair.compared.estimate, both, points, level)) is not None:
            each[frozenset((pair.a, pair.b))] = interval
    return each


def _measured(frames: Frames, tasks: Sequence[str]) -> tuple[Point, ...]:
    """Return the published models that have scores on all of these tasks, the best first."""
    center = STATISTICS[frames.statistic]
    models = [
        Point(
            model.name, plain.fmean(center(model.scores[task].values()) for task in tasks), model.flops, model.source,
            model.run_id,
        )
        for model in frames.published if all(task in model.scores for task in tasks)
    ]  # fmt: skip
    return tuple(sorted(models, key=lambda model: -model.score))


def _baselines(frames: Frames, tasks: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return the value of each baseline for each task, which depends on the data of the task alone."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in frames.rows("baselines"):
        if row["task"] in tasks and not math.isnan(row["value"]):
            values.setdefault(row["baseline"], {}).setdefault(row["task"], []).append(row["value"])
    return {name: {task: plain.fmean(each) for task, each in by_task.items()} for name, by_task in values.items()}


def contrasts(frames: Frames, late: bool = False) -> list[Mapping[str, Any]]:
    """Return the contrasts that were declared before both arms had a trained seed; with `late`, only later ones."""
    return [row for row in frames.record.get("contrasts") or () if bool(row["seen"]) == late]


def declared_families(frames: Frames, at: Mapping[str, Mapping[str, Any]]) -> Families:
    """Return the declared comparisons at each budget; `at` maps a budget to its arms with scores."""
    plan, pairs_at = group_sequential.plan_of(frames.record), dict[str, dict[tuple[str, str], None]]()
    for row in contrasts(frames):
        for budget, a, b in _arms(frames, row):
            if {a, b} <= at.get(budget, {}).keys():
                pairs_at.setdefault(budget, {}).setdefault((a, b))
    return {budget: Family(tuple(pairs), plan) for budget, pairs in pairs_at.items()}


def labels(frames: Frames) -> Labels:
    """Return the label of each comparison that has one."""
    rows = [row for row in contrasts(frames) if row["label"]]
    return {frozenset((a, b)): row["label"] for row in rows for _, a, b in _arms(frames, row)}


def _arms(frames: Frames, contrast: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return (budget, arm a, arm b) for each budget at which a contrast has runs of both arms."""
    runs = frames.by_id()
    one, two = (
        {(str(runs[run_id]["budget"]), str(runs[run_id]["arm"])) for run_id in contrast[key] if run_id in runs}
        for key in ("runs_a", "runs_b")
    )
    pairs = sorted((budget, a, b) for budget, a in one for other, b in two if other == budget)
    return [(budget, a, b) for budget, a, b in pairs if a != b and "unknown" not in (a, b)]


def late_measures(frames: Frames, names: Collection[str] | None = None) -> list[Mapping[str, Any]]:
    """Return the measures (by default all) with scores here that were first named after scores were known."""
    digests = {(str(row["task"]), str(row.get("digest"))) for row in frames.rows("scores")}
    late = [
        row for row in frames.record.get("measures") or () if row["seen"] and (row["name"], row["digest"]) in digests
    ]
    return [row for row in late if names is None or row["name"] in names]


def training_points(frames: Frames, suite: str, tasks: Sequence[str]) -> tuple[Cell, ...]:
    """Return the scores of a suite along training by rising compute; none if no run was scored before its end."""
    rows = [row for row in frames.points.to_dict("records") if row["suite"] == suite and row["task"] in tasks]
    if all(row["mark"] == END for row in rows):
        return ()
    runs, at = frames.by_id(), dict[tuple[str, str], dict[str, Any]]()
    for row in rows:
        at.setdefault((row["run_id"], row["mark"]), {})[row["task"]] = row
    groups: dict[tuple[str, str, str], list[dict[Any, Any]]] = {}
    for (run_id, mark), by_task in at.items():
        if len(by_task) == len(tasks) and runs[run_id]["role"] == "arm":
            score = plain.fmean(row["value"] for row in by_task.values())
            scored = next(iter(by_task.values())) | {"seed": int(runs[run_id]["seed"]), "score": score}
            groups.setdefault((runs[run_id]["arm"], runs[run_id]["budget"], mark), []).append(scored)
    points = []
    for (arm, budget, mark), scored_runs in groups.items():
        ordered = sorted(scored_runs, key=lambda row: row["seed"])
        points.append(Cell(
            arm, budget, {row["seed"]: row["score"] for row in ordered}, tuple(str(row["run_id"]) for row in ordered),
            {column: plain.fmean(float(row[column]) for row in ordered) for column in AMOUNTS}, mark=mark,
        ))  # fmt: skip
    return tuple(sorted(points, key=lambda point: (point.budget, point.arm, point.spent["flops_matmul"])))


def points_by_budget(points: Iterable[Cell], arm: str) -> list[list[Cell]]:
    """Return the points of an arm as one line for each budget, in the order of training."""
    budgets: dict[str, list[Cell]] = {}
    for point in points:
        if point.arm == arm:
            budgets.setdefault(point.budget, []).append(point)
    return [sorted(line, key=lambda point: point.spent["steps"]) for line in budgets.values()]
