"""Scores during training: lines of the figure, sentences on points before the end, and crossings of arms."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import made
import pytest
from pointed_runs import SHARES, board_with_points, overtaking, store_of

from workbench.report import write
from workbench.report.comparison.training_points import lines
from workbench.store import manifest, validation
from workbench.store.atomic import sealed
from workbench.store.run_store import RunStore


def test_every_score_of_a_point_is_in_the_table_with_its_place(pointed_study: tuple[RunStore, str, Path]) -> None:
    store, _, page = pointed_study
    with open(page.parent / "points.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 4 * (len(SHARES) + 1)
    for row in rows:
        raw = validation.read(store.root / row["run_id"], row["path"].removeprefix(f"{row['run_id']}/"))
        assert float(row["value"]) == raw["value"] and raw["task"] == row["task"] == "pairs"
        early = row["mark"] != "end"
        assert (row["before_end_of_decay"] == "yes") == early
        place = row["path"].split("/")
        assert place[1] == "points" and int(place[2]) == int(row["steps"]) if early else place[1] == "scores"
        assert float(row["flops_matmul"]) == pytest.approx(1.1e9 * int(row["steps"]))


def test_an_arm_is_a_line_of_means_with_intervals(pointed_study: tuple[RunStore, str, Path]) -> None:
    board = board_with_points(*pointed_study[:2])
    ((line,),) = [lines(board.places, arm) for arm in ("rtd",)]
    assert [place.mark for place in line] == [*SHARES, "end"]
    assert [place.unfinished for place in line] == [True] * 5 + [False]
    for place in line:
        share = SHARES.get(place.mark, 1.0)
        mine = [overtaking("rtd", share, seed) for seed in range(4)]
        assert place.estimate.mean == pytest.approx(sum(mine) / 4) and place.estimate.half is not None
        assert len(place.runs) == 4


def test_runs_without_points_leave_the_others_theirs(tmp_path: Path) -> None:
    store, name = store_of(tmp_path, overtaking)
    for number, run in enumerate(store.runs()):
        if number % 4 == 1 or run.run_id.startswith("bert"):
            shutil.rmtree(run.path / "points")
            files = manifest.entries(run.path)
            (run.path / manifest.NAME).write_bytes(sealed(manifest.content(run.run_id, files)))
    write(store, name, tmp_path / "report")
    found = board_with_points(store, name).places
    assert {len(place.scores) for place in found if place.arm == "rtd"} == {3, 4}
    assert [place.mark for place in found if place.arm == "bert-mlm"] == ["end"]


def test_a_report_without_points_is_as_before(tmp_path: Path) -> None:
    store, name = made.study(tmp_path / "runs", made.noisy(made.LEVELS), ("rtd", "bert-mlm"), seeds=2)
    html = write(store, name, tmp_path / "report").read_text()
    assert "means and intervals" in html.partition("</figure>")[0]
    with open(tmp_path / "report" / "points.csv", encoding="utf-8") as file:
        assert len(list(csv.reader(file))) == 1
