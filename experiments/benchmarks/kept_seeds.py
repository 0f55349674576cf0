"""Add the seeds of a store to a kept report whose run folders are gone, and write the whole report again.

    python experiments/benchmarks/kept_seeds.py reports/kept/NAME RUNS EXPERIMENT

The kept report gives scores, spending, curves and settings of its finished runs from its data files.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.report import data_files
from workbench.report.data_files import results_of
from workbench.report.load import study_tables
from workbench.report.load.run_files import FINISHED
from workbench.report.load.study_tables import Frames
from workbench.report.page import document
from workbench.report.results import ReportOptions
from workbench.store.run_store import RunStore

PLACE = re.compile(r"/(?:[\w.-]+/)+([\w.-]+)")  # a path, with the name of its file as group 1
NAME = r"\1"
TABLES = ("runs", "scores", "other", "points")


def joined(folder: Path, store: RunStore, experiment: str) -> Frames:
    """Return the finished runs of a kept report and those of an experiment in a store as one experiment.

    Raises ValueError if they are of other arms, budgets or texts.
    """
    new, kept = study_tables.read_study(store, experiment), data_files.from_folder(folder).frames
    done = kept.runs[kept.runs["state"].isin(FINISHED)]
    for key in ("arm", "budget", "data"):
        if set(done[key].dropna()) != set(new.runs[key].dropna()):
            raise ValueError(f"{key}: {sorted(set(done[key].dropna()))} and {sorted(set(new.runs[key].dropna()))}")
    if twice := set(done["seed"]) & set(new.runs["seed"]):
        raise ValueError(f"seeds {sorted(twice)} are in both")
    kept = replace(kept, runs=done)
    ids = set(done["run_id"])
    tables: dict[str, Any] = {name: _rows(kept, name, ids, new) for name in TABLES}
    settings = {run: _without_places(values) for run, values in new.settings.items()}
    command = f"{kept.record['command']} ; {PLACE.sub(NAME, str(new.record['command']))}"
    return replace(
        new, **tables, record={**new.record, "contrasts": kept.record["contrasts"], "command": command},
        settings={run: values for run, values in kept.settings.items() if run in ids} | settings,
        environments={run: values for run, values in kept.environments.items() if run in ids} | dict(new.environments),
        floors=dict(kept.floors) | dict(new.floors),
        curves=pd.concat([kept.curves[kept.curves["run_id"].isin(ids)], new.curves], ignore_index=True),
    )  # fmt: skip


def _rows(kept: Frames, name: str, ids: set[str], new: Frames) -> pd.DataFrame:
    """Return a table of both, with the columns of the new one, and of the kept one only rows of the given runs."""
    before: pd.DataFrame = getattr(kept, name)
    after: pd.DataFrame = getattr(new, name)
    table = pd.concat([before[before["run_id"].isin(ids)], after]).reset_index(drop=True)
    return table.reindex(columns=after.columns)


def _without_places(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the names of files alone, without the folders of the machine that trained."""
    return {key: PLACE.sub(NAME, value) if isinstance(value, str) else value for key, value in values.items()}


if __name__ == "__main__":
    both = joined(Path(sys.argv[1]), RunStore(Path(sys.argv[2])), sys.argv[3])
    document.write(results_of(both, {}, ReportOptions()), Path(sys.argv[1]))
