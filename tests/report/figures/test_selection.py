"""Where marks stand: on an axis of compute at what was spent, and spread only over axes of categories."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import made
import pytest

from workbench.report.comparison.boards import Board, board, boards
from workbench.report.figures import along_axis, arm_styles, plots, selection
from workbench.report.formatting import TIMES
from workbench.report.load import frames

Place = tuple[float, float]
UNSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


def study(arms: tuple[str, ...], seeds: int, budgets: tuple[int, ...], **more: Any) -> tuple[frames.Frames, Board]:
    found = made.in_memory(made.noisy(made.LEVELS), arms, seeds, 1, budgets, **more)
    results = board(found, "probes")
    assert results is not None
    return found, results


def against(found: frames.Frames, results: Board, size: tuple[int, int], strip: bool) -> ElementTree.Element:
    looks = arm_styles.styles(results.arms)
    rows = {run: i for i, run in enumerate(found.settings)}
    svg, _ = plots.against(results, found, looks, selection.main_axis(results), rows, size, "t", strip)
    return ElementTree.fromstring(svg)


def marks_by_tip(root: ElementTree.Element) -> list[tuple[str, Place]]:
    """What each mark says when pointed at, and where it stands."""
    found = []
    for group in root.iter("g"):
        title = group.find("title")
        use = group.find(".//use")
        if title is not None and use is not None:
            found.append((title.text or "", (float(use.attrib["x"]), float(use.attrib["y"]))))
    return found


def log_axis(root: ElementTree.Element) -> Mapping[str, float]:
    """Offset and pixels per unit of log10, from the labels of the ticks of the upper axis, and its lower edge."""
    ticks = []
    for text in root.iter("text"):
        words = (text.text or "").split(TIMES)
        if words[-1].startswith("10") and words[-1][2:] and text.get("text-anchor") == "middle":
            value = math.log10(float(words[0]) if len(words) == 2 else 1.0) + float(words[-1][2:].translate(UNSCRIPT))
            ticks.append((float(text.attrib["y"]), float(text.attrib["x"]), value))
    top = min(y for y, _, _ in ticks)
    (_, x, a), (_, far, b) = sorted(t for t in ticks if t[0] == top)[:2]
    scale = (far - x) / (b - a)
    return {"scale": scale, "offset": x - a * scale, "bottom": top}


@pytest.mark.parametrize("size", [selection.WIDE, selection.NARROW])
def test_marks_of_several_budgets_stand_at_what_was_spent(size: tuple[int, int]) -> None:
    """Five arms of one budget share one place along the axis, though their marks overlap there."""
    found, results = study(made.ARMS, 3, (60, 120, 240, 480))
    root = against(found, results, size, strip=True)
    axis, runs = log_axis(root), found.by_id()
    spent = {(c.arm, c.budget): c.spent["flops_paper"] for c in results.cells}
    above = [(tip, x) for tip, (x, y) in marks_by_tip(root) if y < axis["bottom"] and " seeds" in tip]
    assert len(above) == 20  # the means of five arms at four budgets
    for tip, x in above:
        arm, budget = tip.split(":")[0], next(b for b in results.budgets if f" {b}," in tip)
        assert x == pytest.approx(axis["offset"] + axis["scale"] * math.log10(spent[arm, budget]), abs=0.6)
    below = [(tip, x) for tip, (x, y) in marks_by_tip(root) if y > axis["bottom"]]
    assert len([tip for tip, _ in below if ", seed " in tip]) == len(
        [r for r in runs.values() if r["role"] == "arm"]
    )  # every run, on the axis of categories
    assert len({round(x) for tip, x in below if " seeds" in tip}) == 20


def test_marks_of_arms_that_spent_different_amounts_stand_at_their_own() -> None:
    prices = {"rtd": 1.5e9, "bert-mlm": 1e9, "replace-mlm": 2e9}
    found, results = study(
        tuple(prices),
        3,
        (60,),
        price=lambda arm: dict.fromkeys(("paper", "paper-sparse", "matmul"), prices.get(arm, 1e9)),
    )
    assert selection.has_curve(results)
    root = against(found, results, selection.WIDE, strip=False)
    axis = log_axis(root)
    tips = [(tip, x) for tip, (x, _) in marks_by_tip(root) if not tip.startswith("untrained")]
    assert len(tips) == 3 * (3 + 1)
    for tip, x in tips:
        price = next(value for arm, value in prices.items() if tip.startswith(arm))
        assert x == pytest.approx(axis["offset"] + axis["scale"] * math.log10(60 * price), abs=0.6)


def test_a_caption_speaks_of_intervals_only_where_they_are_drawn() -> None:
    """Two arms that spent the same hide each other's intervals on an axis of compute, so only means stand there."""
    prices = {"rtd": 1e9, "electra-15": 1e9, "bert-mlm": 2e9}
    found, results = study(
        tuple(prices),
        3,
        (60,),
        price=lambda arm: dict.fromkeys(("paper", "paper-sparse", "matmul"), prices.get(arm, 1e9)),
    )
    drawing = selection.drawing(found)
    assert drawing.looks == arm_styles.styles(results.arms)
    drawn = drawing.figures(results, 0)
    [figure] = drawn.compute
    assert "large ones are means" not in figure.caption and "figure of the next section" in figure.caption
    assert ", seed 0" not in "".join(re.findall("<title>(?!untrained)[^<]*", figure.wide))
    assert drawn.side_by_side is not None
    assert ", seed 0" in "".join(re.findall("<title>(?!untrained)[^<]*", drawn.side_by_side.wide))


def test_one_amount_of_compute_has_rows_instead_of_an_axis(tmp_path: Path) -> None:
    found, results = study(made.ARMS, 2, (60,))
    assert not selection.has_curve(results)
    picture = selection.drawing(found).picture(results)
    root = ElementTree.fromstring(picture)
    words = [text.text or "" for text in root.iter("text")]
    assert set(made.ARMS) <= set(words)  # each names its row
    assert any("all arms at 6.00×10¹⁰ FLOPs (paper convention)" in word for word in words)
    assert not any("log scale" in word for word in words)
    rows = {tip.split(",")[0]: y for tip, (_, y) in marks_by_tip(root) if ", seed " in tip}
    assert len({round(y) for y in rows.values()}) == len(made.ARMS)


def test_words_above_the_rows_do_not_touch() -> None:
    found, results = study(made.ARMS, 2, (60,))
    picture = selection.drawing(found).picture(results)
    places = [
        (float(t.attrib["y"]), float(t.attrib["x"]), len(t.text or "") * 6.2)
        for t in ElementTree.fromstring(picture).iter("text") if t.get("font-size") == "11px"
    ]  # fmt: skip
    assert places
    for i, (y, x, width) in enumerate(places):
        for other_y, other_x, other_width in places[:i]:
            assert abs(y - other_y) > 10 or abs(x - other_x) >= (width + other_width) / 2


def test_lines_along_an_axis_stand_at_its_values(tmp_path: Path) -> None:
    """Encoders of two sizes share the places of the axis; their runs are beside each other in the strip alone."""
    from test_along_axis import WIDTHS, sweep

    cells = [{"generator.width": w, "encoder.hidden": h} for h in (64, 128) for w in WIDTHS]
    store, name = sweep(tmp_path, cells)
    found = frames.read(store, name)
    [results] = boards(found)
    rows = {run: i for i, run in enumerate(found.settings)}
    root = ElementTree.fromstring(along_axis.along(results, found, rows, selection.WIDE, "t")[0])
    ticks = {float(t.attrib["x"]) for t in root.iter("text") if (t.text or "") in ("1/8", "1/4", "1/2", "1")}
    means = [(x, y) for tip, (x, y) in marks_by_tip(root) if " seeds" in tip]
    middle = sorted(y for _, y in means)[len(means) // 2 - 1]
    above = [x for x, y in means if y <= middle]
    assert len(above) == 8 and all(min(abs(x - tick) for tick in ticks) < 0.6 for x in above)


def test_every_run_leads_to_its_row_once() -> None:
    found, results = study(made.ARMS, 3, (60, 120))
    root = against(found, results, selection.WIDE, strip=True)
    links = [a.attrib["href"] for a in root.iter("a")]
    assert sorted(links) == sorted(f"#run-{i}" for i in range(len(found.settings)))


@pytest.mark.parametrize(("seeds", "cut"), [(8, False), (2, True)])
def test_a_figure_of_rows_says_where_intervals_leave_it(seeds: int, cut: bool) -> None:
    """Two seeds have one degree of freedom, whose intervals are many times as long as their means lie apart."""
    found = made.in_memory(made.noisy(made.LEVELS, seed_sd=2.0), ("bert-mlm", "replace-mlm", "rtd"), seeds)
    results = board(found, "probes")
    assert results is not None
    drawn = selection.drawing(found).figures(results, 0)
    [figure] = drawn.compute
    assert drawn.side_by_side is None  # the main figure has the rows already
    assert (arm_styles.CUT_NOTE in figure.caption) == cut
