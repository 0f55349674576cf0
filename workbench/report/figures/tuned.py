"""The figure of the tuning budget: the best score so far of each objective, over the number of its trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.report.figures import svg
from workbench.report.figures.arm_styles import KNOWN, Style, score_axis, styles
from workbench.report.formatting import points, short
from workbench.report.load.frames import Frames
from workbench.report.load.naming import arm_name
from workbench.report.load.run_files import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Trial = tuple[int, float, Mapping[str, Any]]  # its number from 1, its score, and the values that it tried


def trials(frames: Frames) -> dict[str, list[Trial]]:
    """Return the trials of each objective in order, from the record; trials without a score are left out."""
    trials_of: dict[str, list[Trial]] = {}
    for entry in frames.record.get("tuning") or ():
        if not isinstance(entry, Mapping):
            continue
        arm_trials = trials_of.setdefault(arm_name(entry.get("objective")), [])
        score, place, values = number(entry.get("score")), number(entry.get("trial")), entry.get("values")
        if score == score and place == place:
            arm_trials.append((int(place) + 1, score, values if isinstance(values, Mapping) else {}))
    return {arm: sorted(arm_trials, key=lambda t: t[0]) for arm, arm_trials in trials_of.items() if arm_trials}


def rows(frames: Frames) -> list[dict[str, Any]]:
    """Return a row for each objective: number of trials, best score, the trial that reached it, and its values."""
    table = []
    for arm, arm_trials in trials(frames).items():
        place, score, values = max(arm_trials, key=lambda t: t[1])
        table.append({"arm": arm, "trials": len(arm_trials), "best": score, "at": place, "values": _listed(values)})
    return table


def _listed(values: Mapping[str, Any]) -> str:
    """Return the values of a trial as text, such as `optim.lr=0.00123, tying=none`."""
    return ", ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in values.items())


def figure(frames: Frames, size: tuple[int, int], name: str) -> str:
    """Return the figure of best scores over trials, with a step line for each objective; "" without any trial."""
    trials_of = trials(frames)
    if not trials_of:
        return ""
    from matplotlib.ticker import MaxNLocator

    looks = styles([*(arm for arm in KNOWN if arm in trials_of), *trials_of])
    with svg.drawing(name, 13):
        picture = svg.figure(*size)
        ax = picture.subplots()
        tips: dict[str, tuple[str, str]] = {}
        for arm, arm_trials in trials_of.items():
            _arm(ax, arm, arm_trials, looks[arm], tips)
        ax.set_xlim(0.5, max(arm_trials[-1][0] for arm_trials in trials_of.values()) + 0.5)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel("tuning budget spent, in trials")
        score_axis(ax, "best score so far")
        handles, names = [looks[arm].handle() for arm in trials_of], [short(arm) for arm in trials_of]
        ax.legend(handles, names, frameon=False, fontsize=11)
        return svg.write(picture, name, "best score so far over the number of trials, by objective", tips)


def _arm(ax: Axes, arm: str, arm_trials: list[Trial], look: Style, tips: dict[str, tuple[str, str]]) -> None:
    """Draw the trials of an objective as marks, and the best score so far as a step line."""
    best = [max(score for _, score, _ in arm_trials[: i + 1]) for i in range(len(arm_trials))]
    ax.step([t for t, _, _ in arm_trials], best, where="post", color=look.colour, ls=look.dashes, lw=2, zorder=3)
    for place, score, values in arm_trials:
        gid = f"tip-{len(tips)}"
        tips[gid] = (f"{arm}, trial {place}: {points(score)}\n{_listed(values)}", "")
        ax.plot(place, score, look.marker, ms=5, color=look.colour, alpha=0.6, mew=0, gid=gid, zorder=4)
