"""What the page shows of one measure: a section with its answer, figures, tables and notes."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.report.comparison.boards import Board
from workbench.report.figures.selection import BoardFigures, Drawing, main_axis
from workbench.report.load.frames import Frames
from workbench.report.options_asked import Asked
from workbench.report.page import crossings, decided, equal, sentence_scoring, table_rows
from workbench.report.page.advice import advise
from workbench.report.page.answer import Answer, answer
from workbench.report.page.decided import LookRow
from workbench.report.page.equal import Held
from workbench.report.page.table_rows import BudgetTables, TaskRow
from workbench.report.statistics.per_task import MetricRow, every_metric
from workbench.report.statistics.resampling import TAU
from workbench.report.words import capital
from workbench.spec.published import POINTS, Finding, Point, finding


@dataclass(frozen=True)
class Section:
    """Everything that the page shows of one board, in the order in which it does."""

    number: int  # its place on the page, from 1, by which links lead here
    board: Board
    answer: Answer
    advice: str  # what to choose
    figures: BoardFigures
    crossings: tuple[str, ...]  # where arms change places
    published: tuple[Point, ...]  # the paper's own results, where ours can stand beside them
    tables: tuple[BudgetTables, ...]  # the largest budget first
    notes: tuple[str, ...]  # under the tables of scores
    finding: Finding | None  # the paper's words, where no figure along the axis has them already
    pairs_note: str
    looks: tuple[LookRow, ...]
    conventions: tuple[Held, ...]  # the comparison under each way of counting FLOPs, where that matters
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
        """Return whether an arm at any budget spent more than the least."""
        return any(row.spent_more for table in self.tables for row in table.rows)

    @property
    def permuted(self) -> bool:
        """Return whether the permutation test was made at the largest budget."""
        return any(pair.compared.flip is not None for pair in self.board.pairs[self.board.budget])

    def contents(self, several: bool) -> list[tuple[str, str]]:
        """Return fragment and title of each part of the section, with the measure's name where there are several."""
        of = f" ({self.board.label})" if several else ""
        parts = (
            ("along", "Score along the axis", self.figures.along is not None),
            ("compute", "Scores", True),
            ("table", "Table", True),
            ("beyond", "Beyond the budgets", bool(self.figures.beyond)),
            ("tasks", "Task by task", True),
        )
        return [(f"{name}-{self.number}", f"{title}{of}") for name, title, there in parts if there]


def section(place: int, board: Board, found: Frames, drawing: Drawing, asked: Asked) -> Section:
    """Return the section of a board; `place` is its place on the page, from 0."""
    convention = board.convention()
    figures = drawing.figures(board, place)
    conventions, sentence = equal.under_each(board, found)
    return Section(
        number=place + 1,
        board=board,
        answer=answer(board, found.axis),
        advice=advise(board, found, asked.budget_under(convention), convention),
        figures=figures,
        crossings=tuple(crossings.sentences(board, main_axis(board))),
        published=POINTS if board.label == "GLUE" else (),
        tables=tuple(table_rows.at_budget(board, budget) for budget in reversed(board.budgets)),
        notes=tuple(sentence_scoring.notes(board, found)),
        finding=None if figures.along else finding(found.axis, board.arms),
        pairs_note=pairs_note(board, asked),
        looks=tuple(decided.look_rows(board)),
        conventions=tuple(conventions),
        conventions_sentence=sentence,
        tasks=tuple(table_rows.by_task(board)),
        metrics=tuple(every_metric(found.rows("other"), board.at(board.budget), board.metrics)),
    )


def pairs_note(board: Board, asked: Asked) -> str:
    """Return what stands in the further columns of the table of pairs."""
    said = []
    if any(pair.compared.flip is not None for pairs in board.pairs.values() for pair in pairs):
        said.append("The permutation test flips the signs of the paired differences in every way; six seeds at least.")
    if asked.order:
        said.append(
            "Almost stochastic order: how far the first is from being better at every quantile, an upper 95 % bound, "
            f"from 0 to 1; below {TAU} it counts as better. It pairs nothing, and below five seeds its bootstrap "
            "says little."
        )
    return " ".join(said)
