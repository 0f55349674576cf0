"""Arms beyond the budgets: a panel for each, with its slope in the row below, and a band only where it is extended."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from xml.etree import ElementTree

import by_hand
import numpy as np
import pytest
from by_hand import cell

from workbench.report.comparison.boards import Board
from workbench.report.comparison.extrapolation import REACH, extension, measured
from workbench.report.figures.arm_styles import Axis, styles
from workbench.report.figures.scaling import ArmBeyond, beyond
from workbench.report.formatting import points
from workbench.report.statistics.paired_comparison import t_interval

Law = Callable[[float, int], float]  # doublings of the smallest budget, seed -> score
AXIS = Axis("flops_paper", "training FLOPs")
WOBBLE = ((0.0, 0.1, -0.1), (0.1, 0.0, 0.1), (-0.1, 0.05, 0.0))


def slowing(doublings: float, seed: int) -> float:
    return 80 - 40 * 2 ** (-0.5 * doublings) + WOBBLE[seed][int(doublings) % 3]


def level(doublings: float, seed: int) -> float:
    return 50.0


def board(budgets: int, seeds: int = 3, **laws: Law) -> Board:
    """Arms at budgets that double, from 10¹² FLOPs on."""
    return by_hand.board(
        cell(arm, [law(i, seed) for seed in range(seeds)], f"budget {i}", 1e12 * 2**i)
        for i in range(budgets)
        for arm, law in laws.items()
    )


def drawn(found: Board, label: str = AXIS.label) -> dict[str, ArmBeyond]:
    return {one.arm: one for one in beyond(found, styles(found.arms), Axis(AXIS.column, label), "p")}


def paths(one: ArmBeyond, kind: str) -> list[list[tuple[float, float]]]:
    """The corners of paths of a class that are no mark of their own."""
    root = ElementTree.fromstring(one.svg)
    inside = {p for d in root.iter("defs") for p in d.iter("path")}
    found = [p.attrib["d"] for p in root.iter("path") if kind in p.attrib.get("class", "").split() and p not in inside]
    numbers = [[float(n) for n in re.findall(r"-?\d+\.?\d*", d)] for d in found]
    return [list(zip(each[::2], each[1::2], strict=True)) for each in numbers]


def test_less_than_three_budgets_are_not_extended() -> None:
    assert drawn(board(2, rtd=slowing)) == {}
    assert drawn(by_hand.board([cell("rtd", [60.0, 61.0], spent=0.0)])) == {}
    assert list(drawn(board(3, rtd=slowing))) == ["rtd"]


def test_an_arm_of_one_seed_has_a_panel_and_the_reason_why_it_has_no_slope() -> None:
    [one] = drawn(board(3, 1, rtd=slowing)).values()
    assert one.slope is one.bend is None and " 3 " in one.outlook
    assert not any("fill-opacity" in p.attrib for p in ElementTree.fromstring(one.svg).iter("path"))


def test_slope_bend_and_range_are_those_of_the_last_three_budgets() -> None:
    [one] = drawn(board(5, rtd=slowing)).values()
    ys = np.array([[slowing(i, seed) for i in (2, 3, 4)] for seed in range(3)])
    slopes = np.polyfit([2, 3, 4], ys.T, 1)[0]
    assert one.slope is not None and one.bend is not None
    assert one.slope.mean == pytest.approx(slopes.mean()) and one.slope.sd == pytest.approx(slopes.std(ddof=1))
    assert one.bend.mean == pytest.approx((ys[:, 2] - 2 * ys[:, 1] + ys[:, 0]).mean())
    ends = t_interval(ys[:, 2]).low
    line = t_interval(ys.mean(axis=1) + slopes * (1 + math.log2(REACH))).high
    assert ends is not None and line is not None
    assert points(ends) in one.outlook and points(min(100.0, line)) in one.outlook


def test_an_arm_that_does_not_rise_is_refused_and_has_no_band() -> None:
    refusing = board(4, rtd=slowing, **{"bert-mlm": level})
    found = drawn(refusing)
    one = found["bert-mlm"]
    assert one.slope is not None and one.slope.mean == 0
    refused = extension(measured(refusing, AXIS.column)["bert-mlm"])
    assert refused is not None and one.outlook == refused.refusal != ""
    texts = {arm: {t.text for t in ElementTree.fromstring(made.svg).iter("text")} for arm, made in found.items()}
    assert {len(texts[arm] ^ texts["rtd"]) for arm in texts} == {0, 2}  # what stands on the grey area
    bands = {arm: made.svg.count("fill-opacity") for arm, made in found.items()}
    assert bands["rtd"] > 0 == bands["bert-mlm"]


@pytest.mark.parametrize("law", [slowing, level])
def test_means_stand_at_what_was_spent_and_at_their_scores(law: Law) -> None:
    """Also where all scores are the same."""
    found = drawn(board(3, rtd=law, **{"bert-mlm": slowing}))
    [area] = paths(found["rtd"], "f-band")
    left, right = min(x for x, _ in area), max(x for x, _ in area)  # one and ten times the largest budget
    curve = next(p for p in paths(found["rtd"], "k-s0") if len(p) == 3)
    for i, (x, _) in enumerate(curve):
        assert x == pytest.approx(left + (right - left) * math.log10(2 ** (i - 2)), abs=0.3)
    means = [np.mean([law(i, seed) for seed in range(3)]) for i in range(3)]
    other = next(p for p in paths(found["bert-mlm"], "k-s4") if len(p) == 3)
    heights = [np.mean([slowing(i, seed) for seed in range(3)]) for i in range(3)]
    per = (other[0][1] - other[2][1]) / (heights[2] - heights[0])  # pixels for a point, the same in every panel
    for (_, y), mean in zip(curve, means, strict=True):
        assert y == pytest.approx(other[0][1] - per * (mean - heights[0]), abs=0.4)


def bounds() -> tuple[float, float]:
    """Both ends of the range at ten times the fourth budget: the last score, and the line through the last three."""
    ys = np.array([[slowing(i, seed) for i in (1, 2, 3)] for seed in range(3)])
    low = t_interval(ys[:, 2]).low
    high = t_interval(ys.mean(axis=1) + np.polyfit([1, 2, 3], ys.T, 1)[0] * (1 + math.log2(REACH))).high
    assert low is not None and high is not None
    return low, high


def test_the_band_lies_between_the_last_score_and_the_line() -> None:
    [one] = drawn(board(4, rtd=slowing)).values()
    root = ElementTree.fromstring(one.svg)
    [use] = [u for u in root.iter("use") if "fill-opacity" in u.attrib]
    [path] = [p for p in root.iter("path") if f"#{p.attrib.get('id')}" == use.attrib["href"]]
    numbers = [float(n) for n in re.findall(r"-?\d+\.?\d*", path.attrib["d"])]
    xs, ys = numbers[::2], [y + float(use.attrib["y"]) for y in numbers[1::2]]
    [area] = paths(one, "f-band")
    assert (min(xs), max(xs)) == pytest.approx((min(x for x, _ in area), max(x for x, _ in area)), abs=0.3)
    curve = next(p for p in paths(one, "k-s0") if len(p) == 4)
    means = [np.mean([slowing(i, seed) for seed in range(3)]) for i in range(4)]
    per = (curve[3][1] - curve[0][1]) / (means[3] - means[0])
    low, high = bounds()
    assert max(ys) == pytest.approx(curve[0][1] + per * (low - means[0]), abs=0.4)
    assert min(ys) == pytest.approx(curve[0][1] + per * (high - means[0]), abs=0.4)


def test_marks_of_other_arms_are_grey_lines_behind() -> None:
    found = drawn(board(3, rtd=slowing, **{"bert-mlm": level, "electra-15": slowing}))
    for one in found.values():
        grey = [p for p in paths(one, "k-muted") if len(p) == 3]
        assert len(grey) == 2
        assert len({x for p in grey for x, _ in p}) == 3


def test_a_long_name_of_the_axis_is_cut_at_its_comma() -> None:
    [one] = drawn(board(3, rtd=slowing), "a name of what was spent, in the paper's convention").values()
    texts = [t.text for t in ElementTree.fromstring(one.svg).iter("text")]
    assert "a name of what was spent" in texts


def test_arms_of_fewer_budgets_stand_beside_those_of_three() -> None:
    short = [one for one in board(3, **{"bert-mlm": level}).cells if one.budget != "budget 0"]
    found = drawn(by_hand.board([*board(3, rtd=slowing).cells, *short]))
    assert found["rtd"].slope is not None and found["bert-mlm"].slope is None
