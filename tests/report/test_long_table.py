"""The scores of an experiment as one long table."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import made
import pandas as pd
import pytest

from workbench.report import long_table
from workbench.report.load import frames
from workbench.store.run_store import RunStore


@pytest.mark.parametrize("form", sorted(long_table.FORMS))
def test_export_holds_every_score_and_where_it_comes_from(ledger_store: tuple[RunStore, str], form: str) -> None:
    store, name = ledger_store
    data = long_table.export(store, name, form)
    files = {(r.run_id, p.name): json.loads(p.read_text()) for r in store.runs() for p in r.path.glob("scores/*.json")}
    counted = [f for (run, _), f in files.items() if store.get(run).state == "done"]
    if form == "latex":
        lines = [line for line in data.decode().splitlines() if line.endswith(r"\\") and line.count("&") == 9]
        values = sorted(float(line.split("&")[6]) for line in lines if re.search(r"& +\d+\.\d\d &", line))
        assert values == sorted(round(f["value"], 2) for f in counted)
        assert r"\begin{longtable}" in data.decode()
        return
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(data.decode())))
    else:
        rows = [{k: str(v) for k, v in row.items()} for row in pd.read_parquet(io.BytesIO(data)).to_dict("records")]
    scored = [row for row in rows if row["task"] not in ("", "nan", "None")]
    assert sorted(float(row["value"]) for row in scored) == pytest.approx(sorted(f["value"] for f in counted))
    assert len(rows) == len(scored) + 1  # the run that diverged has a row, without a score
    for row in scored:
        record = json.loads((store.root / row["run_id"] / "spec.json").read_text())
        assert row["spec_hash"] == record["identity_sha"]
        assert row["data_fingerprint"] == record["spec"]["data"]["fingerprint"]
        assert row["code_version"] == "0.1.0 0123456789" and int(row["seed"]) == record["spec"]["seed"]
        untrained = record["spec"]["budget"]["steps"] == 0
        assert (row["kind"], row["steps"]) == (("untrained", "0") if untrained else ("pre-training", row["budget"][:2]))
        file = files[
            row["run_id"],
            next(name for run, name in files if run == row["run_id"] and name.startswith(f"{row['task']}-")),
        ]
        assert row["fine_tuning_seed"] in ("0", "1") and row["fine_tuning_settings_hash"] == file["digest"]


def test_names_that_latex_would_read_are_escaped(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    spec = made.spec_of("./a_b&c%.py", 0, {"steps": 8}, source="0" * 64)
    made.scored(made.trained(store, spec, 8), "order", 0, 60.0)
    found = frames.read(store, made.recorded(store, [spec]))
    text = long_table.FORMS["latex"](long_table.table(found)).decode()
    assert r"a\_b\&c\%" in text
