"""The figures of a report as data: lines against an amount, and means with intervals side by side.

The page draws them as SVG (`drawing`), its script draws them again on other axes, and a paper gets them from
matplotlib; all three read the same `Chart`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from workbench.report.comparison import points_by_budget
from workbench.report.formatting import capital
from workbench.report.load.arm_names import arm_name
from workbench.report.load.run_files import END, number
from workbench.report.load.study_tables import AMOUNTS
from workbench.report.results import Cell, Leaderboard, Results
from workbench.report.statistics.intervals import t_interval
from workbench.spec.scoring import spoken

GRID = 32  # points of a training curve in a figure
MOST_ARMS = 60  # lines or rows of one figure; more could not be told apart
FIRST_SCREEN = 8  # rows of the forest on the first screen, where there are many arms
MOST_SEEDS = 400  # runs whose own curves the page holds besides means and bands
FEW_ARMS = 8  # arms with a colour of their own; of more, the best ones have one and the others are grey
LABELS = {
    "trials": "trials", "steps": "steps", "tokens": "tokens", "seconds": "seconds of training",
    "flops_matmul": "training FLOPs (matrix products)", "flops_paper": "training FLOPs (paper\u2019s count)",
    "flops_paper-sparse": "training FLOPs (paper\u2019s count, sparse look-ups)",
}  # fmt: skip
SHORT = {
    "trials": "trials", "steps": "steps", "tokens": "tokens", "seconds": "time", "flops_matmul": "FLOPs",
    "flops_paper": "FLOPs, paper", "flops_paper-sparse": "FLOPs, paper-sparse",
}  # fmt: skip
METRICS: dict[str, tuple[str, str]] = {
    "loss": ("Total loss", "nats"), "mlm_loss": ("MLM loss of the encoder", "nats"),
    "mlm_accuracy": ("MLM accuracy of the encoder", "share"), "lm_loss": ("Language-model loss", "nats"),
    "lm_accuracy": ("Language-model accuracy", "share"), "discriminator_loss": ("Discriminator loss", "nats"),
    "discriminator_auc": ("Discriminator ROC area", ""), "generator_loss": ("Generator loss", "nats"),
    "generator_accuracy": ("Generator accuracy", "share of picks"),
    "generator_entropy": ("Generator entropy", "nats"), "discriminator_accuracy": ("Discriminator accuracy", "share"),
    "discriminator_precision": ("Discriminator precision", "share"),
    "discriminator_recall": ("Discriminator recall", "share"),
    "discriminator_positive_rate": ("Predicted as replaced", "share of tokens"),
    "copy_loss": ("Copy-gate loss", "nats"), "copy_auc": ("Copy-gate ROC area", ""),
    "copy_accuracy": ("Copy-gate accuracy", "share"), "copy_precision": ("Copy-gate precision", "share"),
    "copy_recall": ("Copy-gate recall", "share"), "copy_positive_rate": ("Predicted as copied", "share of tokens"),
    "nsp_loss": ("Next-sentence loss", "nats"), "nsp_auc": ("Next-sentence ROC area", ""),
    "sop_loss": ("Sentence-order loss", "nats"), "sop_auc": ("Sentence-order ROC area", ""),
    "replaced_rate": ("Replaced tokens", "share of tokens"), "mask_rate": ("Picked tokens", "share of tokens"),
    "gradient_norm": ("Gradient norm before clipping", ""), "learning_rate": ("Learning rate", ""),
    "tokens_per_second": ("Throughput", "tokens a second"), "device_memory_bytes": ("Device memory", "bytes"),
}  # fmt: skip
FIRST = ("mlm_loss", "lm_loss", "discriminator_loss", "discriminator_auc", "generator_loss", "copy_loss", "nsp_loss",
         "sop_loss")  # fmt: skip
ASIDE = {"step", "first_step", "last_step", "rows", "run_id", "micro_batch", "saving_share", *AMOUNTS}


@dataclass(frozen=True)
class Series:
    """One arm in a figure: `x` by axis, means `y`, half widths of intervals, and the values of each seed.

    In a forest there is one value of `y`, and `x` is empty. `marks` names points of training.
    """

    arm: str
    title: str
    x: Mapping[str, tuple[float, ...]]
    y: tuple[float, ...]
    half: tuple[float | None, ...]
    seeds: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)  # a name of the seed -> its values
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Level:
    """A value to compare with, such as the mean of untrained encoders, with half of its interval."""

    title: str
    value: float
    half: float | None = None


@dataclass(frozen=True)
class Chart:
    """One figure: lines against an amount, or a forest of means with intervals."""

    name: str
    kind: Literal["lines", "forest"]
    title: str
    unit: str
    series: tuple[Series, ...]
    axes: tuple[str, ...] = ()
    log: bool = False
    levels: tuple[Level, ...] = ()
    left_out: int = 0  # arms that are not drawn, the worst ones

    @property
    def label(self) -> str:
        """What is drawn, with its unit."""
        return self.title if self.unit in ("", "score") else f"{self.title}, {self.unit}"

    @property
    def limits(self) -> tuple[float, float]:
        """The lowest and highest value to show: all means, seeds and levels, and intervals up to a point.

        An interval that is much wider than everything else is cut off, since it would flatten the rest.
        """
        values = [v for one in self.series for v in one.y] + [level.value for level in self.levels]
        values += [v for one in self.series for row in one.seeds.values() for v in row if v is not None]
        values = [v for v in values if math.isfinite(v)]
        if not values:
            return 0.0, 1.0
        low, high = min(values), max(values)
        spread = (high - low) or abs(high) * 0.1 or 1.0
        ends = [y + sign * h for one in self.series for y, h in zip(one.y, one.half, strict=True) if h is not None
                for sign in (-1, 1)]  # fmt: skip
        low = max(min([low, *ends]), low - 0.35 * spread)
        high = min(max([high, *ends]), high + 0.35 * spread)
        pad = 0.04 * ((high - low) or spread)
        return low - pad, high + pad


def main(results: Results, board: Leaderboard, name: str) -> Chart:
    """Return the main figure of a board: score against compute, or the forest of means if arms spent one amount."""
    amounts = Counter(one.arm for one in board.points or board.cells)
    if 2 * sum(number > 1 for number in amounts.values()) > len(board.arms):
        return against(results, board, name)
    return forest(results, board, name, FIRST_SCREEN if len(board.at(board.budget)) > 16 else MOST_ARMS)


def unit_of(board: Leaderboard) -> str:
    """Return the unit of the scores of a board in words."""
    metrics = {board.metrics[task] for task in board.tasks}
    metric = metrics.pop() if len(metrics) == 1 else "score"
    return {"accuracy": "accuracy, %", "f1": "F1, %", "macro_f1": "macro F1, %"}.get(metric, metric)


def forest(results: Results, board: Leaderboard, name: str, most: int = MOST_ARMS) -> Chart:
    """Return means and intervals of the `most` best arms at the largest budget, in the axis's order or best first."""
    cells = board.at(board.budget)
    drawn = cells[:most]
    if results.ordered:
        drawn = sorted(drawn, key=lambda cell: results.arms.index(cell.arm))
    series = tuple(
        Series(cell.arm, results.titles[cell.arm], {}, (cell.estimate.mean,), (cell.estimate.half,),
               {f"seed {seed}": (score,) for seed, score in sorted(cell.scores.items())})
        for cell in drawn
    )  # fmt: skip
    title, left_out = capital(spoken(board.suite, board.tasks)), len(cells) - len(drawn)
    return Chart(name, "forest", title, unit_of(board), series, levels=levels(board), left_out=left_out)


def levels(board: Leaderboard) -> tuple[Level, ...]:
    """Return what scores are compared with: untrained encoders, and a baseline on words alone or chance."""
    names = ("bag-of-words", "word-lookup", "tf-idf", "nearest-overlap", "majority", "chance")
    baselines = ((name.replace("-", " "), board.baseline(name)) for name in names)
    first = next((Level(title, value) for title, value in baselines if value is not None), None)
    untrained = board.untrained.estimate if board.untrained is not None else None
    bare = Level("untrained encoders", untrained.mean, untrained.half) if untrained is not None else None
    return tuple(level for level in (bare, first) if level is not None)


def against(results: Results, board: Leaderboard, name: str) -> Chart:
    """Return the figure of scores against compute: at points of training, or at each budget."""
    convention = f"flops_{board.convention()}"
    best = [cell.arm for cell in board.at(board.budget)]
    arms = sorted(board.arms, key=lambda arm: best.index(arm) if arm in best else len(best))
    series: list[Series] = []
    for arm in arms[:MOST_ARMS]:
        title = results.titles[arm]
        for line in points_by_budget(board.points, arm):
            full = f"{title}, {line[0].budget}" if len(board.budgets) > 1 else title
            marks = tuple("" if point.mark == END else point.mark for point in line)
            series.append(_line(arm, full, line, marks))
        if not board.points:
            cells = sorted((c for c in board.cells if c.arm == arm), key=lambda c: c.spent[convention])
            series.append(_line(arm, title, cells, tuple(cell.budget for cell in cells)))
    axes = (convention, *(axis for axis in ("tokens", "steps", "seconds", *AMOUNTS) if axis != convention))
    axes = tuple(dict.fromkeys(
        axis for axis in axes if all(math.isfinite(x) and x > 0 for one in series for x in one.x[axis])
    )) or (convention,)  # fmt: skip
    title, left_out = capital(spoken(board.suite, board.tasks)), max(0, len(arms) - MOST_ARMS)
    return Chart(name, "lines", title, unit_of(board), tuple(series), axes, True, levels(board), left_out)


def _line(arm: str, title: str, points: Sequence[Cell], marks: tuple[str, ...]) -> Series:
    x = {axis: tuple(float(point.spent[axis]) for point in points) for axis in AMOUNTS}
    estimates = [point.estimate for point in points]
    numbers = sorted({seed for point in points for seed in point.scores})
    seeds = {f"seed {seed}": tuple(point.scores.get(seed) for point in points) for seed in numbers}
    return Series(arm, title, x, tuple(e.mean for e in estimates), tuple(e.half for e in estimates), seeds, marks)


def curves(results: Results, every_budget: bool = False, points: int = GRID) -> list[Chart]:
    """Return a figure for each metric that runs logged: the mean over seeds of each arm, with its t interval.

    The curves of the largest budget are shown, or of every budget, each on so many points; between two logged rows a
    value is linear.
    """
    table = results.frames.curves
    if table.empty:
        return []
    runs = [run for run in results.frames.rows("runs") if run["role"] == "arm"]
    budget = results.by_verdict[0].budget if results.by_verdict else next((run["budget"] for run in reversed(runs)), "")
    runs = runs if every_budget else [run for run in runs if run["budget"] == budget] or runs
    best = [cell.arm for cell in results.by_verdict[0].at(budget)] if results.by_verdict else []
    arms = sorted(results.arms, key=lambda arm: best.index(arm) if arm in best else len(best))[:MOST_ARMS]
    if len(arms) <= FEW_ARMS:
        arms = [arm for arm in results.arms if arm in arms]
    places = table.groupby("run_id", sort=False).indices
    budgets = dict.fromkeys(run["budget"] for run in runs)
    groups = [
        (arm, results.titles[arm] if len(budgets) == 1 else f"{results.titles[arm]}, {one}",
         [run for run in runs if (run["arm"], run["budget"]) == (arm, one) and run["run_id"] in places])
        for arm in arms for one in budgets
    ]  # fmt: skip
    metrics = [name for name in map(str, table.columns) if name not in ASIDE and not name.startswith("flops")]
    columns = {name: table[name].to_numpy(dtype=float) for name in [*metrics, "step", *_amount_columns(table)]}
    keep_seeds = len(runs) <= MOST_SEEDS
    grid = points if len(arms) <= 12 else points // 2
    charts: dict[str, list[Series]] = {metric: [] for metric in metrics}
    for arm, title, arm_runs in groups:
        if not arm_runs:
            continue
        own = [places[run["run_id"]] for run in arm_runs]
        start = max(float(columns["step"][at].min()) for at in own)
        end = min(_last_step(columns, at) for at in own)
        steps = np.unique(np.linspace(start, max(start, end), grid))
        x = {"steps": tuple(steps.tolist())}
        for column, axis in _amount_columns(table).items():
            values = [_on(steps, columns["step"][at], columns[column][at]) for at in own]
            if all(value is not None for value in values):
                x[axis] = tuple(np.mean(values, axis=0).tolist())
        for metric in metrics:
            rows = {
                f"seed {run['seed']}": _on(steps, columns["step"][at], columns[metric][at])
                for run, at in zip(arm_runs, own, strict=True)
            }
            rows = {seed: values for seed, values in rows.items() if values is not None}
            if rows:
                means = [t_interval(column) for column in np.array(list(rows.values())).T.tolist()]
                own_lines = {seed: tuple(row.tolist()) for seed, row in rows.items()} if keep_seeds else {}
                charts[metric].append(
                    Series(arm, title, x, tuple(e.mean for e in means), tuple(e.half for e in means), own_lines)
                )
    convention = results.by_verdict[0].convention() if results.by_verdict else "matmul"
    axes = ("tokens", "steps", "seconds", f"flops_{convention}")
    made = [
        Chart(f"curve-{metric}", "lines", *METRICS.get(metric, (metric.replace("_", " "), "")), tuple(series),
              tuple(axis for axis in axes if all(axis in one.x for one in series)))
        for metric, series in charts.items() if len({value for one in series for value in one.y}) > 1
    ]  # fmt: skip
    order = list(METRICS)
    return sorted(made, key=lambda c: order.index(m) if (m := c.name.removeprefix("curve-")) in order else len(order))


def _amount_columns(table: Any) -> dict[str, str]:
    """Return the columns of amounts in a table of curves, and the axis that each is."""
    names = ("tokens", "seconds", *(name for name in map(str, table.columns) if name.startswith("flops.")))
    return {name: name.replace("flops.", "flops_", 1) for name in names if name in table.columns}


def _last_step(columns: Mapping[str, Any], at: Any) -> float:
    """Return the last step at which a run, the rows `at`, had a loss: one that diverged has later rows without."""
    known = at[np.isfinite(columns["loss"][at])] if "loss" in columns else at
    return float(columns["step"][known if len(known) else at].max())


def _on(grid: Any, steps: Any, values: Any) -> Any:
    """Return the values at other steps; None if a run never logged the metric."""
    known = np.isfinite(values)
    return np.interp(grid, steps[known], values[known]) if known.any() else None


def sparkline(results: Results, run_id: str, most: int = 24) -> list[tuple[float, float]]:
    """Return about `most` points (step, total loss) of the curve of one run."""
    rows = results.frames.logged(run_id)
    metric = next((m for m in ("loss", *FIRST) if rows and m in rows[-1]), "")
    points = [(float(row["step"]), float(row[metric])) for row in rows if metric in row] if metric else []
    return points[:: max(1, math.ceil(len(points) / most))]


def tuning(results: Results) -> Chart | None:
    """Return the best score so far of each objective over the number of its trials; None without a search."""
    trials: dict[str, list[tuple[int, float]]] = {}
    for entry in results.frames.record.get("tuning") or ():
        score, place = number(entry.get("score")), number(entry.get("trial"))
        if score == score and place == place:
            trials.setdefault(arm_name(entry.get("objective")), []).append((int(place) + 1, score))
    series = []
    for arm, rows in trials.items():
        ordered = sorted(rows)
        best = [max(score for _, score in ordered[: i + 1]) for i in range(len(ordered))]
        title = results.titles.get(arm) or arm
        series.append(Series(arm, title, {"trials": tuple(float(n) for n, _ in ordered)}, tuple(best),
                             (None,) * len(best), {"trial": tuple(score for _, score in ordered)}))  # fmt: skip
    return Chart("tuning", "lines", "Best score so far", "score", tuple(series), ("trials",)) if series else None
