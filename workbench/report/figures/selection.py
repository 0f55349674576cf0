"""Which figures a page has, what is said beneath them, and the key to their marks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from workbench.report.comparison.boards import UNTRAINED, Board
from workbench.report.figures import along_axis, during_training, marks, panels, plots, scaling, strips
from workbench.report.figures.marks import Axis, Style
from workbench.report.load.frames import STRETCH, Frames
from workbench.report.load.training_curves import MOST_BINS, PLACE
from workbench.report.words import listing
from workbench.spec.parts import CONVENTIONS

METRICS: dict[str, tuple[str, str]] = {
    "generator_loss": ("Generator loss", "nats"),
    "generator_accuracy": ("Generator accuracy", "% of picks"),
    "generator_entropy": ("Generator entropy", "nats"),
    "discriminator_loss": ("Discriminator loss", "nats"),
    "discriminator_accuracy": ("Discriminator accuracy", "%"),
    "discriminator_precision": ("Discriminator precision", "%"),
    "discriminator_recall": ("Discriminator recall", "%"),
    "discriminator_auc": ("Discriminator AUC", ""),
    "discriminator_positive_rate": ("Discriminator says \u201creplaced\u201d", "% of tokens"),
    "copy_accuracy": ("Copy-gate accuracy", "%"),
    "copy_precision": ("Copy-gate precision", "%"),
    "copy_recall": ("Copy-gate recall", "%"),
    "copy_auc": ("Copy-gate AUC", ""),
    "copy_positive_rate": ("Copy gate says \u201ccopy\u201d", "% of tokens"),
    "copy_loss": ("Copy-gate loss", "nats"),
    "mlm_loss": ("Main model’s MLM loss", "nats"),
    "mlm_accuracy": ("Main model’s MLM accuracy", "%"),
    "mask_rate": ("Picked", "% of tokens"),
    "replaced_rate": ("Replaced", "% of tokens"),
    "learning_rate": ("Learning rate", ""),
    "generator_learning_rate": ("Generator\u2019s learning rate", ""),
    "gradient_norm": ("Gradient norm before the clip", ""),
    "tokens_per_second": ("Throughput", "tokens/s"),
    "device_memory_bytes": ("Device memory", "bytes"),
    "saving_share": ("Time spent saving", "%"),
    "micro_batch": ("Micro-batch", "rows"),
}
STEADY = {"saving_share", "micro_batch"}  # shown only where they moved
WIDE, HALF, NARROW = (920, 440), (470, 360), (380, 380)  # CSS pixels
POINTS_NOTE = "Small marks are runs and lead to their row below; large ones are means over pre-training seeds"
EXTENSION_NOTE = (
    "Marks are means over pre-training seeds with 95 % t intervals, the faint lines the other arms. On grey, up to ten "
    "times the largest budget, a band runs from staying level to the straight line over log compute through the last "
    "three budgets, with a 95 % interval around both: any curve that goes on rising ever more slowly lies in it. "
    "No ceiling is fitted, because which law the scores follow is not known."
)
BARS_NOTE = "bars are 95 % t intervals"


@dataclass(frozen=True)
class Figure:
    """One figure in the page; `narrow` is the same for a phone, "" where one does for both."""

    wide: str
    narrow: str
    caption: str
    legend: tuple[str, ...] = ()


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str
    svg: str


@dataclass(frozen=True)
class Group:
    """Panels of training curves under one heading."""

    title: str
    note: str
    panels: tuple[Panel, ...]
    legend: tuple[str, ...] = ()


@dataclass
class Drawn:
    """All figures of a page. `rows` maps run ids to their row in the table of runs."""

    frames: Frames
    boards: list[Board]
    rows: Mapping[str, int]
    keys: dict[str, str] = field(init=False)
    along: list[list[Figure]] = field(init=False)
    compute: list[list[Figure]] = field(init=False)
    extensions: list[list[tuple[str, str]]] = field(init=False)
    others: list[list[Figure]] = field(init=False)
    sides: list[Figure] = field(init=False)
    curves: list[Group] = field(init=False)
    curves_note: str = field(init=False)

    def __post_init__(self) -> None:
        runs = self.frames.rows("runs")
        self.looks = marks.styles(run["arm"] for run in runs if run["role"] != UNTRAINED)
        self.keys = {arm: look.swatch() for arm, look in self.looks.items()}
        self.along = [self._along(board, f"a{i}") for i, board in enumerate(self.boards)]
        self.compute = [self._main_figures(board, f"c{i}") for i, board in enumerate(self.boards)]
        self.extensions = [
            scaling.panels(board, self.looks, main_axis(board), f"p{i}") for i, board in enumerate(self.boards)
        ]
        self.others = [self._others(board, f"o{i}") for i, board in enumerate(self.boards)]
        self.sides = [self._side(board, f"b{i}") for i, board in enumerate(self.boards)]
        self.curves, self.curves_note = training(self.frames, self.boards, self.looks)

    def _along(self, board: Board, name: str) -> list[Figure]:
        """Score over the axis of a sweep, where that is a number."""
        wide, said = along_axis.along(board, self.frames, self.rows, WIDE, f"{name}w")
        narrow, _ = along_axis.along(board, self.frames, self.rows, NARROW, f"{name}n")
        caption = f"{'; '.join([POINTS_NOTE, BARS_NOTE, *said])}."
        return [Figure(wide, narrow, caption)] if wide else []

    def _main_figures(self, board: Board, name: str) -> list[Figure]:
        """Scores along training where runs were measured before their end, and scores of ends against compute."""
        if not board.places:
            return [self._main(board, name)]
        ends = [self._main(board, name)] if len(board.budgets) > 1 else []
        return [self._during(board, f"d{name}"), *ends]

    def _during(self, board: Board, name: str) -> Figure:
        """Scores along training, a line per arm."""
        axis = main_axis(board)
        wide, remarks = during_training.draw(board, self.frames, self.looks, axis, self.rows, WIDE, f"{name}w")
        narrow, _ = during_training.draw(board, self.frames, self.looks, axis, self.rows, NARROW, f"{name}n")
        if board.untrained is not None:
            remarks.append("The grey line and band are the untrained encoders, which spent nothing")
        arms = tuple(arm for arm in self.looks if arm in board.arms)
        return Figure(wide, narrow, f"{'. '.join(remarks)}.", arms)

    def _main(self, board: Board, name: str) -> Figure:
        """Score against compute, or arms side by side where compute does not differ."""
        axis = main_axis(board)
        if not several_amounts(board):
            return self._side(board, name)
        strip = len(board.budgets) > 1
        wide, remarks = plots.against(board, self.frames, self.looks, axis, self.rows, WIDE, f"{name}w", strip)
        narrow, _ = plots.against(board, self.frames, self.looks, axis, self.rows, NARROW, f"{name}n", strip)
        said = [POINTS_NOTE, BARS_NOTE]
        if not strip and marks.crowded(board, axis.column):
            said = ["Means over pre-training seeds; runs and intervals are in the rows of the next section"]
        if strip:
            said.append("above, a curve joins the means of separately trained runs at different budgets")
            said.append("below, each grey block is one budget, in which arms stand side by side and not by compute")
        if board.untrained is not None:
            said.append("the grey line and band are the untrained encoders, which spent nothing")
        if far := marks.off_axis(board):
            said.append(f"not on the axis: {listing(far)}")
        if board.label == "GLUE" and axis.column == "flops_paper":
            said.append("open marks are the paper’s own results (its tables 1 and 2, listed below)")
        caption = ". ".join(["; ".join(said), *remarks]) + "."
        return Figure(wide, narrow, caption, tuple(a for a in self.looks if a in board.arms))

    def _others(self, board: Board, name: str) -> list[Figure]:
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
        return made

    def _side(self, board: Board, name: str) -> Figure:
        at = spent_by_all(board)
        wide, cut = strips.side_by_side(board, self.looks, self.rows, at, True, f"{name}w")
        narrow, _ = strips.side_by_side(board, self.looks, self.rows, at, False, f"{name}n")
        baselines = [n for n in marks.levels(board) if n != UNTRAINED]
        grey = ["the untrained encoder (line and band)"] if board.untrained else []
        grey += [f"the baselines {listing(baselines)} (dotted)"] if baselines else []
        level = f" Grey: {listing(grey)}." if grey else ""
        return Figure(wide, narrow, f"{POINTS_NOTE}; {BARS_NOTE}{f'; {marks.CUT_NOTE}' if cut else ''}.{level}")


def pictures(frames: Frames, boards: Iterable[Board]) -> list[str]:
    """The main figure of each suite with its legend inside."""
    looks = marks.styles(run["arm"] for run in frames.rows("runs") if run["role"] != UNTRAINED)
    rows = dict.fromkeys(frames.settings, 0)
    return [_picture(board, frames, looks, rows) for board in boards]


def _picture(board: Board, frames: Frames, looks: Mapping[str, Style], rows: Mapping[str, int]) -> str:
    if board.places:
        return during_training.draw(board, frames, looks, main_axis(board), rows, WIDE, "picture", legend=True)[0]
    if not has_curve(board):
        return strips.side_by_side(board, looks, rows, spent_by_all(board), True, "picture")[0]
    strip = len(board.budgets) > 1
    return plots.against(board, frames, looks, main_axis(board), rows, WIDE, "picture", strip, legend=True)[0]


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


def training(frames: Frames, boards: Iterable[Board], looks: Mapping[str, Style]) -> tuple[list[Group], str]:
    """Curves of every run at the largest budget that logged anything, unfinished ones too."""
    runs = [run for run in frames.rows("runs") if run["role"] != UNTRAINED and run["run_id"] in frames.logged]
    if not runs:
        return [], ""
    budget = next((b.budget for b in boards), runs[-1]["budget"])
    several = len({run["budget"] for run in runs}) > 1
    runs = [run for run in runs if run["budget"] == budget] or runs
    pairs = [(run["run_id"], run["arm"]) for run in runs]
    arms = [arm for arm in looks if arm in {arm for _, arm in pairs}]
    end = panels.reach(frames, [run_id for run_id, _ in pairs])
    groups = []
    if "loss" in frames.curves:
        mine = [[pair for pair in pairs if pair[1] == arm] for arm in arms]
        loss = [panels.panel(frames, "loss", some, looks, end, f"l{i}") for i, some in enumerate(mine)]
        groups.append(Group("Loss", LOSS_NOTE, tuple(Panel(arm, "", one) for arm, one in zip(arms, loss, strict=True))))
    rest = []
    for i, metric in enumerate(metrics(frames, [run_id for run_id, _ in pairs])):
        title, unit = METRICS.get(metric, (metric.replace("_", " "), ""))
        rest.append(Panel(title, unit, panels.panel(frames, metric, pairs, looks, end, f"h{i}")))
    if rest:
        groups.append(Group("Generator, discriminator and the rest", HEALTH_NOTE, tuple(rest), tuple(arms)))
    widest = max(frames.bins.get(run_id, 1) for run_id, _ in pairs)
    smooth = f"the mean over up to {widest} steps" if widest > 1 else "one step, unsmoothed"
    note = (
        f"Along x: training tokens. Each line is a run at {runs[0]['budget']}; each point of it is {smooth} (at most "
        f"{MOST_BINS} points a run, no other smoothing).{' Other budgets are in the file.' if several else ''}"
    )
    return groups, note


LOSS_NOTE = (
    "The total that was minimised. It is a different sum for each objective, so the panels can't be compared with each "
    "other, only seeds within one."
)
HEALTH_NOTE = "All objectives in one panel, where they have the quantity. These can be compared."


def metrics(frames: Frames, run_ids: Iterable[str]) -> list[str]:
    """What any of these runs logged, the known ones first, in their order."""
    aside = {*STRETCH, *PLACE, "loss"}
    ids = list(run_ids)
    found = {str(name) for run_id in ids for row in frames.logged[run_id] for name in row}
    steady = {m for m in STEADY if len({row.get(m) for r in ids for row in frames.logged[r] if m in row}) < 2}
    logged = {name for name in found if name not in aside | steady and not name.startswith("flops.")}
    return [m for m in METRICS if m in logged] + sorted(m for m in logged if m not in METRICS)
