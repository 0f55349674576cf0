"""Selection of the figures of a page, with their captions and legends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.report.comparison.boards import UNTRAINED, Board
from workbench.report.figures import along_axis, arm_styles, during_training, panels, plots, scaling, strips, tuned
from workbench.report.figures.arm_styles import Axis, Style
from workbench.report.figures.panels import Training
from workbench.report.figures.scaling import ArmBeyond
from workbench.report.formatting import listing
from workbench.report.load.frames import Frames
from workbench.spec.parts import CONVENTIONS
from workbench.spec.published import MEASURED

WIDE, HALF, NARROW = (920, 440), (470, 360), (380, 380)  # CSS pixels
POINTS_NOTE = "Small marks are runs and link to their rows below; large ones are means over pre-training seeds"
MANY_NOTE = "Small marks are runs; large ones are means over pre-training seeds"
BARS_NOTE = "bars are 95 % t intervals"
TUNING_NOTE = (
    "A small mark is a trial, and the line the best score so far. The best of many trials overestimates: read it as "
    "the cost of tuning, not as a score. The experiment `tune` reports new seeds with the values that were chosen here."
)


@dataclass(frozen=True)
class Figure:
    """One figure of the page; `narrow` is the version for a phone, "" if the same drawing fits both."""

    wide: str
    narrow: str
    caption: str
    legend: tuple[str, ...] = ()


@dataclass(frozen=True)
class BoardFigures:
    """The figures of one board; a figure without anything to draw is None or absent."""

    along: Figure | None  # scores along the axis of a sweep, if its values are numbers
    compute: tuple[Figure, ...]  # the main figures: during training, and against compute if it differs
    side_by_side: Figure | None  # the arms at the largest budget, unless a main figure shows that
    others: tuple[Figure, ...]  # scores against tokens, time, and FLOPs under the other conventions
    beyond: tuple[ArmBeyond, ...]  # each arm beyond the budgets


@dataclass(frozen=True)
class Drawing:
    """What all figures of a page share. `rows` maps run ids to their row in the table of runs, to which marks link."""

    frames: Frames
    looks: Mapping[str, Style]
    rows: Mapping[str, int]

    def figures(self, board: Board, place: int) -> BoardFigures:
        """Return the figures of a board; `place` is its place on the page, from 0, which makes ids unique."""
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
        """Return the figure of scores over the tuning budget; None if no settings were searched for."""
        wide, narrow = tuned.figure(self.frames, WIDE, "tw"), tuned.figure(self.frames, NARROW, "tn")
        return Figure(wide, narrow, TUNING_NOTE) if wide else None

    def picture(self, board: Board) -> str:
        """Return the main figure of a board for a separate file, with its legend inside."""
        name = "picture"
        if board.places:
            axis = main_axis(board)
            return during_training.draw(board, self.frames, self.looks, axis, self.rows, WIDE, name, legend=True)[0]
        if not has_curve(board):
            return strips.side_by_side(board, self.looks, self.rows, spent_by_all(board), True, name)[0]
        return self._against(board, WIDE, name, legend=True)[0]

    def _along(self, board: Board, name: str) -> Figure | None:
        """Return the figure of scores along the axis of a sweep; None if there is nothing to draw."""
        wide, remarks = along_axis.along(board, self.frames, self.rows, WIDE, f"{name}w")
        narrow, _ = along_axis.along(board, self.frames, self.rows, NARROW, f"{name}n")
        return Figure(wide, narrow, f"{'; '.join([_marks_note(board), BARS_NOTE, *remarks])}.") if wide else None

    def _main_figures(self, board: Board, name: str) -> tuple[Figure, ...]:
        """Return the figures of scores during training, if runs were measured before the end, and against compute."""
        if not board.places:
            return (self._main(board, name),)
        ends = [self._main(board, name)] if len(board.budgets) > 1 else []
        return (self._during(board, f"d{name}"), *ends)

    def _during(self, board: Board, name: str) -> Figure:
        """Return the figure of scores during training, with a line for each arm."""
        axis = main_axis(board)
        wide, remarks = during_training.draw(board, self.frames, self.looks, axis, self.rows, WIDE, f"{name}w")
        narrow, _ = during_training.draw(board, self.frames, self.looks, axis, self.rows, NARROW, f"{name}n")
        if board.untrained is not None:
            remarks.append("The grey line and band are the untrained encoders, which spent nothing")
        return Figure(wide, narrow, f"{'. '.join(remarks)}.", self._arms(board))

    def _main(self, board: Board, name: str) -> Figure:
        """Return the figure of scores against compute, or of arms side by side if all spent the same amount."""
        if not several_amounts(board):
            return self._side(board, name)
        wide, remarks = self._against(board, WIDE, f"{name}w")
        narrow, _ = self._against(board, NARROW, f"{name}n")
        caption = ". ".join(["; ".join(_main_caption(board)), *remarks]) + "."
        return Figure(wide, narrow, caption, self._arms(board))

    def _against(self, board: Board, size: tuple[int, int], name: str, legend: bool = False) -> tuple[str, list[str]]:
        """Return the figure of scores against compute, with a strip below if there are several budgets, and remarks."""
        axis, strip = main_axis(board), len(board.budgets) > 1
        return plots.against(board, self.frames, self.looks, axis, self.rows, size, name, strip, legend)

    def _arms(self, board: Board) -> tuple[str, ...]:
        """Return the arms of a board in the order of the legend."""
        return tuple(arm for arm in self.looks if arm in board.arms)

    def _others(self, board: Board, name: str) -> tuple[Figure, ...]:
        """Return figures of scores against tokens, time, and FLOPs under the other conventions."""
        axes = [Axis("tokens", "training tokens"), Axis("seconds", "training time in seconds")]
        for convention in CONVENTIONS:
            if convention != board.convention():
                axes.append(Axis(f"flops_{convention}", f"training FLOPs, {convention} convention"))
        figures = []
        for i, axis in enumerate(axes):
            if arm_styles.one_amount(board, axis.column):
                continue  # a single amount makes no curve
            svg, remarks = plots.against(board, self.frames, self.looks, axis, self.rows, HALF, f"{name}{i}")
            if svg:
                if arm_styles.crowded(board, axis.column):
                    remarks.insert(
                        0, "Only means are shown, as marks of arms overlap; runs and intervals are in the first figure"
                    )
                caption = f"Against {axis.label}. {'. '.join(remarks)}{'.' if remarks else ''}"
                figures.append(Figure(svg, "", caption))
        return tuple(figures)

    def _side(self, board: Board, name: str) -> Figure:
        """Return the figure of the arms side by side at the largest budget."""
        at = spent_by_all(board)
        wide, cut = strips.side_by_side(board, self.looks, self.rows, at, True, f"{name}w")
        narrow, _ = strips.side_by_side(board, self.looks, self.rows, at, False, f"{name}n")
        baselines = [n for n in arm_styles.levels(board) if n != UNTRAINED]
        grey = ["the untrained encoder (line and band)"] if board.untrained else []
        grey += [f"the baseline{'s' * (len(baselines) > 1)} {listing(baselines)} (dotted)"] if baselines else []
        level = f" In grey: {listing(grey)}." if grey else ""
        return Figure(
            wide, narrow, f"{_marks_note(board)}; {BARS_NOTE}{f'; {arm_styles.CUT_NOTE}' if cut else ''}.{level}"
        )


def drawing(frames: Frames) -> Drawing:
    """Return what all figures of an experiment share."""
    runs = frames.rows("runs")
    looks = arm_styles.styles(run["arm"] for run in runs if run["role"] != UNTRAINED)
    return Drawing(frames, looks, {run["run_id"]: i for i, run in enumerate(runs)})


def _marks_note(board: Board) -> str:
    """Return the part of a caption on what marks are; with many runs, they do not link to the table of runs."""
    return POINTS_NOTE if len(board.run_scores) <= strips.MOST_LINKED else MANY_NOTE


def _main_caption(board: Board) -> list[str]:
    """Return the parts of the caption of scores against compute, on its marks."""
    column, strip = main_axis(board).column, len(board.budgets) > 1
    parts = [_marks_note(board), BARS_NOTE]
    if not strip and arm_styles.crowded(board, column):
        parts = ["Means over pre-training seeds; runs and intervals are in the figure of the next section"]
    if strip:
        parts.append("above, a curve joins the means of separately trained runs at different budgets")
        parts.append("below, each grey block is one budget, with arms side by side, not placed by compute")
    if board.untrained is not None:
        parts.append("the grey line and band are the untrained encoders, which spent nothing")
    if far := arm_styles.off_axis(board):
        parts.append(f"beyond the axis: {listing(far)}")
    if board.label == "GLUE" and column == "flops_paper":
        ours = ", where the others are means" if board.statistic == "mean" else ""
        marks_of_paper = "open marks are the paper’s own results (its tables 1 and 2, listed below)"
        parts.append(f"{marks_of_paper}, medians over fine-tuning seeds{ours}")
    if any(point.family == MEASURED for point in plots.published_points(board, main_axis(board))):
        parts.append("open crosses are published models, measured here, at the FLOPs that their sources state")
    return parts


def has_curve(board: Board) -> bool:
    """Return whether a figure over compute has several amounts to show, of runs or of the paper's models."""
    return bool(board.places) or several_amounts(board)


def several_amounts(board: Board) -> bool:
    """Return whether a figure of the scores at the end of training has several amounts of compute to show."""
    axis = main_axis(board)
    spent = all(cell.spent[axis.column] > 0 for cell in board.cells)
    published = bool(plots.published_points(board, axis))
    return spent and (published or not arm_styles.one_amount(board, axis.column))


def spent_by_all(board: Board) -> str:
    """Return what the arms of the largest budget spent: `all arms at 5.00×10¹² FLOPs (matmul convention)`.

    It is the name of the budget if they did not spend the same.
    """
    axis = main_axis(board)
    if not arm_styles.one_amount(board, axis.column, board.budget):
        return f"at {board.budget}"
    spent = [cell.spent[axis.column] for cell in board.at(board.budget)]
    convention = axis.column.removeprefix("flops_")
    return f"all arms at {axis.say(sum(spent) / len(spent))} ({convention} convention)"


def main_axis(board: Board) -> Axis:
    """Return the axis of training FLOPs under the convention of the board."""
    convention = board.convention()
    return Axis(f"flops_{convention}", f"training FLOPs, {convention} convention")
