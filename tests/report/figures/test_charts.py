"""Figures as data: their numbers are those of the CSV files, and their drawings keep labels apart."""

from __future__ import annotations

import csv
import itertools
import statistics
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.report import results
from workbench.report.figures import charts, drawing
from workbench.report.results import Results

KEPT = Path(__file__).parents[3] / "reports/kept"


@pytest.fixture(scope="module")
def mini() -> Results:
    return results.from_folder(KEPT / "ablation-mini-h100")


def rows_of(name: str, file: str) -> list[dict[str, str]]:
    with (KEPT / name / file).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def test_score_against_compute_has_the_means_of_points_csv(mini: Results) -> None:
    chart = charts.main(mini, mini.by_verdict[0], "main")
    assert chart.kind == "lines" and chart.log and chart.axes[0] == "flops_matmul"
    for one in chart.series:
        rows = [row for row in rows_of("ablation-mini-h100", "points.csv") if row["arm"] == one.arm]
        for place, mark in enumerate(dict.fromkeys(row["mark"] for row in rows)):
            values = [float(row["value"]) for row in rows if row["mark"] == mark]
            spent = [float(row["flops_matmul"]) for row in rows if row["mark"] == mark]
            assert one.y[place] == pytest.approx(statistics.fmean(values))
            assert one.x["flops_matmul"][place] == pytest.approx(statistics.fmean(spent))
            half = one.half[place]
            assert half == pytest.approx(3.182446 * statistics.stdev(values) / 2, rel=1e-5)  # t of 3 df, 4 seeds


def test_a_training_curve_is_the_mean_over_seeds_between_logged_rows(mini: Results) -> None:
    [chart] = [chart for chart in charts.curves(mini) if chart.name == "curve-generator_loss"]
    [one] = [one for one in chart.series if one.arm == "rtd"]
    rows = rows_of("ablation-mini-h100", "curves.csv")
    runs = dict.fromkeys(row["run_id"] for row in rows if row["run_id"].startswith("rtd-"))
    ends = []
    for run in runs:
        own = [(float(row["step"]), float(row["generator_loss"])) for row in rows if row["run_id"] == run]
        place = one.x["steps"][10]
        (a, y), (b, z) = next(pair for pair in itertools.pairwise(own) if pair[0][0] <= place <= pair[1][0])
        ends.append(y + (z - y) * (place - a) / (b - a))
    assert one.y[10] == pytest.approx(statistics.fmean(ends)) and len(one.seeds) == len(runs) == 4


def test_one_amount_gives_a_forest_in_the_order_of_an_ordered_axis() -> None:
    made = results.from_folder(KEPT / "generator-size-micro")
    [pairs] = [board for board in made.boards if board.suite == "pairs"]
    chart = charts.main(made, pairs, "main")
    assert chart.kind == "forest" and [one.title for one in chart.series][:4] == [
        "Generator 1/8", "Generator 1/4", "Generator 1/2", "Generator 3/4",
    ]  # fmt: skip
    table = {row["arm"]: row for row in rows_of("generator-size-micro", "table.csv") if row["suite"] == "pairs"}
    for one in chart.series:
        assert one.y[0] == pytest.approx(float(table[one.arm]["score"]))
        assert one.y[0] + (one.half[0] or 0) == pytest.approx(float(table[one.arm]["high"]))


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("name", ["generator-size-micro", "ablation-mini-h100"])
def test_colours_are_readable_in_both_schemes_and_ordered_along_an_ordered_axis(name: str) -> None:
    made = results.from_folder(KEPT / name)
    looks = drawing.looks(made)
    for look in looks.values():
        assert 1.05 / (luminance(look.light) + 0.05) >= 4 and (luminance(look.dark) + 0.05) / 0.058 >= 4.5
    assert len({(look.light, look.dash) for look in looks.values()}) == len(looks)
    if made.ordered:
        sizes = [look for arm, look in looks.items() if made.value(arm) is not None and look.dash == 0]
        light = [luminance(look.light) for look in sizes]
        assert light == sorted(light, reverse=True)


@given(st.lists(st.floats(0, 300), max_size=15))
def test_labels_are_kept_apart_in_their_order(places: list[float]) -> None:
    moved = drawing.spread(places, 0, 300, 15)
    ordered = [moved[i] for i in sorted(range(len(places)), key=lambda i: places[i])]
    assert all(b - a >= 15 - 1e-9 for a, b in itertools.pairwise(ordered))
    assert not moved or max(moved) <= 300


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(2, 8))
def test_ticks_are_round_numbers_within_the_range(low: float, span: float, most: int) -> None:
    ticks = drawing.nice_ticks(low, low + span, most)
    assert len(ticks) <= most + 1
    assert all(low - 1e-6 * span <= tick <= low + 1.000001 * span + 1e-9 * abs(low) for tick in ticks)


def test_hidden_characters_and_markup_in_names_are_text(mini: Results) -> None:
    chart = charts.forest(mini, mini.by_verdict[0], "f")
    hostile = charts.Series("rtd", "<script>\x00&\u202e", {}, (60.0,), (1.0,), {"seed 0": (60.0,)})
    made = charts.Chart("f", "forest", "<b>", "%", (hostile, *chart.series))
    for width in (360, 900):
        root = ElementTree.fromstring(drawing.draw(made, drawing.looks(mini), width))
        assert {element.tag for element in root.iter()} <= {"svg", "g", "path", "text", "circle", "title"}
        texts = [element.text or "" for element in root.iter("text")]
        assert any(text.startswith("<script>\ufffd&") for text in texts)
