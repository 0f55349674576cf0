"""An experiment's scores as one long table: a row for each fine-tuning, with all it takes to find it again."""

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


def table(found: Frames) -> pd.DataFrame:
    """Return every score of every run that counts; runs without one have a row with no task and no value.

    What the columns hold stands in docs/columns.md.
    """
    scores = found.scores[["run_id", "suite", "task", "metric", "seed", "value", "digest"]]
    scores = scores.rename(columns=columns.OF_SCORES)
    made = found.runs[list(RUN)].merge(scores, on="run_id", how="left")
    made.insert(0, "experiment", found.record["name"])
    return columns.readable(made)


def export(store: RunStore, record: str, form: str, verify: bool = True) -> bytes:
    """The table as a file of this form: a key of FORMS. Raises InputError when the store lacks the record."""
    found = frames.read(store, record, verify)
    frames.warn_of_damage(found)
    return FORMS[form](table(found))


def _csv(made: pd.DataFrame) -> bytes:
    return csv_tables.text(made).encode("utf-8", "replace")


def _parquet(made: pd.DataFrame) -> bytes:
    out = io.BytesIO()
    made.to_parquet(out, index=False)
    return out.getvalue()


def _latex(made: pd.DataFrame) -> bytes:
    """A `longtable` for booktabs, with the columns that fit a page and digests cut to twelve digits."""
    part = made[list(LATEX)].assign(data_fingerprint=made["data_fingerprint"].astype(str).str[:12])
    part.columns = [name.replace("_", " ") for name in part.columns]
    text = part.to_latex(index=False, escape=True, longtable=True, na_rep="--", float_format="%.2f")
    return str(text).encode("utf-8", "replace")


FORMS: dict[str, Callable[[pd.DataFrame], bytes]] = {"csv": _csv, "parquet": _parquet, "latex": _latex}
