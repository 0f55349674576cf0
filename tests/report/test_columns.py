"""Names of columns in CSV and Parquet files, and integers in them."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pandas as pd
import pytest

from workbench.report import columns, csv_tables
from workbench.report.load import frames

ROOT = Path(__file__).parents[2]


def test_counts_are_written_as_whole_numbers_and_means_as_they_are() -> None:
    table = pd.DataFrame({
        "steps": [4578.0, math.nan], "seed": [0.0, 1.0], "tokens": [0.5, 2.0], "flops_paper-sparse": [3.6e12, math.nan],
        "flops_matmul": [1e22, 2e22], "micro_batch": [32.0, 16.0], "value": [50.0, 49.5],
    })  # fmt: skip
    assert csv_tables.text(columns.readable(table)).splitlines() == [
        "steps,seed,tokens,flops_paper_sparse,flops_matmul,micro_batch,value",
        "4578,0,0.5,3600000000000,1e+22,32,50.0",
        ",1,2.0,,2e+22,16,49.5",
    ]


def test_kinds_and_hashes_have_names_that_say_so() -> None:
    table = pd.DataFrame(
        {"role": ["arm", "untrained"], "spec": "ab", "data": "cd", "code": "0.1", "flops.paper-sparse": 1}
    )
    made = columns.readable(table)
    assert list(made) == ["kind", "spec_hash", "data_fingerprint", "code_version", "flops_paper_sparse"]
    assert list(made["kind"]) == ["pre-training", "untrained"]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "reports/kept").glob("*/*.csv")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_kept_tables_have_the_names_and_numbers_of_today(path: Path) -> None:
    kept = pd.read_csv(path, dtype=str, keep_default_na=False)
    assert list(kept) == [columns.name_of(name) for name in kept]
    assert not {"role", "digest", "tuning_seed", "fine_tuning"} & set(kept)
    for name in columns.COUNTS & set(kept) - {"step"}:
        assert all(re.fullmatch(r"-?\d*", value) for value in kept[name]), name


def test_every_column_is_explained() -> None:
    named = set(re.findall(r"`(\w+)`", (ROOT / "docs/columns.md").read_text()))
    made = {
        *frames.RUN,
        *frames.STRETCH,
        *frames.BASELINE,
        *csv_tables.TABLE,
        *csv_tables.PAIRS,
        *csv_tables.TASKS,
        *csv_tables.NOISE,
    }
    of_scores = {columns.OF_SCORES.get(name, name) for name in (*frames.SCORE, *frames.OTHER)}
    assert {columns.name_of(name) for name in made} | of_scores <= named


def test_kept_tables_can_be_read_back() -> None:
    table = pd.DataFrame({"role": ["arm", "untrained"], "spec": "ab", "flops_paper-sparse": 1, "digest": "cd"})
    written = columns.readable(table.rename(columns=columns.OF_SCORES))
    pd.testing.assert_frame_equal(columns.as_in_frames(written), table)
