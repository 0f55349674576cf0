"""Names of the columns of CSV and Parquet files, and the conversion of counts to integers (docs/columns.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.spec.parts import CONVENTIONS

if TYPE_CHECKING:
    import pandas as pd

NAMES = {"role": "kind", "spec": "spec_hash", "data": "data_fingerprint", "code": "code_version"}
FLOPS = tuple(f"flops_{convention}" for convention in CONVENTIONS)
AMOUNTS = ("steps", "tokens", "seconds", *FLOPS)  # what pre-training spends
OF_SCORES = {"seed": "fine_tuning_seed", "digest": "fine_tuning_settings_hash"}  # if a row is one fine-tuning run
COUNTS = {
    "steps", "tokens", "words", "step", "first_step", "last_step", "rows", "train_rows", "test_rows", "seed", "seeds",
    "fine_tuning_seed", "items", "needed_seeds", "gain_seeds", "finetunings", "ties", "micro_batch",
    "device_memory_bytes",
}  # fmt: skip
MOST = 2**63  # larger counts do not fit into 64 bits


def name_of(column: str) -> str:
    """Return the name that a column of the tables has in files, with underscores between words."""
    if column.startswith(("flops_", "flops.")):
        return column.replace(".", "_").replace("-", "_")
    return NAMES.get(column, column)


def as_in_frames(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table that was read from a file, with the column names of `frames` again (the inverse of `readable`)."""
    names = {new: old for old, new in (NAMES | OF_SCORES).items()} | {name_of(name): name for name in FLOPS}
    renamed = table.rename(columns=names)
    return renamed.assign(role=renamed["role"].replace({"pre-training": "arm"})) if "role" in renamed else renamed


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the names used in files, and with counts as integers if all are whole: 4578, not 4578.0."""
    renamed = table.rename(columns={str(column): name_of(str(column)) for column in table.columns})
    if "kind" in renamed:
        renamed["kind"] = renamed["kind"].replace({"arm": "pre-training"})
    for column in renamed.columns:
        if column in COUNTS or str(column).startswith("flops_"):
            numbers = renamed[column].dropna()
            if numbers.dtype.kind == "f" and ((numbers % 1 == 0) & (numbers.abs() < MOST)).all():
                renamed[column] = renamed[column].astype("Int64")
    return renamed
