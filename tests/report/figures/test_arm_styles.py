"""Styles of arms, and limits and ticks of axes."""

from __future__ import annotations

import itertools
import math
from xml.etree import ElementTree

import pytest
from by_hand import board, cell
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.report.figures import svg
from workbench.report.figures.arm_styles import (
    CLOSE,
    KNOWN,
    SAME,
    SHAPES,
    Axis,
    Style,
    crowded,
    levels,
    log_range,
    log_tick,
    log_ticks,
    off_axis,
    one_amount,
    span,
    styles,
    tick,
)


def test_known_objectives_keep_their_style_and_others_get_the_next_free_one() -> None:
    looks = styles(["mine", "rtd", "yours", "rtd", "bert-mlm"])
    assert looks["rtd"] == Style(KNOWN.index("rtd")) and looks["bert-mlm"] == Style(KNOWN.index("bert-mlm"))
    assert [looks[arm].index for arm in ("mine", "yours")] == [len(KNOWN), len(KNOWN) + 1]
    assert [each.index for each in styles(["a", "b"]).values()] == [0, 1]  # without known ones nothing is kept free


def test_forty_arms_look_different_by_at_least_one_of_three_marks() -> None:
    seen = {(look.name, look.marker, str(look.dashes)) for look in map(Style, range(40))}
    assert len(seen) == 40
    for index in range(40):
        drawn = ElementTree.fromstring(Style(index).swatch())
        assert len(list(drawn.iter())) == 4 and SHAPES[Style(index).marker] in Style(index).swatch()


@pytest.mark.parametrize(
    ("value", "text"),
    [(20, "20"), (0.5, "0.5"), (1e12, "10¹²"), (3e12, "3×10¹²"), (1.5e4, "1.5×10⁴"), (9999, "9999"), (2e-4, "2×10⁻⁴")],
)
def test_ticks_of_a_log_axis_are_powers_or_short_numbers(value: float, text: str) -> None:
    assert log_tick(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (2e4, "20 k"), (5e5, "500 k"), (0.5, "0.5"), (-0.25, "−0.25"), (4e-4, "4×10⁻⁴"), (2.5e6, "2.5 M")],
)
def test_ticks_of_a_linear_axis_are_short(value: float, text: str) -> None:
    assert tick(value) == text


def test_an_amount_is_told_in_the_unit_of_its_axis() -> None:
    told = [Axis(column, "").say(1.29e18) for column in ("flops_paper", "tokens")]
    assert told[0] == "1.29×10¹⁸ FLOPs" and told[1].endswith(" tokens")
    assert Axis("seconds", "").say(200) == "3 min 20 s" and Axis("steps", "").say(15_625) == "15,625 steps"


@settings(max_examples=15)
@given(st.floats(1e3, 1e20), st.floats(1.05, 1e6), st.integers(3, 9))
def test_ticks_of_a_log_axis_lie_within_it_and_do_not_touch(low: float, factor: float, most: int) -> None:
    low, high = log_range([low, low * factor])
    with svg.drawing("t"):
        ax = svg.figure(400, 300).subplots()
        ax.set_xscale("log")
        log_ticks(ax, low, high, most)
        ticks = list(ax.get_xticks())
    assert all(low <= value <= high for value in ticks) and 2 <= len(ticks) <= most + 1
    assert all(math.log(b / a) >= 0.999 * math.log(high / low) / most for a, b in itertools.pairwise(ticks))


@given(st.lists(st.floats(0, 100), min_size=1), st.lists(st.floats(-1000, 1000), max_size=6))
def test_an_axis_holds_every_point_and_is_not_stretched_by_an_interval(points: list[float], ends: list[float]) -> None:
    bottom, top, cut = span(points, ends)
    assert bottom < min(points) <= max(points) < top
    reach = max(max(points) - min(points), 1.0)
    assert top - bottom <= 1.14 * 2.2 * reach + 1e-9
    assert cut or all(bottom <= end <= top for end in ends)


def test_baselines_far_from_all_runs_are_told_instead_of_drawn() -> None:
    baselines = {"chance": {"order": 20.0}, "bag-of-words": {"order": 59.0}, "other": {"next": 60.0}}
    found = board([cell("a", [60.0, 62.0]), cell("b", [61.0, 63.0])], baselines=baselines)
    assert levels(found) == {"bag-of-words": 59.0}  # `other` lacks the counted task
    assert off_axis(found) == ["chance (20.0)"]
    untrained = board([cell("a", [60.0])], untrained=cell("untrained", [55.0, 57.0]))
    assert levels(untrained) == {"untrained": 56.0}


def test_equal_amounts_are_one_and_close_ones_are_crowded() -> None:
    def two(factor: float) -> tuple[bool, bool]:
        found = board([cell("a", [1.0], spent=1e9), cell("b", [2.0], spent=1e9 * factor)])
        return one_amount(found, "flops_paper"), crowded(found, "flops_paper")

    assert two(1.0) == (True, True) and two(SAME + 0.01) == (False, True) and two(CLOSE + 0.01) == (False, False)
    apart = [cell("a", [1.0], "small", 1e9), cell("b", [2.0], "large", 1e9)]  # marks of one budget alone can touch
    assert not crowded(board(apart), "flops_paper") and one_amount(board(apart), "flops_paper")
    far = board([cell("a", [1.0], "small", 1e9), cell("a", [2.0], "large", 9e9)])
    assert not one_amount(far, "flops_paper") and one_amount(far, "flops_paper", "large")
