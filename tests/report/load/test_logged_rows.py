"""Rows of training curves kept as arrays: the same rows, and the same table, as from dictionaries."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.report.load.logged_rows import STRETCH, LoggedRows

METRICS = st.dictionaries(st.sampled_from(["loss", "mlm_loss", "tokens", "flops.paper"]), st.floats(-1e300, 1e300))
RUNS = st.lists(st.lists(METRICS, max_size=4), max_size=5)


def rows_of(metrics: list[dict[str, float]]) -> list[dict[str, Any]]:
    return [
        {"step": step + 0.5, **row, "first_step": step, "last_step": 2 * step, "rows": 3}
        for step, row in enumerate(metrics)
    ]


@settings(max_examples=60, deadline=None)
@given(RUNS)
def test_rows_and_table_are_those_of_the_dictionaries(runs: list[list[dict[str, float]]]) -> None:
    given = {f"run-{number}": rows_of(metrics) for number, metrics in enumerate(runs)}
    kept = LoggedRows()
    for run_id, rows in given.items():
        kept.add(run_id, rows)
    expected = {run_id: [{"run_id": run_id, **row} for row in rows] for run_id, rows in given.items() if rows}
    assert dict(kept) == expected
    assert all(isinstance(row[name], int) for rows in kept.values() for row in rows for name in STRETCH[2:])
    plain = [row for rows in expected.values() for row in rows]
    table = pd.DataFrame(plain) if plain else pd.DataFrame(columns=list(STRETCH))
    pd.testing.assert_frame_equal(kept.frame(), table)
    assert kept.frame().to_csv(index=False) == table.to_csv(index=False)


def test_a_run_without_rows_is_not_there() -> None:
    kept = LoggedRows()
    kept.add("a", [])
    assert "a" not in kept and len(kept) == 0 and list(kept.frame().columns) == list(STRETCH)
    with pytest.raises(KeyError):
        kept["a"]


def test_many_runs_take_little_memory() -> None:
    """A row of 25 numbers takes 200 bytes, and not the 1.7 kB of a dictionary of numbers."""
    import tracemalloc

    rows = [{f"metric_{number}": math.sin(row * number) for number in range(25)} for row in range(16)]
    kept = LoggedRows()
    tracemalloc.start()
    for number in range(300):
        kept.add(str(number), [dict(row) for row in rows])
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert size < 300 * (16 * 25 * 8 + 1000)
