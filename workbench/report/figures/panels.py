"""Training curves as small panels in groups. All panels have the same x axis, and each is one `svg` element."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.report.comparison.boards import UNTRAINED
from workbench.report.figures import svg
from workbench.report.figures.arm_styles import Style, tick
from workbench.report.load.frames import STRETCH, Frames
from workbench.report.load.training_curves import MOST_BINS, PLACE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METRICS: dict[str, tuple[str, str]] = {
    "generator_loss": ("Generator loss", "nats"),
    "generator_accuracy": ("Generator accuracy", "% of picks"),
    "generator_entropy": ("Generator entropy", "nats"),
    "discriminator_loss": ("Discriminator loss", "nats"),
    "discriminator_accuracy": ("Discriminator accuracy", "%"),
    "discriminator_precision": ("Discriminator precision", "%"),
    "discriminator_recall": ("Discriminator recall", "%"),
    "discriminator_auc": ("Discriminator AUC", ""),
    "discriminator_positive_rate": ("Discriminator predicts \u201creplaced\u201d", "% of tokens"),
    "copy_accuracy": ("Copy-gate accuracy", "%"),
    "copy_precision": ("Copy-gate precision", "%"),
    "copy_recall": ("Copy-gate recall", "%"),
    "copy_auc": ("Copy-gate AUC", ""),
    "copy_positive_rate": ("Copy gate predicts \u201ccopy\u201d", "% of tokens"),
    "copy_loss": ("Copy-gate loss", "nats"),
    "mlm_loss": ("Main model’s MLM loss", "nats"),
    "mlm_accuracy": ("Main model’s MLM accuracy", "%"),
    "lm_loss": ("Language-model loss", "nats"),
    "lm_accuracy": ("Language-model accuracy", "%"),
    "nsp_loss": ("Next-sentence loss", "nats"),
    "nsp_accuracy": ("Next-sentence accuracy", "%"),
    "nsp_auc": ("Next-sentence AUC", ""),
    "nsp_positive_rate": ("Predicted as not following", "% of rows"),
    "nsp_broken_rate": ("Pairs that do not follow", "% of rows"),
    "sop_loss": ("Sentence-order loss", "nats"),
    "sop_accuracy": ("Sentence-order accuracy", "%"),
    "sop_auc": ("Sentence-order AUC", ""),
    "sop_positive_rate": ("Predicted as swapped", "% of rows"),
    "sop_broken_rate": ("Swapped pairs", "% of rows"),
    "mask_rate": ("Picked tokens", "% of tokens"),
    "replaced_rate": ("Replaced tokens", "% of tokens"),
    "learning_rate": ("Learning rate", ""),
    "generator_learning_rate": ("Generator\u2019s learning rate", ""),
    "gradient_norm": ("Gradient norm before clipping", ""),
    "tokens_per_second": ("Throughput", "tokens/s"),
    "device_memory_bytes": ("Device memory", "bytes"),
    "saving_share": ("Time spent saving", "%"),
    "micro_batch": ("Micro-batch", "rows"),
}
MOST_LINES = 100  # runs in a panel; more could not be told apart
Logged = Mapping[str, Sequence[Mapping[str, float]]]  # run id -> the rows of its training curve
STEADY = {"saving_share", "micro_batch"}  # shown only if they change
LOSS_NOTE = (
    "The total loss that was minimised. It is a different sum for each objective, so only seeds within one panel can "
    "be compared, not the panels with each other."
)
HEALTH_NOTE = "Each panel shows all objectives that have the quantity, which can be compared between them."


@dataclass(frozen=True)
class Panel:
    """One panel: the name of the metric or arm, the unit of y ("" if none), and the drawing."""

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


@dataclass(frozen=True)
class Training:
    """All panels of training curves, and a note on what a line is; there are no groups if no run has logged a step."""

    groups: tuple[Group, ...] = ()
    note: str = ""


def training(frames: Frames, budget: str | None, looks: Mapping[str, Style]) -> Training:
    """Return the curves of all runs at a budget, unfinished ones included.

    If `budget` is None, because no run has a score yet, the budget of the last run is used.
    """
    runs = [run for run in frames.rows("runs") if run["role"] != UNTRAINED and run["run_id"] in frames.logged]
    if not runs:
        return Training()
    several = len({run["budget"] for run in runs}) > 1
    budget = runs[-1]["budget"] if budget is None else budget
    runs = [run for run in runs if run["budget"] == budget] or runs
    arms = _drawn({run["run_id"]: run["arm"] for run in runs})
    logged = {run_id: frames.logged[run_id] for run_id in arms}
    groups = [_losses(logged, arms, looks), _others(logged, arms, looks)]
    widest = max(frames.bins.get(run_id, 1) for run_id in arms)
    smooth = f"the mean over up to {widest} steps" if widest > 1 else "the value of one step"
    note = (
        f"The x axis is training tokens. Each line is a run at {runs[0]['budget']}, and each point {smooth} (at most "
        f"{MOST_BINS} points for each run, no other smoothing).{' Other budgets are in the file.' if several else ''}"
    )
    if len(arms) < len(runs):
        note += f" Of {len(runs):,} runs, {len(arms):,} are drawn, evenly chosen from each arm; all are in the file."
    return Training(tuple(group for group in groups if group.panels), note)


def _drawn(arms: Mapping[str, str]) -> dict[str, str]:
    """Return at most about MOST_LINES of the runs in `arms`, run id -> arm: evenly chosen ones of each arm."""
    runs_of: dict[str, list[str]] = {}
    for run_id, arm in arms.items():
        runs_of.setdefault(arm, []).append(run_id)
    if len(arms) <= MOST_LINES:
        return dict(arms)
    most = max(1, MOST_LINES // len(runs_of))
    chosen = {run_id for runs in runs_of.values() for run_id in runs[:: math.ceil(len(runs) / most)]}
    return {run_id: arm for run_id, arm in arms.items() if run_id in chosen}


def _losses(logged: Logged, arms: Mapping[str, str], looks: Mapping[str, Style]) -> Group:
    """Return a panel of the total loss for each arm; `arms` maps run ids to arms."""
    end, drawn = _reach(logged), []
    has_losses = any("loss" in row for rows in logged.values() for row in rows)
    for i, arm in enumerate(_in_order(arms, looks) if has_losses else ()):
        runs_of_arm = {run_id: arm for run_id, its_arm in arms.items() if its_arm == arm}
        drawn.append(Panel(arm, "", _panel(logged, "loss", runs_of_arm, looks, end, f"l{i}")))
    return Group("Loss", LOSS_NOTE, tuple(drawn))


def _others(logged: Logged, arms: Mapping[str, str], looks: Mapping[str, Style]) -> Group:
    """Return a panel for every other metric, with the runs of all arms; `arms` maps run ids to arms."""
    end, drawn = _reach(logged), []
    for i, metric in enumerate(_metrics(logged)):
        title, unit = METRICS.get(metric, (metric.replace("_", " "), ""))
        drawn.append(Panel(title, unit, _panel(logged, metric, arms, looks, end, f"h{i}")))
    return Group("Generator, discriminator and the rest", HEALTH_NOTE, tuple(drawn), tuple(_in_order(arms, looks)))


def _in_order(arms: Mapping[str, str], looks: Mapping[str, Style]) -> list[str]:
    """Return the arms of these runs, in the order of the legend."""
    present = set(arms.values())
    return [arm for arm in looks if arm in present]


def _metrics(logged: Logged) -> list[str]:
    """Return the metrics besides the loss that any of these runs logged: those of METRICS first, in its order."""
    aside = {*STRETCH, *PLACE, "loss"}
    names = {str(name) for rows in logged.values() for row in rows for name in row}
    steady = {m for m in STEADY if len({row.get(m) for rows in logged.values() for row in rows if m in row}) < 2}
    shown = {name for name in names if name not in aside | steady and not name.startswith("flops.")}
    return [m for m in METRICS if m in shown] + sorted(m for m in shown if m not in METRICS)


def _reach(logged: Logged) -> float:
    """Return the training tokens at the last logged row of any of these runs."""
    return max(_place(rows[-1]) for rows in logged.values())


def _place(stretch: Mapping[str, float]) -> float:
    """Return the tokens of a row of a training curve, or its steps if the log has no tokens."""
    return stretch.get("tokens", stretch["step"])


def _panel(
    logged: Logged,
    metric: str,
    arms: Mapping[str, str],
    looks: Mapping[str, Style],
    end: float,
    name: str,
) -> str:
    """Return a panel of one metric over training tokens up to `end`, with a line for each run (see `training_curves`).

    `arms` maps run ids to arms.
    """
    percent = metric.endswith(("_accuracy", "_precision", "_recall", "mask_rate", "replaced_rate", "positive_rate"))
    with svg.drawing(name, 11):
        figure = svg.figure(300, 190, layout=None)
        ax = figure.add_axes((0.185, 0.12, 0.8, 0.84))  # the same for all, so that the panels are aligned
        for run_id, arm in arms.items():
            line = [(_place(row), row[metric]) for row in logged[run_id] if metric in row]
            if not line:
                continue
            look, every = looks[arm], max(1, len(line) // 4)  # a few markers, at different positions for each arm
            first = min(len(line) - 1, round(every * (look.index % 5 + 0.5) / 5))
            ax.plot(
                [x for x, _ in line],
                [y * (100 if percent else 1) for _, y in line],
                color=look.colour, lw=1.1, alpha=0.8, marker=look.marker, ms=4.5, mew=0, markevery=(first, every),
            )  # fmt: skip
        _plain_ticks(ax)
        ax.set_xlim(0, end * 1.02)
        ax.grid(axis="y")
        ax.set_axisbelow(True)
        return svg.write(figure, name, f"{metric} over training tokens")


def _plain_ticks(ax: Axes) -> None:
    """Set a few ticks on both axes, with readable labels."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for axis, most in ((ax.xaxis, 4), (ax.yaxis, 5)):
        axis.set_major_locator(MaxNLocator(most))
        axis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
