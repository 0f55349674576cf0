"""Published models in a report: only on the same data, with the FLOPs that are stated of them, and never averaged."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import parsed

from workbench.report import write
from workbench.report.comparison.boards import boards
from workbench.report.load import frames
from workbench.store.run_store import RunStore


def test_they_stand_beside_the_arms_and_change_no_number(with_published: tuple[RunStore, str]) -> None:
    store, name = with_published
    found = frames.read(store, name)
    [board] = boards(found)
    assert [(model.name, model.score, model.source) for model in board.measured] == [
        ("owner/big", 94.0, "a paper"), ("small", 65.0, "not stated"),
    ]  # fmt: skip
    assert board.measured[0].flops == 3e12 and math.isnan(board.measured[1].flops)
    assert set(board.arms) == {"rtd", "bert-mlm"} and not any("published" in run for run in board.run_scores)
    assert not any(str(row["run_id"]).startswith("published") for row in found.rows("runs"))
    assert found.published[0].scores["order"] == {0: 90.0, 2: 92.0, 10: 100.0}


def test_the_page_and_its_table_mark_them(with_published: tuple[RunStore, str], tmp_path: Path) -> None:
    store, name = with_published
    page = write(store, name, tmp_path / "report")
    [table] = [t for t in parsed.page(page).find("table") if t.attributes.get("data-name") == "published"]
    rows = {row.find("th")[0].text: [cell.text for cell in row.find("td")] for row in table.find("tr")[1:]}
    assert rows["owner/big"] == ["94.0", "3.0×10¹²", "a paper"] and rows["small"] == ["65.0", "–", "not stated"]
    with (tmp_path / "report" / "published.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12 and rows[0]["model"] == "owner/big" and {row["flops_stated"] for row in rows} >= {""}
    assert [row["fine_tuning_seed"] for row in rows[:3]] == ["0", "2", "10"]
