"""The scores of an experiment as one long table, with a row for each fine-tuning run and what identifies it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from workbench.report import columns, csv_tables
from workbench.report.load import frames
from workbench.report.load.frames import Frames

if TYPE_CHECKING:
    import pandas as pd

    from workbench.store.run_store import RunStore

RUN = (
    "run_id", "role", "arm", "seed", "budget", "state", "steps", "tokens", "words", "epochs", "seconds",
    *columns.FLOPS, "spec", "data", "code",
)  # fmt: skip
LATEX = (
    "arm", "seed", "budget", "task", "metric", "fine_tuning_seed", "value", "run_id", "data_fingerprint",
    "code_version",
)  # fmt: skip


def table(experiment: Frames) -> pd.DataFrame:
    """Return every score of every run of a record; a run without scores has one row without task and value.

    The columns are described in docs/columns.md.
    """
    scores = experiment.scores[["run_id", "suite", "task", "metric", "seed", "value", "digest"]]
    scores = scores.rename(columns=columns.OF_SCORES)
    merged = experiment.runs[list(RUN)].merge(scores, on="run_id", how="left")
    merged.insert(0, "experiment", experiment.record["name"])
    return columns.readable(merged)


def export(store: RunStore, record: str, form: str, verify: bool = True) -> bytes:
    """Return the table as a file of a form: a key of FORMS. Raises InputError if there is no such record."""
    experiment = frames.read_and_warn(store, record, verify)
    return FORMS[form](table(experiment))


def _csv(scores: pd.DataFrame) -> bytes:
    return csv_tables.text(scores).encode("utf-8", "replace")


def _parquet(scores: pd.DataFrame) -> bytes:
    out = io.BytesIO()
    scores.to_parquet(out, index=False)
    return out.getvalue()


def _latex(scores: pd.DataFrame) -> bytes:
    """Return a `longtable` for booktabs, with the columns that fit a page and hashes cut to twelve digits."""
    part = scores[list(LATEX)].assign(data_fingerprint=scores["data_fingerprint"].astype(str).str[:12])
    part.columns = [name.replace("_", " ") for name in part.columns]
    text = part.to_latex(index=False, escape=True, longtable=True, na_rep="--", float_format="%.2f")
    return str(text).encode("utf-8", "replace")


FORMS: dict[str, Callable[[pd.DataFrame], bytes]] = {"csv": _csv, "parquet": _parquet, "latex": _latex}
