"""The section of the page on one measure, with its answer, figures, tables and notes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.report.comparison.boards import Board
from workbench.report.comparison.verdict import Verdict
from workbench.report.figures.selection import BoardFigures, Drawing, main_axis
from workbench.report.formatting import capital, seeds
from workbench.report.load.frames import Frames
from workbench.report.page import (
    by_convention,
    crossings,
    decisions,
    experiment_facts,
    sentence_scoring,
    table_rows,
)
from workbench.report.page.advice import advise
from workbench.report.page.answer import Answer, answer
from workbench.report.page.by_convention import ConventionRanking
from workbench.report.page.decisions import LookRow
from workbench.report.page.phrases import covers
from workbench.report.page.table_rows import BudgetTables, TaskRow
from workbench.report.report_options import ReportOptions
from workbench.report.statistics.noise import SHARE_IN_WORDS, moved_by_arithmetic
from workbench.report.statistics.per_task import MetricRow, every_metric
from workbench.report.statistics.resampling import TAU
from workbench.spec.parts import Budget
from workbench.spec.published import Finding, Point, finding, points_of


@dataclass(frozen=True)
class Section:
    """The content of the section on one board, in the order of the page."""

    number: int  # its place on the page, from 1, which is part of the fragments of links
    board: Board
    answer: Answer
    advice: str  # the recommended arm; "" unless this measure decides which one
    figures: BoardFigures
    crossings: tuple[str, ...]  # sentences on amounts at which arms change places
    published: tuple[Point, ...]  # the paper's results, if they are comparable with these
    tables: tuple[BudgetTables, ...]  # the largest budget first
    notes: tuple[str, ...]  # under the tables of scores
    finding: Finding | None  # the paper's result on this axis, unless the figure along the axis states it
    pairs_note: str
    looks: tuple[LookRow, ...]
    conventions: tuple[ConventionRanking, ...]  # the comparison under each convention of counting FLOPs, if they differ
    conventions_sentence: str
    tasks: tuple[TaskRow, ...]
    metrics: tuple[MetricRow, ...]

    @property
    def heading(self) -> str:
        """Return the heading of the main figures."""
        flat = self.figures.side_by_side is None
        return f"{capital(self.board.label)} {f'at {self.board.budget}' if flat else 'against compute'}"

    @property
    def unequal(self) -> bool:
        """Return whether at some budget an arm spent more than the arm that spent least."""
        return any(row.spent_more for table in self.tables for row in table.rows)

    @property
    def statistic_note(self) -> str:
        """Return a sentence on means and medians over fine-tuning seeds, here and in published scores."""
        return experiment_facts.statistic_note(self.board)

    @property
    def arithmetic_note(self) -> str:
        """Return how far means and differences would move with the same seeds elsewhere; "" if the noise is unknown."""
        noise = next(iter(self.board.noise.get(self.board.budget, ())), None)
        if noise is None or not noise.paired or not noise.n:
            return ""
        arm = moved_by_arithmetic(noise.paired, noise.n)
        return (
            f"With the same {seeds([noise.n])} on another kind of arithmetic, such as another processor, the mean of "
            f"an arm would move by about {arm:.2f} points and a difference by {math.sqrt(2) * arm:.2f} (one standard "
            f"deviation; {SHARE_IN_WORDS}). The intervals contain this noise."
        )

    @property
    def permuted(self) -> bool:
        """Return whether the permutation test was made at the largest budget, for any pair."""
        return any(pair.compared.flip is not None for pair in self.board.pairs[self.board.budget])

    def contents(self, several: bool) -> list[tuple[str, str]]:
        """Return the fragment and the title of each part, with the name of the measure if there are several."""
        of = f" ({self.board.label})" if several else ""
        parts = (
            ("along", "Score along the axis", self.figures.along is not None),
            ("compute", "Scores", True),
            ("table", "Table", True),
            ("beyond", "Beyond the budgets", bool(self.figures.beyond)),
            ("tasks", "Task by task", True),
        )
        return [(f"{name}-{self.number}", f"{title}{of}") for name, title, is_shown in parts if is_shown]


def section(
    place: int, board: Board, frames: Frames, drawing: Drawing, options: ReportOptions, verdicts: Sequence[Verdict]
) -> Section:
    """Return the section on a board; `place` is its place on the page, from 0. The first of the verdicts decides."""
    own = next(verdict for verdict in verdicts if verdict.suite == board.suite)
    convention = board.convention()
    figures = drawing.figures(board, place)
    conventions, sentence = by_convention.under_each(board, frames)
    return Section(
        number=place + 1,
        board=board,
        answer=answer(board, frames.axis),
        advice=_advice(board, frames, options.budget_under(convention), convention, own) if own is verdicts[0] else "",
        figures=figures,
        crossings=tuple(crossings.sentences(board, main_axis(board))),
        published=points_of(board.label, board.tasks),
        tables=tuple(table_rows.at_budget(board, budget) for budget in reversed(board.budgets)),
        notes=(covers(board), *sentence_scoring.notes(board, frames)),
        finding=None if figures.along else finding(frames.axis, board.arms),
        pairs_note=pairs_note(board, options),
        looks=tuple(decisions.look_rows(board)),
        conventions=tuple(conventions),
        conventions_sentence=sentence,
        tasks=tuple(table_rows.by_task(board)),
        metrics=tuple(every_metric(frames.rows("other"), board.at(board.budget), board.metrics, board.statistic)),
    )


def _advice(board: Board, frames: Frames, budget: Budget | None, convention: str, verdict: Verdict) -> str:
    """Return the recommendation by the measure that decides; none if another one contradicts it."""
    if verdict.kind == "disagree":
        return f"There is no recommendation. {verdict}"
    return advise(board, frames, budget, convention)


def pairs_note(board: Board, options: ReportOptions) -> str:
    """Return the explanation of the optional columns in the table of pairs."""
    notes = []
    if any(pair.compared.flip is not None for pairs in board.pairs.values() for pair in pairs):
        notes.append(
            "The permutation test uses all ways to flip the signs of the paired differences; it needs six seeds."
        )
    if options.order:
        notes.append(
            "Almost stochastic order: an upper 95 % bound, from 0 to 1, for how far the first arm is from being better "
            f"at every quantile; below {TAU} it counts as better. It is not paired by seed, and its bootstrap is "
            "unreliable with fewer than five seeds."
        )
    return " ".join(notes)
