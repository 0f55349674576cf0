"""Which figures a page has, what is said beneath them, and the key to their marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.report.comparison.boards import UNTRAINED, Board
from workbench.report.figures import along_axis, during_training, marks, panels, plots, scaling, strips, tuned
from workbench.report.figures.marks import Axis, Style
from workbench.report.figures.panels import Training
from workbench.report.figures.scaling import ArmBeyond
from workbench.report.load.frames import Frames
from workbench.report.words import listing
from workbench.spec.parts import CONVENTIONS

WIDE, HALF, NARROW = (920, 440), (470, 360), (380, 380)  # CSS pixels
POINTS_NOTE = "Small marks are runs and lead to their row below; large ones are means over pre-training seeds"
BARS_NOTE = "bars are 95 % t intervals"
TUNING_NOTE = (
    "A small mark is a trial, the line the best so far. The best of many trials flatters: read it as what tuning "
    "costs, not as a score. A tune reports fresh seeds with the values chosen here."
)


@dataclass(frozen=True)
class Figure:
    """One figure in the page; `narrow` is the same for a phone, "" where one does for both."""

    wide: str
    narrow: str
    caption: str
    legend: tuple[str, ...] = ()


@dataclass(frozen=True)
class BoardFigures:
    """The figures of one board. What there is nothing to draw for is None or empty."""

    along: Figure | None  # score over the axis of a sweep, where that is a number
    compute: tuple[Figure, ...]  # the main figures: along training, and against compute where that differs
    side_by_side: Figure | None  # the arms at the largest budget, where no main figure is that already
    others: tuple[Figure, ...]  # against tokens, time, and FLOPs under the other conventions
    beyond: tuple[ArmBeyond, ...]  # each arm beyond the budgets


@dataclass(frozen=True)
class Drawing:
    """What all figures of a page share. `rows` maps run ids to their row in the table of runs, where marks lead to."""

    frames: Frames
    looks: Mapping[str, Style]
    rows: Mapping[str, int]

    def figures(self, board: Board, place: int) -> BoardFigures:
        """Return the figures of a board; `place` is its place on the page, from 0, which keeps ids apart."""
        return BoardFigures(
            self._along(board, f"a{place}"),
            self._main_figures(board, f"c{place}"),
            self._side(board, f"b{place}") if has_curve(board) else None,
            self._others(board, f"o{place}"),
            tuple(scaling.beyond(board, self.looks, main_axis(board), f"p{place}")),
        )

    def training(self, boards: Sequence[Board]) -> Training:
        """Return the training curves at the largest budget of the first board."""
        return panels.training(self.frames, boards[0].budget if boards else None, self.looks)

    def tuning(self) -> Figure | None:
        """Return the figure of scores over the tuning budget, where settings were searched for."""
        wide, narrow = tuned.figure(self.frames, WIDE, "tw"), tuned.figure(self.frames, NARROW, "tn")
        return Figure(wide, narrow, TUNING_NOTE) if wide else None

    def picture(self, board: Board) -> str:
        """Return the main figure of a board as it leaves the page, with its legend inside."""
        name = "picture"
        if board.places:
            axis = main_axis(board)
            return during_training.draw(board, self.frames, self.looks, axis, self.rows, WIDE, name, legend=True)[0]
        if not has_curve(board):
            return strips.side_by_side(board, self.looks, self.rows, spent_by_all(board), True, name)[0]
        return self._against(board, WIDE, name, legend=True)[0]

    def _along(self, board: Board, name: str) -> Figure | None:
        """Score over the axis of a sweep, where that is a number."""
        wide, said = along_axis.along(board, self.frames, self.rows, WIDE, f"{name}w")
        narrow, _ = along_axis.along(board, self.frames, self.rows, NARROW, f"{name}n")
        return Figure(wide, narrow, f"{'; '.join([POINTS_NOTE, BARS_NOTE, *said])}.") if wide else None

    def _main_figures(self, board: Board, name: str) -> tuple[Figure, ...]:
        """Scores along training where runs were measured before their end, and scores of ends against compute."""
        if not board.places:
            return (self._main(board, name),)
        ends = [self._main(board, name)] if len(board.budgets) > 1 else []
        return (self._during(board, f"d{name}"), *ends)

    def _during(self, board: Board, name: str) -> Figure:
        """Scores along training, a line per arm."""
        axis = main_axis(board)
        wide, remarks = during_training.draw(board, self.frames, self.looks, axis, self.rows, WIDE, f"{name}w")
        narrow, _ = during_training.draw(board, self.frames, self.looks, axis, self.rows, NARROW, f"{name}n")
        if board.untrained is not None:
            remarks.append("The grey line and band are the untrained encoders, which spent nothing")
        return Figure(wide, narrow, f"{'. '.join(remarks)}.", self._arms(board))

    def _main(self, board: Board, name: str) -> Figure:
        """Score against compute, or arms side by side where compute does not differ."""
        if not several_amounts(board):
            return self._side(board, name)
        wide, remarks = self._against(board, WIDE, f"{name}w")
        narrow, _ = self._against(board, NARROW, f"{name}n")
        caption = ". ".join(["; ".join(_said_of_main(board)), *remarks]) + "."
        return Figure(wide, narrow, caption, self._arms(board))

    def _against(self, board: Board, size: tuple[int, int], name: str, legend: bool = False) -> tuple[str, list[str]]:
        """Score against compute, with a strip below where there are several budgets, and remarks for the caption."""
        axis, strip = main_axis(board), len(board.budgets) > 1
        return plots.against(board, self.frames, self.looks, axis, self.rows, size, name, strip, legend)

    def _arms(self, board: Board) -> tuple[str, ...]:
        """The arms of a board in the order of the legend."""
        return tuple(arm for arm in self.looks if arm in board.arms)

    def _others(self, board: Board, name: str) -> tuple[Figure, ...]:
        """The same against everything else that could be held the same."""
        axes = [Axis("tokens", "training tokens"), Axis("seconds", "training time in seconds")]
        for convention in CONVENTIONS:
            if convention != board.convention():
                axes.append(Axis(f"flops_{convention}", f"training FLOPs, {convention} convention"))
        made = []
        for i, axis in enumerate(axes):
            if marks.one_amount(board, axis.column):
                continue  # one place along x is no curve
            svg, remarks = plots.against(board, self.frames, self.looks, axis, self.rows, HALF, f"{name}{i}")
            if svg:
                if marks.crowded(board, axis.column):
                    remarks.insert(
                        0, "Means alone, because arms share places; runs and intervals are in the first figure"
                    )
                caption = f"Against {axis.label}. {'. '.join(remarks)}{'.' if remarks else ''}"
                made.append(Figure(svg, "", caption))
        return tuple(made)

    def _side(self, board: Board, name: str) -> Figure:
        """Arms side by side at the largest budget."""
        at = spent_by_all(board)
        wide, cut = strips.side_by_side(board, self.looks, self.rows, at, True, f"{name}w")
        narrow, _ = strips.side_by_side(board, self.looks, self.rows, at, False, f"{name}n")
        baselines = [n for n in marks.levels(board) if n != UNTRAINED]
        grey = ["the untrained encoder (line and band)"] if board.untrained else []
        grey += [f"the baselines {listing(baselines)} (dotted)"] if baselines else []
        level = f" Grey: {listing(grey)}." if grey else ""
        return Figure(wide, narrow, f"{POINTS_NOTE}; {BARS_NOTE}{f'; {marks.CUT_NOTE}' if cut else ''}.{level}")


def drawing(frames: Frames) -> Drawing:
    """Return what the figures of an experiment share."""
    runs = frames.rows("runs")
    looks = marks.styles(run["arm"] for run in runs if run["role"] != UNTRAINED)
    return Drawing(frames, looks, {run["run_id"]: i for i, run in enumerate(runs)})


def _said_of_main(board: Board) -> list[str]:
    """Return what the caption of score against compute says of its marks."""
    column, strip = main_axis(board).column, len(board.budgets) > 1
    said = [POINTS_NOTE, BARS_NOTE]
    if not strip and marks.crowded(board, column):
        said = ["Means over pre-training seeds; runs and intervals are in the rows of the next section"]
    if strip:
        said.append("above, a curve joins the means of separately trained runs at different budgets")
        said.append("below, each grey block is one budget, in which arms stand side by side and not by compute")
    if board.untrained is not None:
        said.append("the grey line and band are the untrained encoders, which spent nothing")
    if far := marks.off_axis(board):
        said.append(f"not on the axis: {listing(far)}")
    if board.label == "GLUE" and column == "flops_paper":
        said.append("open marks are the paper’s own results (its tables 1 and 2, listed below)")
    return said


def has_curve(board: Board) -> bool:
    """Return whether there is anything to see along an axis of compute: several places, or the paper's own results."""
    return bool(board.places) or several_amounts(board)


def several_amounts(board: Board) -> bool:
    """Return the same of the ends of training alone."""
    axis = main_axis(board)
    spent = all(cell.spent[axis.column] > 0 for cell in board.cells)
    paper = board.label == "GLUE" and axis.column == "flops_paper"
    return spent and (paper or not marks.one_amount(board, axis.column))


def spent_by_all(board: Board) -> str:
    """What the arms of the largest budget spent: `all arms at 5.00×10¹² FLOPs (matmul convention)`, or the budget."""
    axis = main_axis(board)
    if not marks.one_amount(board, axis.column, board.budget):
        return f"at {board.budget}"
    spent = [cell.spent[axis.column] for cell in board.at(board.budget)]
    convention = axis.column.removeprefix("flops_")
    return f"all arms at {axis.say(sum(spent) / len(spent))} ({convention} convention)"


def main_axis(board: Board) -> Axis:
    """FLOPs under that convention."""
    convention = board.convention()
    return Axis(f"flops_{convention}", f"training FLOPs, {convention} convention")
