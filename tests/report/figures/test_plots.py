"""Labels of horizontal lines are where the marks of arms are not."""

from __future__ import annotations

import math

import by_hand
import pytest
from matplotlib.figure import Figure

from workbench.report.figures.arm_styles import Axis
from workbench.report.figures.plots import line_labels, published_points
from workbench.spec.published import MEASURED, Point


@pytest.mark.parametrize(("last_mark", "side"), [(50.0, "left"), (90.0, "right")])
def test_a_label_avoids_the_end_at_which_marks_are(last_mark: float, side: str) -> None:
    figure = Figure(figsize=(8, 4))
    ax = figure.subplots()
    ax.set(xlim=(0, 10), ylim=(0, 100))
    ax.axhline(48, lw=1)
    ax.plot([3, 9.5], [20, last_mark], "o")
    line_labels(ax, {"majority": 48.0})
    (label,) = ax.texts
    assert label.get_horizontalalignment() == side
    assert label.get_text() == "majority 48.0"


def test_with_marks_at_both_ends_or_at_none_it_is_at_the_right() -> None:
    for marks in ([], [0.2, 9.8]):
        ax = Figure(figsize=(8, 4)).subplots()
        ax.set(xlim=(0, 10), ylim=(0, 100))
        ax.plot(marks, [50.0] * len(marks), "o")
        line_labels(ax, {"majority": 48.0})
        assert ax.texts[0].get_horizontalalignment() == "right"


def test_published_models_are_drawn_where_their_flops_are_stated() -> None:
    stated, unstated = (Point(name, MEASURED, 60.0, flops, "a card") for name, flops in (("a", 1e18), ("b", math.nan)))
    found = by_hand.board([by_hand.cell("rtd", [60.0])], measured=(stated, unstated))
    for column in ("flops_paper", "flops_matmul"):
        assert published_points(found, Axis(column, "FLOPs")) == [stated]
    assert published_points(found, Axis("tokens", "tokens")) == []
