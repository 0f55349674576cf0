"""The data files of a report: CSV tables and report.json, from which its page is drawn again without its runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import InputError
from workbench.report.columns import FLOPS, as_in_frames, name_of
from workbench.report.load.frames import POINT, RUN, SCORE, Frames, no_points
from workbench.report.load.logged_rows import LoggedRows
from workbench.report.load.published_scores import PublishedRun
from workbench.store.atomic import dumps

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
FACTS = "report.json"
MOST_ITEMS = 2_000_000  # characters of the results of single test items; more are left out of report.json
REQUIRED = ("runs", "scores")
OPTIONAL = ("metrics", "baselines", "curves", "points", "published")
# Text columns, so that an arm called `1` or `nan` is not read as a number.
WORDS = (
    "run_id", "kind", "arm", "budget", "state", "reason", "convention", "spec_hash", "data_fingerprint",
    "code_version", "path", "suite", "task", "metric", "fine_tuning_settings_hash", "scorer", "split", "baseline",
    "mark", "before_end_of_decay", "model", "flops_source",
)  # fmt: skip
TEXTS = dict.fromkeys(("scorer", "digest", "path"), object)  # of scores; an older report may lack them
_GUARDED = re.compile(r"^'(?=[=+\-@\t\r])")  # the apostrophe before a text that a spreadsheet would take for a formula


def facts_text(frames: Frames, missing: Mapping[str, str], version: str) -> str:
    """Return report.json: what the page shows and no CSV file holds, such as the question and all settings."""
    items = {run: {task: list(signs) for task, signs in tasks.items()} for run, tasks in frames.items.items()}
    return dumps({
        "format": FORMAT,
        "workbench": version,
        "record": dict(frames.record),
        "settings": _packed(frames.settings),
        "environments": _packed(frames.environments),
        "items": items if len(str(items)) <= MOST_ITEMS else {},
        "floors": {run: dict(values) for run, values in frames.floors.items()},
        "notes": list(frames.notes),
        "missing": dict(missing),
        "left_out": [] if len(str(items)) <= MOST_ITEMS else ["the results of single test items"],
    }) + "\n"  # fmt: skip


def _packed(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return tables by run id with each key once: `same` for all runs, or `values` and the index `of` every run."""
    runs = list(tables)
    keys = dict.fromkeys(key for table in tables.values() for key in table)
    same: dict[str, Any] = {}
    differ: dict[str, Any] = {}
    for key in keys:
        values: dict[str, Any] = {}
        places: list[int | None] = []
        order: dict[str, int] = {}
        for run in runs:
            if key not in tables[run]:
                places.append(None)
                continue
            text = json.dumps(tables[run][key], sort_keys=True, default=str)
            places.append(order.setdefault(text, len(order)))
            values.setdefault(text, tables[run][key])
        if len(values) == 1 and None not in places:
            same[key] = next(iter(values.values()))
        else:
            differ[key] = {"values": list(values.values()), "of": places}
    return {"runs": runs, "same": same, "differ": differ}


def _unpacked(packed: Any) -> dict[str, dict[str, Any]]:
    runs = list(packed["runs"])
    tables: dict[str, dict[str, Any]] = {run: dict(packed["same"]) for run in runs}
    for key, entry in packed["differ"].items():
        for run, place in zip(runs, entry["of"], strict=True):
            if place is not None:
                tables[run][key] = entry["values"][place]
    return tables


def read(folder: Path, prefix: str = "") -> tuple[Frames, dict[str, str], tuple[str, ...]]:
    """Return what the data files of a report hold, its missing tasks, and what they cannot say.

    Raises InputError if the folder has no report, or if a file of it cannot be used.
    """
    import pandas as pd

    for name in (FACTS, *(f"{name}.csv" for name in REQUIRED)):
        if not (folder / f"{prefix}{name}").is_file():
            raise InputError(
                f"{folder} holds no report that can be drawn again: there is no {prefix}{name}; reports that were "
                f"written before {FACTS} existed need their runs (`workbench report NAME --runs RUNS`)"
            )
    facts = _facts(folder / f"{prefix}{FACTS}")
    tables = {
        name: _table(folder / f"{prefix}{name}.csv")
        for name in (*REQUIRED, *OPTIONAL)
        if (folder / f"{prefix}{name}.csv").is_file()
    }
    try:
        settings, environments = _unpacked(facts["settings"]), _unpacked(facts["environments"])
        record = dict(facts["record"])
        runs = _with(tables["runs"], RUN).astype({"seed": int})
        runs["reason"] = runs["reason"].astype(object).fillna("")
        logged = _logged(tables["curves"]) if "curves" in tables else LoggedRows()
        baselines = tables.get("baselines", pd.DataFrame(columns=["task", "baseline", "value"]))
        frames = Frames(
            record,
            runs,
            _with(tables["scores"], SCORE).astype({"seed": int, **TEXTS}).fillna(dict.fromkeys(TEXTS, "")),
            tables.get("metrics", pd.DataFrame(columns=["run_id", "task", "seed", "split", "metric", "value"])),
            baselines[baselines["task"] != "mean"].assign(run_id=""),
            logged.frame(),
            {run: settings.get(run, {}) for run in runs["run_id"]},
            environments,
            tuple(map(str, facts["notes"])),
            logged=logged,
            floors=facts["floors"],
            items=facts.get("items") or {},
            points=_with(tables["points"], POINT) if "points" in tables else no_points(),
            published=_published(tables["published"]) if "published" in tables else (),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"the report in {folder} cannot be drawn again: its data files lack or damage {error}"
        ) from None
    missing = {str(name): str(why) for name, why in dict(facts.get("missing") or {}).items()}
    return frames, missing, tuple(map(str, facts.get("left_out") or ()))


def _facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise InputError(f"{path} is not of format {FORMAT}, which this version of workbench draws")
    return facts


def _table(path: Path) -> pd.DataFrame:
    """Return a CSV file of a report with the column names of `frames`."""
    import pandas as pd

    try:
        table = pd.read_csv(
            path, dtype=dict.fromkeys(WORDS, str), keep_default_na=False, na_values=[""], encoding="utf-8"
        )
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a table: {' '.join(str(error).split())}") from None
    table = table.rename(columns=lambda name: _GUARDED.sub("", str(name)))
    for name in table.columns:
        if name in WORDS:
            table[name] = [_GUARDED.sub("", value) if isinstance(value, str) else value for value in table[name]]
    return as_in_frames(table)


def _with(table: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """Return the table with every column of today, without values where an older report had none."""
    return table.reindex(columns=list(dict.fromkeys([*table.columns, *names])))


def _logged(curves: pd.DataFrame) -> LoggedRows:
    """Return the rows of curves.csv by run."""
    names = {name: name.replace("flops_", "flops.", 1) for name in FLOPS}
    table = curves.rename(columns={name_of(new): new for new in names.values()} | names)
    logged, columns = LoggedRows(), [str(name) for name in table.columns if name != "run_id"]
    if table.empty:
        return logged
    numbers = table[columns].to_numpy(dtype=float)
    for run_id, places in table.groupby("run_id", sort=False).indices.items():
        rows = [
            {name: value for name, value in zip(columns, row, strict=True) if value == value}
            for row in numbers[places].tolist()
        ]
        logged.add(str(run_id), rows)
    return logged


def _published(table: pd.DataFrame) -> tuple[PublishedRun, ...]:
    """Return the models of published.csv, in its order."""
    models: dict[str, list[dict[str, Any]]] = {}
    for row in table.to_dict("records"):
        models.setdefault(str(row["run_id"]), []).append({str(key): value for key, value in row.items()})
    result = []
    for run_id, rows in models.items():
        scores: dict[str, dict[int, float]] = {}
        for each in rows:
            scores.setdefault(each["task"], {})[int(each["seed"])] = float(each["value"])
        source = rows[0]["flops_source"]
        result.append(PublishedRun(
            run_id, str(rows[0]["model"]), float(rows[0]["flops_stated"]), source if isinstance(source, str) else "",
            scores, {row["task"]: row["suite"] for row in rows},
        ))  # fmt: skip
    return tuple(result)
