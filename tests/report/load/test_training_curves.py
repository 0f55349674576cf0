"""Training curves in bounded memory."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import made
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.report.load import run_files
from workbench.report.load.run_files import STRETCH, curve_table, packed
from workbench.spec import loss_floors


def written(path: Path, rows: list[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("steps", [1, 7, 119, 120, 121, 1000, 5003])
def test_bins_hold_every_row_once(tmp_path: Path, steps: int) -> None:
    rows = [{"step": s, "loss": math.sin(s), "sometimes": s if s % 3 == 0 else None} for s in range(1, steps + 1)]
    found = run_files.read_curve(written(tmp_path / "m.jsonl", list(rows)))
    assert len(found.rows) <= 120 and len(found.rows) >= min(steps, 60)
    assert sum(r["rows"] for r in found.rows) == steps and found.skipped == 0
    assert [r["first_step"] for r in found.rows[1:]] == [r["last_step"] + 1 for r in found.rows[:-1]]
    total = math.fsum(r["loss"] * r["rows"] for r in found.rows)
    assert total == pytest.approx(math.fsum(row["loss"] for row in rows), abs=1e-9)
    width = max(r["last_step"] - r["first_step"] for r in found.rows) + 1
    assert math.log2(width).is_integer() and all(r["first_step"] % width == 1 % width for r in found.rows)
    assert found.last == {k: v for k, v in rows[-1].items() if v is not None}
    thirds = [s for s in range(3, steps + 1, 3)]
    assert ("sometimes" in {k for r in found.rows for k in r}) == bool(thirds)


def test_a_long_log_is_read_at_every_kth_row(tmp_path: Path) -> None:
    line = json.dumps({"step": 1, "loss": 5.0, "padding": "x" * 400})
    path = tmp_path / "m.jsonl"
    with path.open("w") as file:
        for step in range(1, 100_001):
            file.write(line.replace('"step": 1', f'"step": {step}') + "\n")
    found = run_files.read_curve(path)
    every = math.ceil(path.stat().st_size / 1e7)
    assert every > 1 and sum(r["rows"] for r in found.rows) == math.ceil(100_000 / every)
    assert found.rows[-1]["last_step"] > 99_900 and all(r["loss"] == 5.0 for r in found.rows)


def test_torn_tail_is_no_fault_and_a_bad_line_before_it_is(tmp_path: Path) -> None:
    path = written(tmp_path / "m.jsonl", [{"step": 1, "loss": 2.0}])
    with path.open("a") as file:
        file.write('{"step": 2, "lo')
    assert (run_files.read_curve(path).skipped, run_files.read_curve(path).last["step"]) == (0, 1)
    with path.open("a") as file:
        file.write('\n{"step": 3, "loss": 1.0}\n[]\n{"step": 4, "loss": Infinity, "flops": {"paper": 8.0}}\n')
    found = run_files.read_curve(path)
    assert found.skipped == 2 and found.last == {"step": 4, "flops.paper": 8.0}


@settings(max_examples=60)
@given(
    st.lists(st.one_of(st.binary(max_size=40), st.text(max_size=20).map(lambda t: json.dumps({"step": t}).encode())))
)
def test_any_bytes_are_survived(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("bytes") / "m.jsonl"
    path.write_bytes(b"\n".join([*lines, b'{"step": 3, "loss": 1.5}', b""]))
    found = run_files.read_curve(path)
    assert found.last["step"] == 3 and sum(r["rows"] for r in found.rows) >= 1


def test_only_finite_numbers_are_numbers() -> None:
    row = {"step": 3, "loss": 1.5, "bad": float("nan"), "worse": -float("inf"), "flag": True, "word": "x", "no": None,
           "huge": 10**400, "flops": {"paper": 7, "matmul": float("inf"), "other": 1.0}}  # fmt: skip
    assert run_files.flat_row(row) == {"step": 3.0, "loss": 1.5, "flops.paper": 7.0}
    assert run_files.flat_row({"step": True}) is run_files.flat_row({"loss": 1.0}) is run_files.flat_row([]) is None


def test_fewer_rows_are_read_of_each_where_there_are_many(tmp_path: Path) -> None:
    path = written(
        tmp_path / "m.jsonl", [{"step": step, "text": "x" * run_files.TYPICAL_ROW} for step in range(1, 1001)]
    )
    found = run_files.read_curve(path, most=100)
    assert 50 <= sum(row["rows"] for row in found.rows) <= 100
    assert found.rows[-1]["last_step"] > 980


@pytest.mark.parametrize("most", [16, 24, 60])
def test_a_thinned_curve_keeps_the_end_of_training_apart(tmp_path: Path, most: int) -> None:
    """The end is judged by the last eight rows: these are in the last tenth, and the last one is the log's last."""
    rows: list[object] = [{"step": step, "loss": 1 / step, "text": "x" * 400} for step in range(1, 2001)]
    path = written(tmp_path / "m.jsonl", rows)
    with path.open("a") as file:
        file.write('{"step": 2001, "lo')  # torn
    found = run_files.read_curve(path, most)
    steps = [row["step"] for row in found.rows]
    assert len(steps) == most and steps == sorted(set(steps)) and steps[0] == 1 and steps[-1] == 2000
    assert sum(step > 1798 for step in steps) == 8 and found.last["step"] == 2000 and found.skipped == 0
    gaps = [b - a for a, b in itertools.pairwise(steps[: most - 8])]
    assert max(gaps) < 1.05 * min(gaps) + 1, "spread evenly, but for the lengths of lines"
    for row in found.rows:
        assert row["loss"] == 1 / row["step"] and row["first_step"] == row["last_step"] == row["step"]
    whole = loss_floors.floor_checks(run_files.read_curve(path).rows, {"loss": 1.0})
    thin = loss_floors.floor_checks(found.rows, {"loss": 1.0})
    values = {check.metric: check.value for check in whole}
    assert {check.metric: check.value for check in thin} == pytest.approx(values, rel=0.02)


def test_a_bad_line_of_a_thinned_log_is_counted(tmp_path: Path) -> None:
    path = written(tmp_path / "m.jsonl", [{"step": step, "text": "x" * 400} for step in range(1, 501)])
    lines = path.read_bytes().split(b"\n")
    lines[0] = b"\0" * len(lines[0])
    path.write_bytes(b"\n".join(lines))
    found = run_files.read_curve(path, 16)
    assert found.skipped == 1 and len(found.rows) == 15 and found.last["step"] == 500


def test_each_log_of_a_large_study_gives_few_rows_and_of_a_small_one_all() -> None:
    counts = [run_files.rows_of_each(files) for files in (0, 1, 6, 1000, 2000, 10_000, 10**6)]
    assert counts == [20_000, 20_000, 20_000, 120, 60, 16, 16]


@pytest.mark.parametrize(("first", "then"), [(901, 900), (900, 901)])
def test_of_the_memory_of_the_device_a_bin_has_the_largest_value(tmp_path: Path, first: int, then: int) -> None:
    log = tmp_path / "metrics.jsonl"
    rows = [{"step": n, "device_memory_bytes": first if n < 405 else then, "loss": float(n)} for n in range(1, 801)]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = run_files.read_curve(log).rows
    assert 1 < len(found) <= run_files.MOST_BINS
    assert {row["device_memory_bytes"] for row in found} == {900.0, 901.0}
    (border,) = [row for row in found if row["first_step"] < 405 <= row["last_step"]]
    assert border["device_memory_bytes"] == 901.0 and found[0]["loss"] == (1 + found[0]["last_step"]) / 2


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
    table = curve_table({run_id: packed(rows) for run_id, rows in given.items() if rows})
    plain = [{"run_id": run_id, **row} for run_id, rows in given.items() for row in rows]
    expected = pd.DataFrame(plain) if plain else pd.DataFrame(columns=list(STRETCH))
    pd.testing.assert_frame_equal(table, expected)
    assert table.to_csv(index=False) == expected.to_csv(index=False)
    frames = replace(made.in_memory(lambda *_: 70.0, ("rtd",), 1), curves=table)
    assert {run_id: frames.logged(run_id) for run_id in given} == given and frames.logged("other") == []


def test_many_runs_take_little_memory() -> None:
    """A row of 25 numbers takes 200 bytes, and not the 1.7 kB of a dictionary of numbers."""
    import tracemalloc

    rows = [{f"metric_{number}": math.sin(row * number) for number in range(25)} for row in range(16)]
    tracemalloc.start()
    kept = [packed([dict(row) for row in rows]) for _ in range(300)]
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert size < len(kept) * (16 * 25 * 8 + 1000)
