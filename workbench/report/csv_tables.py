"""The tables of a report as CSV files at full precision, each row with the runs behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.report.columns import OF_SCORES, readable
from workbench.report.comparison.boards import SPENT, Board, Cell, Pair
from workbench.report.comparison.verdict import Verdict
from workbench.report.load.frames import Frames
from workbench.report.statistics.paired_comparison import Compared, Estimate

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]

TABLE = (
    "suite", "label", "budget", "arm", "statistic", "seeds", "score", "low", "high", "sd", "median", "scorer",
    "other_scorers", "gain_seeds", "gain", "gain_low",
    "gain_high", "gain_df", "gain_p", "gain_p_adjusted", *SPENT, "published", "published_source", "runs",
)  # fmt: skip
PAIRS = (
    "suite",
    "label",
    "budget",
    "a",
    "b",
    "statistic",
    "seeds",
    "difference",
    "low",
    "high",
    "df",
    "sd",
    "items",
    "low_items",
    "high_items",
    "p",
    "p_adjusted",
    "p_flip",
    "verdict",
    "order",
    "declared",
    "contrast",
    "runs_a",
    "runs_b",
)
TASKS = (
    "suite", "task", "metric", "budget", "arm", "statistic", "seeds", "mean", "low", "high", "sd", "median", "best",
    "finetunings",
    "gain_seeds", "gain", "gain_low", "gain_high", "gain_df", "gain_p", "gain_p_adjusted", "runs",
)  # fmt: skip
NOISE = (
    "suite",
    "budget",
    "task",
    "sd_finetuning",
    "sd_pretraining",
    "sd_paired",
    "sd_examples",
    "seeds",
    "df",
    "smallest_gap",
    "widest_gap",
)


VERDICT = (
    "suite", "measure", "budget", "decides", "kind", "alike", "best", "score", "seeds", "next", "difference", "low",
    "high", "items", "low_items", "high_items", "rivals", "detectable", "needed_seeds", "more_seconds", "same_compute",
    "scorers", "sentence",
)  # fmt: skip
PUBLISHED = ("run_id", "model", "suite", "task", "value", "fine_tuning_seed", "flops_stated", "flops_source")


def sheets(frames: Frames, boards: Iterable[Board], verdicts: Sequence[Verdict]) -> dict[str, pd.DataFrame]:
    """Return {file name: table}. A table without rows is included, with its columns.

    `verdicts` are those of the boards, the one that decides first.
    """
    import pandas as pd

    boards = list(boards)
    of_boards = {
        "table.csv": (TABLE, [row for b in boards for row in table(b)]),
        "pairs.csv": (PAIRS, [row for b in boards for row in pairs(b)]),
        "tasks.csv": (TASKS, [row for b in boards for row in tasks(b)]),
        "baselines.csv": (("suite", "task", "baseline", "value"), [row for b in boards for row in baselines(b)]),
        "verdict.csv": (VERDICT, [verdict_row(each, each is verdicts[0]) for each in verdicts]),
        "noise.csv": (NOISE, [row for b in boards for row in noise(b)]),
    }
    tables = {name: pd.DataFrame(rows, columns=list(columns)) for name, (columns, rows) in of_boards.items()}
    runs = frames.runs.copy()
    for board in boards:
        runs[f"score_{board.suite}"] = [board.run_scores.get(run_id) for run_id in runs["run_id"]]
    tables |= {
        "runs.csv": runs,
        "scores.csv": frames.scores.rename(columns=OF_SCORES),
        "metrics.csv": frames.other.rename(columns=OF_SCORES),
        "curves.csv": frames.curves,
        "published.csv": pd.DataFrame(published(frames), columns=list(PUBLISHED)),
        "points.csv": frames.points.rename(columns={"digest": OF_SCORES["digest"]}),
    }
    return {name: readable(sheet) for name, sheet in tables.items()}


def table(board: Board) -> list[Row]:
    """Return the rows of table.csv: each arm at each budget, the largest budget first, then the untrained encoder."""
    cells = [c for budget in reversed(board.budgets) for c in board.at(budget)]
    # As in published results: medians over fine-tuning seeds, averaged over tasks.
    medians = {(c.budget, c.arm, c.task): c.median for c in board.task_cells}
    return [_cell(board, c, medians) for c in [*cells, *([board.untrained] if board.untrained else [])]]


def _cell(board: Board, cell: Cell, medians: Mapping[tuple[str, str, str], float]) -> Row:
    column = board.published
    published = column.scores.get(cell.arm) if column else None
    return {
        "suite": board.suite,
        "label": board.label,
        "budget": cell.budget,
        "arm": cell.arm,
        "statistic": board.statistic,
        **_estimate("score", cell.estimate),
        "median": sum(medians[cell.budget, cell.arm, task] for task in board.tasks) / len(board.tasks),
        "scorer": ", ".join(sorted({name for _, name in board.scorers.get(cell.arm, ())})),
        "other_scorers": "; ".join(f"{name} {e.mean:.2f}" for name, e in _beside(board, cell).items()),
        **_gain(cell.gain),
        **cell.spent,
        "published": published,
        "published_source": column.source if column and published is not None else "",
        "runs": " ".join(cell.runs),
    }


def _beside(board: Board, cell: Cell) -> Mapping[str, Estimate]:
    """Return the scores of an arm by further scorers, which are known at the largest budget."""
    return board.beside.get(cell.arm, {}) if cell.budget == board.budget else {}


def _estimate(name: str, e: Estimate) -> Row:
    return {"seeds": e.n, name: e.mean, "low": e.low, "high": e.high, "sd": e.sd}


def _gain(gain: Compared | None) -> Row:
    if gain is None:
        return {"gain_seeds": 0}
    e = gain.estimate
    return {
        "gain_seeds": e.n, "gain": e.mean, "gain_low": e.low, "gain_high": e.high, "gain_df": e.df,
        "gain_p": gain.difference.p, "gain_p_adjusted": gain.adjusted,
    }  # fmt: skip


def pairs(board: Board) -> list[Row]:
    """Return the rows of pairs.csv: each comparison of two arms at each budget."""
    rows = []
    for budget in reversed(board.budgets):
        runs = {c.arm: dict(zip(sorted(c.scores), c.runs, strict=True)) for c in board.at(budget)}
        for pair in board.pairs[budget]:
            d, items = pair.difference, board.items.get(budget, {}).get(frozenset((pair.a, pair.b)))
            of_items = {"items": items.items, "low_items": items.low, "high_items": items.high} if items else {}
            rows.append({
                "suite": board.suite, "label": board.label, "budget": budget, "a": pair.a, "b": pair.b,
                "statistic": board.statistic,
                **_estimate("difference", d.estimate), "df": d.estimate.df, **of_items, "p": d.p,
                "p_adjusted": pair.compared.adjusted, "p_flip": pair.compared.flip,
                "verdict": verdict(board, pair), "order": pair.compared.order,
                "declared": "yes" if pair.compared.declared and budget in board.families else "no",
                "contrast": board.labels.get(frozenset((pair.a, pair.b)), ""),
                "runs_a": " ".join(runs[pair.a][s] for s in d.seeds),
                "runs_b": " ".join(runs[pair.b][s] for s in d.seeds),
            })  # fmt: skip
    return rows


def verdict_row(verdict: Verdict, decides: bool) -> Row:
    """Return the row of verdict.csv on one measure."""
    scorers = "; ".join(f"{arm} {name}" for arm, name in verdict.scorers.items())
    row = verdict.to_json() | {"rivals": "; ".join(verdict.rivals), "scorers": scorers, "decides": decides}
    return {key: {True: "yes", False: "no"}[row[key]] if isinstance(row[key], bool) else row[key] for key in VERDICT}


def verdict(board: Board, pair: Pair) -> str:
    """Return what can be said of the first arm of a pair, as a value of the column `verdict`."""
    if not pair.compared.declared:
        return "exploratory"
    if not pair.compared.claimed:
        return "not told apart"
    return "ahead" if board.alike(pair.a, pair.b) else "higher by own scores"


def tasks(board: Board) -> list[Row]:
    """Return the rows of tasks.csv: each task, arm and budget."""
    return [
        {
            "suite": board.suite, "task": c.task, "metric": c.metric, "budget": c.budget, "arm": c.arm,
            "statistic": board.statistic, **_estimate("mean", c.estimate), "median": c.median, "best": c.best,
            "finetunings": c.finetunings,
            **_gain(c.gain), "runs": " ".join(c.runs),
        }
        for c in board.task_cells
    ]  # fmt: skip


def baselines(board: Board) -> list[Row]:
    """Return the rows of baselines.csv: each baseline on each task, and its mean over tasks."""
    rows: list[Row] = []
    for name, values in board.baselines.items():
        rows += [{"suite": board.suite, "task": t, "baseline": name, "value": v} for t, v in values.items()]
        mean = board.baseline(name)
        rows += [{"suite": board.suite, "task": "mean", "baseline": name, "value": mean}] if mean is not None else []
    return rows


def published(frames: Frames) -> list[Row]:
    """Return the rows of published.csv: each score of a model that others trained, on tasks of the experiment."""
    return [
        {
            "run_id": model.run_id, "model": model.name, "suite": model.suites[task], "task": task, "value": value,
            "fine_tuning_seed": seed, "flops_stated": model.flops, "flops_source": model.source,
        }
        for model in frames.published for task, values in model.scores.items() for seed, value in sorted(values.items())
    ]  # fmt: skip


def noise(board: Board) -> list[Row]:
    """Return the rows of noise.csv: standard deviations at each budget, of the mean score and of each task."""
    return [
        {
            "suite": board.suite, "budget": budget, "task": n.name, "sd_finetuning": n.finetuning,
            "sd_pretraining": n.pretraining, "sd_paired": n.paired, "sd_examples": n.examples,
            "seeds": n.n, "df": n.df, "smallest_gap": n.gap, "widest_gap": n.widest_gap,
        }
        for budget in reversed(board.budgets) for n in board.noise[budget]
    ]  # fmt: skip


def text(sheet: pd.DataFrame) -> str:
    """Return a table as CSV text.

    A text that a spreadsheet would read as a formula gets a leading apostrophe.
    """
    import pandas as pd

    numbers = set(sheet.select_dtypes("number").columns)
    words = {name: sheet[name] if name in numbers else [_harmless(v) for v in sheet[name]] for name in sheet.columns}
    columns: Mapping[str, str] = {str(name): str(_harmless(str(name))) for name in sheet.columns}
    return str(pd.DataFrame(words, columns=list(sheet.columns)).rename(columns=columns).to_csv(index=False))


def _harmless(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
