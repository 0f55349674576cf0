"""A section of the page: its heading, its parts for the table of contents, and notes on what was computed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import by_hand
import made
import pytest
from by_hand import cell

from workbench.report.comparison.boards import Board, board
from workbench.report.comparison.verdict import verdicts
from workbench.report.figures.selection import BoardFigures, Figure
from workbench.report.page.answer import Answer, answer
from workbench.report.page.phrases import covers
from workbench.report.page.section import Section, pairs_note, section
from workbench.report.page.table_rows import BudgetTables, ScoreRow
from workbench.report.report_options import ReportOptions
from workbench.report.statistics.noise import moved_by_arithmetic
from workbench.report.statistics.per_task import Noise
from workbench.report.statistics.resampling import TAU

FIGURE = Figure("", "", "")
NO_FIGURES = BoardFigures(None, (FIGURE,), None, (), ())


def two_arms(seeds: int, **changes: Any) -> Board:
    scores = {s: 60.0 + s % 3 for s in range(seeds)}
    return by_hand.board(
        [cell("rtd", {s: v + 1 + s % 2 for s, v in scores.items()}), cell("bert-mlm", scores)], **changes
    )


def made_of(found: Board, figures: BoardFigures = NO_FIGURES, *spent_more: bool) -> Section:
    rows = tuple(ScoreRow(one, more, None, None, None) for one, more in zip(found.cells, spent_more, strict=False))
    tables = (BudgetTables(found.budget, "bert-mlm", rows, ()),)
    return Section(3, found, Answer("", (), ""), "", figures, (), (), tables, (), None, "", (), (), "", (), ())


def test_the_heading_names_the_measure_and_the_budget_where_there_is_no_curve() -> None:
    flat, curve = made_of(two_arms(2)), made_of(two_arms(2), replace(NO_FIGURES, side_by_side=FIGURE))
    assert flat.heading.startswith("Probe score ") and flat.heading.endswith(by_hand.BUDGET)
    assert curve.heading.startswith("Probe score ") and by_hand.BUDGET not in curve.heading


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("along", [None, FIGURE])
@pytest.mark.parametrize("beyond", [(), ("an arm",)])
def test_parts_that_are_there_lead_to_fragments_of_the_section(several: bool, along: Any, beyond: Any) -> None:
    found = made_of(two_arms(2), replace(NO_FIGURES, along=along, beyond=beyond))
    parts = found.contents(several)
    names = ["along"] * bool(along) + ["compute", "table"] + ["beyond"] * bool(beyond) + ["tasks"]
    assert [fragment for fragment, _ in parts] == [f"{name}-3" for name in names]
    assert all(("probe score" in title) == several for _, title in parts)
    assert len({title for _, title in parts}) == len(parts)


@pytest.mark.parametrize(("spent", "unequal"), [((False, False), False), ((False, True), True), ((), False)])
def test_one_arm_that_spent_more_makes_a_comparison_unequal(spent: tuple[bool, ...], unequal: bool) -> None:
    assert made_of(two_arms(2), NO_FIGURES, *spent).unequal is unequal


@pytest.mark.parametrize(("seeds", "permuted"), [(2, False), (5, False), (6, True)])
def test_the_permutation_test_is_made_from_six_seeds_on_and_noted(seeds: int, permuted: bool) -> None:
    found = two_arms(seeds)
    assert made_of(found).permuted is permuted
    assert bool(pairs_note(found, ReportOptions())) is permuted


def test_only_the_order_that_was_asked_for_is_noted() -> None:
    assert pairs_note(two_arms(3), ReportOptions()) == ""
    assert str(TAU) in pairs_note(two_arms(3), ReportOptions(order=True))
    both = pairs_note(two_arms(6), ReportOptions(order=True))
    assert both == f"{pairs_note(two_arms(6), ReportOptions())} {pairs_note(two_arms(3), ReportOptions(order=True))}"


def test_a_note_on_the_permutation_test_is_for_every_budget_and_the_column_for_the_largest() -> None:
    scores = {s: 60.0 + s % 3 for s in range(6)}
    early = [cell(arm, {s: v + place + s % 2 * place for s, v in scores.items()}, "30 steps", 5e8)
             for place, arm in enumerate(("rtd", "bert-mlm"))]  # fmt: skip
    found = by_hand.board([*early, *two_arms(3).cells])
    assert found.budgets == ("30 steps", by_hand.BUDGET)
    assert not made_of(found).permuted and pairs_note(found, ReportOptions())


def test_the_note_on_arithmetic_is_for_the_noise_and_the_seeds_of_the_board() -> None:
    noise = Noise("Probe score", None, 1.0, 1.4, None, 4, 3, None, None)
    arm = moved_by_arithmetic(1.4, 4)
    told = made_of(two_arms(4, noise={by_hand.BUDGET: (noise,)})).arithmetic_note
    assert told.startswith("With the same 4 seeds on another kind of arithmetic")
    assert f"about {arm:.2f} points and a difference by {2**0.5 * arm:.2f} (" in told
    unknown = two_arms(1, noise={by_hand.BUDGET: (replace(noise, paired=None),)})
    assert made_of(unknown).arithmetic_note == made_of(two_arms(1)).arithmetic_note == ""


class Drawn:
    """Stands in for the drawing of figures, which has tests of its own."""

    def figures(self, board: Board, place: int) -> BoardFigures:
        return replace(NO_FIGURES, compute=(Figure(board.budget, "", str(place)),))


def test_a_section_has_its_parts_from_its_own_board() -> None:
    frames = made.in_memory(made.noisy(made.LEVELS), ("rtd", "bert-mlm"), 2, 1, (60, 120))
    found = board(frames, "probes")
    assert found is not None
    one = section(4, found, frames, Drawn(), ReportOptions(), verdicts([found], frames))  # type: ignore[arg-type]
    assert one.number == 5 and one.answer == answer(found, "objective")
    assert [table.budget for table in one.tables] == ["120 steps", "60 steps"]
    assert {row.task for row in one.tasks} == set(made.PROBES)
    assert one.published == () and one.finding is None and one.looks == () and one.notes == (covers(found),)
    assert one.figures.compute[0] == Figure("120 steps", "", "4")
