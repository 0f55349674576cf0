"""Arms side by side: every mark at its score, in a column or row of its own, and words that do not touch."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import by_hand
import pytest
from by_hand import cell, gain

from workbench.report.comparison.boards import Board
from workbench.report.figures import arm_styles, strips, svg
from workbench.report.figures.arm_styles import Axis
from workbench.report.formatting import power
from workbench.report.statistics.paired_comparison import t_interval

ARMS = ("rtd", "electra-15", "bert-mlm")


def board(*budgets: str, seeds: int = 3, **changes: Any) -> Board:
    """Three arms at these budgets, each a point and a third above the one before; bert-mlm lacks the last."""
    cells = [
        cell(arm, [60 + 4 * i + j + seed / 3 for seed in range(seeds)], budget, 1e9 * 2**i, gain(2.0 + j))
        for i, budget in enumerate(budgets)
        for j, arm in enumerate(ARMS)
        if not (arm == "bert-mlm" and i and budget == budgets[-1])
    ]
    return by_hand.board(cells, **changes)


def rows_of(found: Board) -> dict[str, int]:
    return {run: 10 + row for row, run in enumerate(found.run_scores)}


def strip(found: Board) -> tuple[Any, strips.Tips]:
    tips = strips.Tips()
    with svg.drawing("t"):
        _, [_, ax] = strips.axes((900, 400), True)
        strips.by_budget(ax, found, arm_styles.styles(found.arms), Axis("flops_paper", "FLOPs"), rows_of(found), tips)
    return ax, tips


def tipped(ax: Any) -> dict[str, tuple[float, float]]:
    """gid of a mark -> where it stands."""
    return {line.get_gid(): (line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines if line.get_gid()}


def test_axes_share_their_scores_and_a_strip_adds_its_height() -> None:
    with svg.drawing("t"):
        figure, [one] = strips.axes((300, 200), False)
        assert tuple(figure.get_size_inches() * 72) == pytest.approx((300, 200))
        figure, [above, below] = strips.axes((300, 200), True)
        assert tuple(figure.get_size_inches() * 72) == pytest.approx((300, 200 + strips.STRIP))
        above.set_ylim(3, 5)
    assert below.get_ylim() == (3, 5) and one.get_ylim() != (3, 5)


def test_every_run_and_mean_stands_at_its_score_in_the_column_of_its_arm() -> None:
    found = board("small", "large")
    ax, tips = strip(found)
    places = tipped(ax)
    assert places.keys() == tips.keys() and len(places) == 5 * (1 + 3)
    width = len(ARMS) + strips.GAP
    for one in found.cells:
        column = found.budgets.index(one.budget) * width + ARMS.index(one.arm)
        mine = {gid: tip for gid, tip in tips.items() if tip[0].startswith(one.arm) and one.budget in tip[0]}
        [mean] = [gid for gid, (_, link) in mine.items() if not link]
        assert places[mean] == (column, pytest.approx(one.estimate.mean))
        runs = {link: places[gid] for gid, (_, link) in mine.items() if link}
        assert runs.keys() == {f"run-{rows_of(found)[run]}" for run in one.runs}
        for run in one.runs:
            x, y = runs[f"run-{rows_of(found)[run]}"]
            assert y == found.run_scores[run] and column < x < column + 1


def test_bars_are_the_intervals_of_the_means() -> None:
    found = board("small")
    ax, _ = strip(found)
    ends = {(bar[0][0], bar[0][1], bar[1][1]) for c in ax.collections for bar in c.get_segments()}
    expected = {(i, e.low, e.high) for i, e in enumerate(c.estimate for c in found.cells)}
    assert sorted(ends) == [pytest.approx(one) for one in sorted(expected)]
    assert not strip(board("small", seeds=1))[0].collections  # one seed has no interval


def test_groups_are_blocks_apart_named_in_their_middle() -> None:
    ax, _ = strip(board("small", "large"))
    blocks = sorted((p.get_x(), p.get_x() + p.get_width()) for p in ax.patches)
    assert len(blocks) == 2 and blocks[0][1] < blocks[1][0]
    for (left, right), tick in zip(blocks, ax.get_xticks(), strict=True):
        assert left < tick < right and tick == pytest.approx((left + right) / 2)
    low, high = ax.get_xlim()
    assert low < blocks[0][0] and high > blocks[1][1]
    columns = [x for x, _ in tipped(ax).values()]
    assert all(any(left < x < right for left, right in blocks) for x in columns)


def test_a_group_is_named_after_what_all_its_arms_spent_or_its_budget() -> None:
    found = board("small", "large")
    ax, _ = strip(found)
    assert [t.get_text() for t in ax.get_xticklabels()] == [power(1e9, 2), power(2e9, 2)]
    cells = [*found.cells[:3], cell("rtd", [70.0], "a budget with a long name", 2e9),
             cell("bert-mlm", [70.0], "a budget with a long name", 3e9)]  # fmt: skip
    labels = [t.get_text() for t in strip(by_hand.board(cells))[0].get_xticklabels()]
    assert labels[0] == power(1e9, 2) and labels[1].startswith("a budget") and len(labels[1]) <= 16


def test_a_single_run_has_a_column() -> None:
    ax, tips = strip(by_hand.board([cell("rtd", [60.0])]))
    assert sorted(tipped(ax).values()) == [(0, 60.0), (pytest.approx(0.32), 60.0)]
    assert len(ax.get_xticks()) == 1 and len(tips) == 2


def side(found: Board, wide: bool = True) -> tuple[ElementTree.Element, bool]:
    text, cut = strips.side_by_side(found, arm_styles.styles(found.arms), rows_of(found), "at 60 (mine)", wide, "t")
    return ElementTree.fromstring(text), cut


def words(root: ElementTree.Element) -> list[tuple[str, float, float]]:
    """Text of one line and where it stands."""
    texts = [t for t in root.iter("text") if "x" in t.attrib]
    return [(t.text or "", float(t.attrib["x"]), float(t.attrib["y"])) for t in texts]


def scale(root: ElementTree.Element, right: float) -> tuple[float, float]:
    """Place of zero and pixels for a point, from the numbers on the lower axis left of a place."""
    ticks = [(float(t.replace("−", "-")), x, y) for t, x, y in words(root)
             if t.replace("−", "").replace(".", "").isdigit() and x < right]  # fmt: skip
    lowest = max(y for _, _, y in ticks)
    (one, x, _), *_, (other, far, _) = sorted(t for t in ticks if t[2] == lowest)
    per = (far - x) / (other - one)
    return x - one * per, per


def marks_of(root: ElementTree.Element) -> dict[str, tuple[float, float]]:
    found = {}
    for group in root.iter("g"):
        title, use = group.find("title"), group.find(".//use")
        if title is not None and use is not None:
            found[(title.text or "").splitlines()[1]] = (float(use.attrib["x"]), float(use.attrib["y"]))
    return found


def test_runs_stand_at_their_scores_in_the_row_of_their_arm_the_best_on_top() -> None:
    found = board("small")
    root, cut = side(found)
    zero, per = scale(root, 500)
    places = marks_of(root)
    assert places.keys() == found.run_scores.keys() and not cut
    for run, (x, _) in places.items():
        assert x == pytest.approx(zero + per * found.run_scores[run], abs=0.7)
    names = {text: y for text, _, y in words(root) if text in ARMS}
    assert sorted(names, key=lambda arm: names[arm]) == ["bert-mlm", "electra-15", "rtd"]
    for one in found.cells:
        heights = {places[run][1] for run in one.runs}
        assert len(heights) == 1 and abs(heights.pop() - names[one.arm]) < 18


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_constant_scores_and_few_seeds_are_drawn_in_the_middle(seeds: int) -> None:
    found = by_hand.board([cell("rtd", [60.0] * seeds), cell("bert-mlm", [60.0] * seeds)])
    root, cut = side(found, wide=False)
    assert not cut and len({x for x, _ in marks_of(root).values()}) == 1 and len(marks_of(root)) == 2 * seeds
    [view] = [root.attrib["viewBox"].split()]
    assert all(0 < x < float(view[2]) for x, _ in marks_of(root).values())


@pytest.mark.parametrize(("gained", "axes"), [(True, 2), (False, 1)])
def test_gains_have_an_axis_of_their_own(gained: bool, axes: int) -> None:
    found = board("small") if gained else by_hand.board([cell(arm, [60.0, 61.0]) for arm in ARMS])
    root, _ = side(found)
    assert len(list(root.iter("clipPath"))) == axes
    assert sum("gain" in text for text, _, _ in words(root)) == axes - 1


def test_an_interval_that_leaves_the_figure_is_said() -> None:
    """Two seeds far apart, whose interval is twelve times as long as they are apart."""
    assert side(by_hand.board([cell("rtd", [50.0, 60.0]), cell("bert-mlm", [55.0, 56.0])]))[1]
    gains = [cell(arm, [60.0, 60.1, 60.2, 60.1], gain=gain(1.0 + i, 2.0, 2)) for i, arm in enumerate(ARMS)]
    assert gains[0].gain is not None and gains[0].gain.estimate.half is None
    assert not side(by_hand.board(gains))[1]  # no interval, no cut
    far = [cell(arm, [60.0, 60.1, 60.2, 60.1], gain=gain(1.0 + i, 2.0, 4)) for i, arm in enumerate(ARMS)]
    assert side(by_hand.board(far))[1]


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("apart", [0.0, 0.01, 0.4])
def test_words_above_the_lines_do_not_touch_and_stay_inside(wide: bool, apart: float) -> None:
    values = [58.6, *(60.5 + apart * i for i in range(4)), 64.2]  # the first and the last are near the ends of the axis
    baselines = {f"a baseline of number {i}": {"order": value} for i, value in enumerate(values)}
    bare = cell("untrained", [60.4, 60.5, 60.6], "none", 0.0)
    root, _ = side(board("small", baselines=baselines, untrained=bare), wide)
    above = [(t, x, y) for t, x, y in words(root) if t.startswith(("a baseline", "untrained"))]
    assert sorted(t.split()[-1] for t, _, _ in above) == sorted(f"{value:.1f}" for value in [60.5, *values])
    [axes, *_] = root.iter("rect")
    left, right = float(axes.attrib["x"]), float(axes.attrib["x"]) + float(axes.attrib["width"])
    half = 2.8  # pixels of half a letter of this size, at least
    for place, (text, x, y) in enumerate(above):
        assert left < x - half * len(text) and x + half * len(text) < right
        for other, far, height in above[:place]:
            assert abs(y - height) > 10 or abs(x - far) > half * (len(text) + len(other))


def test_the_band_is_the_interval_of_the_untrained_encoders() -> None:
    bare = cell("untrained", [58.0, 59.0, 59.5], "none", 0.0)
    found = board("small", untrained=bare)
    root, _ = side(found)
    zero, per = scale(root, 500)
    [band] = [p.attrib["d"] for p in root.iter("path") if p.attrib.get("class") == "f-band"]
    numbers = [float(n) for n in band.replace("M", "").replace("L", "").replace("z", "").split()]
    e = t_interval(bare.scores.values())
    low, high = min(numbers[::2]), max(numbers[::2])
    assert e.low is not None and e.high is not None
    assert (low, high) == pytest.approx((zero + per * e.low, zero + per * e.high), abs=0.7)


def test_marks_of_very_many_runs_stand_where_they_would_but_without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    found = board("small", "large")
    linked, tips = strip(found)
    marks = {tipped(linked)[gid] for gid, (_, link) in tips.items() if link}
    monkeypatch.setattr(strips, "MOST_LINKED", len(found.run_scores) - 1)
    at_once, few_tips = strip(found)
    assert len(marks) == len(found.run_scores) and not any(link for _, link in few_tips.values())
    assert [tip for tip in few_tips.values()] == [tip for tip in tips.values() if not tip[1]], "means keep theirs"
    points = [point for line in at_once.lines if len(line.get_xdata()) == 3 for point in line.get_xydata().tolist()]
    assert marks == set(map(tuple, points)), "three runs of each cell are drawn at once"
