"""The data files of a report: CSV tables at full precision and report.json, written and read again.

A page is drawn again from them without its runs. Columns are described in docs/columns.md.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workbench
from workbench.errors import InputError
from workbench.report.comparison import leaderboards
from workbench.report.load import study_tables
from workbench.report.load.study_tables import BASELINE, FLOPS, RUN, Frames, PublishedRun, frame_of
from workbench.report.results import SPENT, Leaderboard, ReportOptions, Results, Verdict
from workbench.report.statistics.intervals import Estimate
from workbench.report.statistics.paired_comparison import Compared
from workbench.report.verdict import verdicts
from workbench.store.atomic import dumps

if TYPE_CHECKING:
    import pandas as pd

    from workbench.store.run_store import RunStore

Row = dict[str, Any]

FORMAT = 1
FACTS = "report.json"
DERIVED = ("table.csv", "pairs.csv", "tasks.csv", "noise.csv", "verdict.csv")  # made again whenever a report is drawn
MEASURED = ("runs", "scores", "metrics", "baselines", "curves", "points", "published")  # what a page is made from
MOST_ITEMS = 2_000_000  # characters of the results of single test items; more are left out of report.json

# Columns with another name in files than in `Frames`.
NAMES = {"role": "kind", "spec": "spec_hash", "data": "data_fingerprint", "code": "code_version"}
OF_SCORES = {"seed": "fine_tuning_seed", "digest": "fine_tuning_settings_hash"}  # in tables of scores
COUNTS = {
    "steps", "tokens", "words", "step", "first_step", "last_step", "rows", "train_rows", "test_rows", "seed", "seeds",
    "fine_tuning_seed", "items", "needed_seeds", "gain_seeds", "finetunings", "ties", "micro_batch",
    "device_memory_bytes",
}  # fmt: skip
MOST = 2**63  # larger counts do not fit into 64 bits
# Text columns, so that an arm called `1` or `nan` is not read as a number.
WORDS = (
    "run_id", "kind", "arm", "budget", "state", "reason", "convention", "spec_hash", "data_fingerprint",
    "code_version", "path", "suite", "task", "metric", "fine_tuning_settings_hash", "scorer", "split", "baseline",
    "mark", "before_end_of_decay", "model", "flops_source",
)  # fmt: skip
TEXTS = ("scorer", "digest", "path")  # columns of scores whose missing values are ""
_GUARDED = re.compile(r"^'(?=[=+\-@\t\r])")  # the apostrophe before a text that a spreadsheet would take for a formula

GAIN = ("gain_seeds", "gain", "gain_low", "gain_high", "gain_df", "gain_p", "gain_p_adjusted")
TABLE = (
    "suite", "label", "budget", "arm", "statistic", "seeds", "score", "low", "high", "sd", "median", "scorer",
    "other_scorers", *GAIN, *SPENT, "published", "published_source", "runs",
)  # fmt: skip
PAIRS = (
    "suite", "label", "budget", "a", "b", "statistic", "seeds", "difference", "low", "high", "df", "sd", "items",
    "low_items", "high_items", "p", "p_adjusted", "p_flip", "verdict", "order", "declared", "contrast", "runs_a",
    "runs_b",
)  # fmt: skip
TASKS = (
    "suite", "task", "metric", "budget", "arm", "statistic", "seeds", "mean", "low", "high", "sd", "median", "best",
    "finetunings", *GAIN, "runs",
)  # fmt: skip
NOISE = (
    "suite", "budget", "task", "sd_finetuning", "sd_pretraining", "sd_paired", "sd_examples", "seeds", "df",
    "smallest_gap", "widest_gap",
)  # fmt: skip
VERDICT = (
    "suite", "measure", "budget", "decides", "kind", "alike", "best", "score", "seeds", "next", "difference", "low",
    "high", "items", "low_items", "high_items", "rivals", "detectable", "needed_seeds", "more_seconds", "same_compute",
    "scorers", "sentence",
)  # fmt: skip
PUBLISHED = ("run_id", "model", "suite", "task", "value", "fine_tuning_seed", "flops_stated", "flops_source")
FORMS = ("csv", "parquet", "latex")  # file formats of an export
EXPORTED = (
    "run_id", "role", "arm", "seed", "budget", "state", "steps", "tokens", "words", "epochs", "seconds", *FLOPS, "spec",
    "data", "code",
)  # fmt: skip
LATEX_COLUMNS = (
    "arm", "seed", "budget", "task", "metric", "fine_tuning_seed", "value", "run_id", "data_fingerprint",
    "code_version",
)  # fmt: skip


def results_of(loaded: Frames, missing: Mapping[str, str], options: ReportOptions) -> Results:
    """Return the results of an experiment that was read, the measure that decides first."""
    boards = leaderboards(loaded, options.order)
    return Results(loaded, tuple(boards), tuple(verdicts(boards, loaded)), missing, options)


def from_store(
    store: RunStore, record: str, missing: Mapping[str, str] | None = None, options: ReportOptions | None = None,
    loaded: Frames | None = None,
) -> Results:  # fmt: skip
    """Return the results of a record of a store, or of what was `loaded` of it. Raises InputError if there is none."""
    options = options or ReportOptions()
    frames = study_tables.read_and_warn(store, record, options.verify) if loaded is None else loaded
    return results_of(frames, missing or {}, options)


def from_folder(folder: Path, options: ReportOptions | None = None, prefix: str = "") -> Results:
    """Return the results in the data files of a report, whose names begin with `prefix`. Raises InputError."""
    paths = {name: folder / f"{prefix}{name}" for name in (FACTS, *(f"{name}.csv" for name in MEASURED))}
    for path in paths.values():
        if not path.is_file():
            raise InputError(
                f"{folder} holds no report that can be drawn again: there is no {path.name}; write the report again "
                f"from its runs (`workbench report NAME --runs RUNS`)"
            )
    facts = _read_json(paths[FACTS])
    tables = {name: _read_csv(paths[f"{name}.csv"]) for name in MEASURED}
    try:
        frames = _frames(facts, tables)
        missing = {str(name): str(why) for name, why in (facts.get("missing") or {}).items()}
        left_out = tuple(map(str, facts.get("left_out") or ()))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"the report in {folder} cannot be drawn again: its data files lack or damage {error}"
        ) from None
    kept = {name: path.read_bytes() for name, path in paths.items()}
    return replace(results_of(frames, missing, options or ReportOptions()), left_out=left_out, kept=kept)


def data_files(results: Results) -> dict[str, bytes]:
    """Return the data files of a report by name: its CSV tables, verdict.json and report.json."""
    sheets = csv_tables(results.frames, results.boards, results.verdicts)
    names = DERIVED if results.kept else tuple(sheets)
    files = {name: csv_bytes(sheets[name]) for name in names}
    files["verdict.json"] = f"{dumps(results.verdicts[0].to_json() if results.verdicts else {})}\n".encode()
    if results.kept:
        return {**results.kept, **files}
    return files | {FACTS: report_json(results.frames, results.missing).encode("utf-8", "replace")}


def long_table(experiment: Frames) -> pd.DataFrame:
    """Return every score of every run of a record; a run without scores has one row without task and value."""
    scores = experiment.scores[["run_id", "suite", "task", "metric", "seed", "value", "digest"]]
    merged = experiment.runs[list(EXPORTED)].merge(scores.rename(columns=OF_SCORES), on="run_id", how="left")
    merged.insert(0, "experiment", experiment.record["name"])
    return for_files(merged)


def export_scores(store: RunStore, record: str, form: str, verify: bool = True) -> bytes:
    """Return the long table as a file of one of the FORMS. Raises InputError if there is no such record.

    LaTeX is a `longtable` for booktabs, with the columns that fit a page and hashes cut to twelve digits.
    """
    scores = long_table(study_tables.read_and_warn(store, record, verify))
    if form == "csv":
        return csv_bytes(scores)
    if form == "parquet":
        out = io.BytesIO()
        scores.to_parquet(out, index=False)
        return out.getvalue()
    part = scores[list(LATEX_COLUMNS)].assign(data_fingerprint=scores["data_fingerprint"].astype(str).str[:12])
    part.columns = [name.replace("_", " ") for name in part.columns]
    text = part.to_latex(index=False, escape=True, longtable=True, na_rep="--", float_format="%.2f")
    return str(text).encode("utf-8", "replace")


def name_in_files(column: str) -> str:
    """Return the name that a column of the tables has in files, with underscores between words."""
    if column.startswith(("flops_", "flops.")):
        return column.replace(".", "_").replace("-", "_")
    return NAMES.get(column, column)


def for_files(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the names used in files, and with counts as integers if all are whole: 4578, not 4578.0."""
    renamed = table.rename(columns={str(column): name_in_files(str(column)) for column in table.columns})
    if "kind" in renamed:
        renamed["kind"] = renamed["kind"].replace({"arm": "pre-training"})
    for column in renamed.columns:
        if column in COUNTS or str(column).startswith("flops_"):
            numbers = renamed[column].dropna()
            if numbers.dtype.kind == "f" and ((numbers % 1 == 0) & (numbers.abs() < MOST)).all():
                renamed[column] = renamed[column].astype("Int64")
    return renamed


def csv_bytes(sheet: pd.DataFrame) -> bytes:
    """Return a table as CSV. A text that a spreadsheet would read as a formula gets a leading apostrophe."""
    import pandas as pd

    def harmless(value: Any) -> Any:
        return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value

    numbers = set(sheet.select_dtypes("number").columns)
    words = {name: sheet[name] if name in numbers else [harmless(v) for v in sheet[name]] for name in sheet.columns}
    columns = {str(name): harmless(str(name)) for name in sheet.columns}
    text = pd.DataFrame(words, columns=list(sheet.columns)).rename(columns=columns).to_csv(index=False)
    return str(text).encode("utf-8", "replace")


def csv_tables(frames: Frames, boards: Iterable[Leaderboard], verdicts: Sequence[Verdict]) -> dict[str, pd.DataFrame]:
    """Return {file name: table}, also tables without rows. The first of the `verdicts` decides."""
    boards = list(boards)
    published = [
        {
            "run_id": model.run_id, "model": model.name, "suite": model.suites[task], "task": task, "value": value,
            "fine_tuning_seed": seed, "flops_stated": model.flops, "flops_source": model.source,
        }
        for model in frames.published for task, values in model.scores.items() for seed, value in sorted(values.items())
    ]  # fmt: skip
    runs = frames.runs.copy()
    for board in boards:
        runs[f"score_{board.suite}"] = [board.run_scores.get(run_id) for run_id in runs["run_id"]]
    verdict_rows = [
        verdict.to_json() | {
            "rivals": "; ".join(verdict.rivals), "decides": "yes" if verdict is verdicts[0] else "no",
            "scorers": "; ".join(f"{arm} {name}" for arm, name in verdict.scorers.items()),
            **{key: "yes" if getattr(verdict, key) else "no" for key in ("alike", "same_compute")},
        }
        for verdict in verdicts
    ]  # fmt: skip
    baselines: list[Row] = []  # each baseline on each task, and its mean over tasks
    for board in boards:
        for name, values in board.baselines.items():
            mean = {} if board.baseline(name) is None else {"mean": board.baseline(name)}
            shared: Row = {"suite": board.suite, "baseline": name}
            baselines += [shared | {"task": task, "value": value} for task, value in (dict(values) | mean).items()]
    tables = {
        "table.csv": frame_of([row for board in boards for row in arm_rows(board)], TABLE),
        "pairs.csv": frame_of([row for board in boards for row in pair_rows(board)], PAIRS),
        "tasks.csv": frame_of([row for board in boards for row in task_rows(board)], TASKS),
        "baselines.csv": frame_of(baselines, ("suite", *BASELINE[1:])),
        "verdict.csv": frame_of(verdict_rows, VERDICT),
        "noise.csv": frame_of([row for board in boards for row in noise_rows(board)], NOISE),
        "runs.csv": runs,
        "scores.csv": frames.scores.rename(columns=OF_SCORES),
        "metrics.csv": frames.other.rename(columns=OF_SCORES),
        "curves.csv": frames.curves,
        "published.csv": frame_of(published, PUBLISHED),
        "points.csv": frames.points.rename(columns={"digest": OF_SCORES["digest"]}),
    }
    return {name: for_files(sheet) for name, sheet in tables.items()}


def arm_rows(board: Leaderboard) -> list[Row]:
    """Return the rows of table.csv: each arm at each budget, the largest budget first, then the untrained encoder."""
    # As in published results: medians over fine-tuning seeds, averaged over tasks.
    medians = {(cell.budget, cell.arm, cell.task): cell.median for cell in board.task_cells}
    rows = []
    for cell in (*(c for b in reversed(board.budgets) for c in board.at(b)), board.untrained):
        if cell is None:
            continue
        published = board.published.scores.get(cell.arm) if board.published else None
        beside = board.beside.get(cell.arm, {}) if cell.budget == board.budget else {}
        rows.append({
            "suite": board.suite, "label": board.label, "budget": cell.budget, "arm": cell.arm,
            "statistic": board.statistic, **_estimate("score", cell.estimate),
            "median": sum(medians[cell.budget, cell.arm, task] for task in board.tasks) / len(board.tasks),
            "scorer": ", ".join(sorted({name for _, name in board.scorers.get(cell.arm, ())})),
            "other_scorers": "; ".join(f"{name} {e.mean:.2f}" for name, e in beside.items()),
            **_gain(cell.gain), **cell.spent, "published": published,
            "published_source": board.published.source if board.published and published is not None else "",
            "runs": " ".join(cell.runs),
        })  # fmt: skip
    return rows


def _estimate(name: str, e: Estimate) -> Row:
    return {"seeds": e.n, name: e.mean, "low": e.low, "high": e.high, "sd": e.sd}


def _gain(gain: Compared | None) -> Row:
    if gain is None:
        return {"gain_seeds": 0}
    e = gain.estimate
    return dict(zip(GAIN, (e.n, e.mean, e.low, e.high, e.df, gain.p, gain.adjusted), strict=True))


def pair_rows(board: Leaderboard) -> list[Row]:
    """Return the rows of pairs.csv: each comparison of two arms at each budget."""
    rows = []
    for budget in reversed(board.budgets):
        runs = {cell.arm: dict(zip(sorted(cell.scores), cell.runs, strict=True)) for cell in board.at(budget)}
        for pair in board.pairs[budget]:
            one, both = pair.compared, frozenset((pair.a, pair.b))
            items, verdict = board.items.get(budget, {}).get(both), "exploratory"
            if one.declared:
                ahead = "ahead" if board.alike(pair.a, pair.b) else "higher by own scores"
                verdict = ahead if one.claimed else "not told apart"
            of_items = {"items": items.items, "low_items": items.low, "high_items": items.high} if items else {}
            rows.append({
                "suite": board.suite, "label": board.label, "budget": budget, "a": pair.a, "b": pair.b,
                "statistic": board.statistic, **_estimate("difference", one.estimate), "df": one.estimate.df,
                **of_items, "p": one.p, "p_adjusted": one.adjusted, "p_flip": one.flip, "verdict": verdict,
                "order": one.order, "declared": "yes" if one.declared and budget in board.families else "no",
                "contrast": board.labels.get(both, ""),
                "runs_a": " ".join(runs[pair.a][seed] for seed in one.seeds),
                "runs_b": " ".join(runs[pair.b][seed] for seed in one.seeds),
            })  # fmt: skip
    return rows


def task_rows(board: Leaderboard) -> list[Row]:
    """Return the rows of tasks.csv: each task, arm and budget."""
    return [
        {
            "suite": board.suite, "task": c.task, "metric": c.metric, "budget": c.budget, "arm": c.arm,
            "statistic": board.statistic, **_estimate("mean", c.estimate), "median": c.median, "best": c.best,
            "finetunings": c.finetunings, **_gain(c.gain), "runs": " ".join(c.runs),
        }
        for c in board.task_cells
    ]  # fmt: skip


def noise_rows(board: Leaderboard) -> list[Row]:
    """Return the rows of noise.csv: standard deviations at each budget, of the mean score and of each task."""
    return [
        {
            "suite": board.suite, "budget": budget, "task": n.name, "sd_finetuning": n.finetuning,
            "sd_pretraining": n.pretraining, "sd_paired": n.paired, "sd_examples": n.examples,
            "seeds": n.n, "df": n.df, "smallest_gap": n.gap, "widest_gap": n.widest_gap,
        }
        for budget in reversed(board.budgets) for n in board.noise[budget]
    ]  # fmt: skip


def report_json(frames: Frames, missing: Mapping[str, str]) -> str:
    """Return report.json: what the page shows and no CSV file holds, such as the question and all settings."""
    items = {run: {task: list(signs) for task, signs in tasks.items()} for run, tasks in frames.items.items()}
    few = len(str(items)) <= MOST_ITEMS
    return dumps({
        "format": FORMAT, "workbench": workbench.__version__, "record": dict(frames.record),
        "settings": _packed(frames.settings), "environments": _packed(frames.environments),
        "items": items if few else {}, "floors": {run: dict(values) for run, values in frames.floors.items()},
        "notes": list(frames.notes), "missing": dict(missing),
        "left_out": [] if few else ["the results of single test items"],
    }) + "\n"  # fmt: skip


def _packed(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return tables by run id with each key once: `same` for all runs, or `values` and the index `of` every run."""
    runs = list(tables)
    same: dict[str, Any] = {}
    differ: dict[str, Any] = {}
    for key in dict.fromkeys(key for table in tables.values() for key in table):
        values: dict[str, Any] = {}  # JSON text -> value
        texts = [json.dumps(t[key], sort_keys=True, default=str) if key in t else None for t in tables.values()]
        for text, table in zip(texts, tables.values(), strict=True):
            if text is not None:
                values.setdefault(text, table[key])
        if len(values) == 1 and None not in texts:
            same[key] = next(iter(values.values()))
        else:
            place = {text: number for number, text in enumerate(values)}
            differ[key] = {"values": list(values.values()), "of": [place.get(str(text)) for text in texts]}
    return {"runs": runs, "same": same, "differ": differ}


def _unpacked(packed: Any) -> dict[str, dict[str, Any]]:
    runs = list(packed["runs"])
    tables: dict[str, dict[str, Any]] = {run: dict(packed["same"]) for run in runs}
    for key, entry in packed["differ"].items():
        for run, place in zip(runs, entry["of"], strict=True):
            if place is not None:
                tables[run][key] = entry["values"][place]
    return tables


def _frames(facts: Mapping[str, Any], tables: Mapping[str, pd.DataFrame]) -> Frames:
    """Return the tables of a study from report.json and the CSV files; columns that a kept report lacks are empty."""
    settings, curves, baselines = _unpacked(facts["settings"]), tables["curves"], tables["baselines"]
    runs = tables["runs"].reindex(columns=list(dict.fromkeys([*tables["runs"].columns, *RUN]))).astype({"seed": int})
    runs["reason"] = runs["reason"].astype(object).fillna("")
    scores = tables["scores"].astype({"seed": int, **dict.fromkeys(TEXTS, object)}).fillna(dict.fromkeys(TEXTS, ""))
    curves = curves.rename(columns={name: name.replace("flops_", "flops.", 1) for name in FLOPS})
    curves = curves.astype({name: float for name in curves.columns if name != "run_id"})
    return Frames(
        dict(facts["record"]), runs, scores, tables["metrics"],
        baselines[baselines["task"] != "mean"].assign(run_id=""), curves,
        {run: settings.get(run, {}) for run in runs["run_id"]}, _unpacked(facts["environments"]),
        tuple(map(str, facts["notes"])), facts["floors"], tables["points"], facts.get("items") or {},
        _read_published(tables["published"]),
    )  # fmt: skip


def _read_json(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise InputError(f"{path} is not of format {FORMAT}, which this version of workbench draws")
    return facts


def _read_csv(path: Path) -> pd.DataFrame:
    import pandas as pd

    words = dict.fromkeys(WORDS, str)
    try:
        table = pd.read_csv(path, dtype=words, keep_default_na=False, na_values=[""], encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a table: {' '.join(str(error).split())}") from None
    table = table.rename(columns=lambda name: _GUARDED.sub("", str(name)))
    for name in table.columns:
        if name in WORDS:
            table[name] = [_GUARDED.sub("", value) if isinstance(value, str) else value for value in table[name]]
    # The column names of `Frames`: the inverse of `for_files`.
    names = {new: old for old, new in (NAMES | OF_SCORES).items()} | {name_in_files(name): name for name in FLOPS}
    table = table.rename(columns=names)
    return table.assign(role=table["role"].replace({"pre-training": "arm"})) if "role" in table else table


def _read_published(table: pd.DataFrame) -> tuple[PublishedRun, ...]:
    models = []
    for run_id, part in table.fillna({"flops_source": ""}).groupby("run_id", sort=False):
        scores: dict[str, dict[int, float]] = {}
        for task, seed, value in zip(part["task"], part["seed"], part["value"], strict=True):
            scores.setdefault(task, {})[int(seed)] = float(value)
        name, flops, source = part[["model", "flops_stated", "flops_source"]].iloc[0]
        suites = dict(zip(part["task"], part["suite"], strict=True))
        models.append(PublishedRun(str(run_id), str(name), float(flops), source, scores, suites))
    return tuple(models)
