"""Curves of training as small panels that share their axis along x. Each is one `svg` element."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from workbench.report.figures import svg
from workbench.report.figures.marks import Style, tick
from workbench.report.load.frames import Frames

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def reach(frames: Frames, run_ids: Iterable[str]) -> float:
    """How far along training the last logged stretch of any of these runs lies, in tokens."""
    return max(_place(frames.logged[run_id][-1]) for run_id in run_ids)


def _place(stretch: Mapping[str, float]) -> float:
    """Tokens, or steps should a log lack them."""
    return stretch.get("tokens", stretch["step"])


def panel(
    frames: Frames,
    metric: str,
    runs: Iterable[tuple[str, str]],
    looks: Mapping[str, Style],
    end: float,
    name: str,
) -> str:
    """One metric over training tokens up to `end`, a line per run, in bins (see `training_curves`).

    `runs` are run ids and their arms.
    """
    percent = metric.endswith(("_accuracy", "_precision", "_recall", "mask_rate", "replaced_rate", "positive_rate"))
    with svg.drawing(name, 11):
        figure = svg.figure(300, 190, layout=None)
        ax = figure.add_axes((0.185, 0.12, 0.8, 0.84))  # the same for all, so that panels stand in line
        for run_id, arm in runs:
            logged = [(_place(row), row[metric]) for row in frames.logged[run_id] if metric in row]
            if not logged:
                continue
            look, every = looks[arm], max(1, len(logged) // 4)  # a few markers, at other places for every arm
            first = min(len(logged) - 1, round(every * (look.index % 5 + 0.5) / 5))
            ax.plot(
                [x for x, _ in logged],
                [y * (100 if percent else 1) for _, y in logged],
                color=look.colour, lw=1.1, alpha=0.8, marker=look.marker, ms=4.5, mew=0, markevery=(first, every),
            )  # fmt: skip
        _plain_ticks(ax)
        ax.set_xlim(0, end * 1.02)
        ax.grid(axis="y")
        ax.set_axisbelow(True)
        return svg.write(figure, name, f"{metric} over training tokens")


def _plain_ticks(ax: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for axis, most in ((ax.xaxis, 4), (ax.yaxis, 5)):
        axis.set_major_locator(MaxNLocator(most))
        axis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
