"""Add the seeds of a store to a kept report whose run folders are gone, and write the whole report again.

    python experiments/benchmarks/kept_seeds.py reports/kept/NAME RUNS EXPERIMENT

The kept report gives scores, spending and curves of its finished runs from its CSV files, and their environment from
its page. The store gives everything of the new seeds, and what all runs of an arm share: settings, and the losses that
token frequencies reach. Runs are joined only if they are of the same arms, budget and training text.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from kept import read as read_kept

from workbench.report import columns, csv_tables
from workbench.report.comparison.boards import boards
from workbench.report.comparison.verdict import verdicts
from workbench.report.load import frames
from workbench.report.load.frames import Frames
from workbench.report.load.run_files import FINISHED
from workbench.report.page import document
from workbench.report.report_options import ReportOptions
from workbench.store.atomic import write_atomic
from workbench.store.run_store import RunStore

PLACE = re.compile(r"/(?:[\w.-]+/)+([\w.-]+)")  # a path, with the name of its file as group 1
NAME = r"\1"
TABLES = ("runs", "scores", "other", "baselines", "points", "curves")


def environment_of(page: str) -> dict[str, str]:
    """Return what a page says of the environment in which all its runs were trained, by key."""
    _, _, rest = page[page.index('<section id="setup"') :].partition("<h3>Environment</h3>")
    pairs = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", rest.partition("</dl>")[0], re.DOTALL)
    return {_text(key): _text(value) for key, value in pairs}


def joined(folder: Path, store: RunStore, experiment: str) -> Frames:
    """Return the finished runs of a kept report and those of an experiment in a store as one experiment.

    Raises ValueError if they are of other arms, budgets or texts.
    """
    new, kept = frames.read(store, experiment), read_kept(folder)
    done = kept.runs[kept.runs["state"].isin(FINISHED)]
    for key in ("arm", "budget", "data"):
        if set(done[key].dropna()) != set(new.runs[key].dropna()):
            raise ValueError(f"{key}: {sorted(set(done[key].dropna()))} and {sorted(set(new.runs[key].dropna()))}")
    twice = set(done["seed"]) & set(new.runs["seed"])
    if twice:
        raise ValueError(f"seeds {sorted(twice)} are in both")

    of_files = {columns.name_of(str(name)): str(name) for name in new.curves.columns}
    kept = replace(kept, runs=done, curves=pd.read_csv(folder / "curves.csv").rename(columns=of_files))
    ids = set(done["run_id"])
    tables: dict[str, Any] = {name: _rows(kept, name, ids, new) for name in TABLES}
    like = {arm: run for run, arm in zip(new.runs["run_id"], new.runs["arm"], strict=True)}
    same = {run: like[arm] for run, arm in zip(done["run_id"], done["arm"], strict=True)}
    seeds = dict(zip(done["run_id"], done["seed"], strict=True))
    settings = {run: _without_places(values) for run, values in new.settings.items()}
    before = environment_of((folder / "index.html").read_text(encoding="utf-8"))
    curves = tables["curves"]
    return replace(
        new, **tables, record=_record(new.record, kept.record, folder),
        settings={run: {**settings[of], "seed": int(seeds[run])} for run, of in same.items()} | settings,
        environments={run: before for run in same} | dict(new.environments),
        floors={run: new.floors[of] for run, of in same.items() if of in new.floors} | dict(new.floors),
        bins=_bins(curves), logged=_logged(curves),
    )  # fmt: skip


def _rows(kept: Frames, name: str, ids: set[str], new: Frames) -> pd.DataFrame:
    """Return a table of both, with the columns of the new one, and of the kept one only rows of the given runs."""
    before: pd.DataFrame = getattr(kept, name)
    after: pd.DataFrame = getattr(new, name)
    if name == "baselines":
        return after
    columns_of_both = list(dict.fromkeys([*after.columns, *(before.columns if name == "curves" else ())]))
    table = pd.concat([before[before["run_id"].isin(ids)], after]).reset_index(drop=True)
    return table.reindex(columns=columns_of_both)


def _record(new: Mapping[str, Any], kept: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the record of the new runs, with the kept comparisons, and the kept command before theirs."""
    page = (folder / "index.html").read_text(encoding="utf-8")
    command = re.search(r"<pre[^>]*>(.*?)</pre>", page[page.index('<section id="setup"') :], re.DOTALL)
    assert command is not None
    return {
        **new,
        "contrasts": kept["contrasts"],
        "command": f"{_text(command[1])} ; {PLACE.sub(NAME, new['command'])}",
    }


def _without_places(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the names of files alone, without the folders of the machine that trained."""
    return {key: PLACE.sub(NAME, value) if isinstance(value, str) else value for key, value in values.items()}


def _bins(curves: pd.DataFrame) -> dict[str, int]:
    """Return how many steps one row of each run's curve covers."""
    widths = curves["last_step"] - curves["first_step"] + 1
    return {str(run): int(width) for run, width in widths.groupby(curves["run_id"]).max().items()}


def _logged(curves: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each run's curve, without the metrics that it does not have."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in curves.to_dict("records"):
        rows.setdefault(str(row["run_id"]), []).append({str(k): v for k, v in row.items() if not pd.isna(v)})
    return rows


def _text(markup: str) -> str:
    """Return the text of a piece of a page."""
    return html.unescape(re.sub(r"<[^>]+>", "", markup)).strip()


def main(folder: Path, runs: Path, experiment: str) -> None:
    """Write the report of a folder again, with the runs of a store."""
    found = joined(folder, RunStore(runs), experiment)
    results = boards(found)
    for name, sheet in csv_tables.sheets(found, results, verdicts(results, found)).items():
        write_atomic(folder / name, csv_tables.text(sheet).encode())
    write_atomic(folder / "compute.svg", document.picture(found, results[0]).encode())
    write_atomic(folder / "index.html", document.render(found, results, {}, ReportOptions()).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
