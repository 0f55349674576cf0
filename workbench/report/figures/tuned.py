"""Score over the tuning budget: what each objective's best trial so far had reached after so many trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.report.figures import svg
from workbench.report.figures.marks import KNOWN, Style, score_axis, styles
from workbench.report.load.frames import Frames
from workbench.report.load.naming import arm_name
from workbench.report.load.run_files import number
from workbench.report.words import points, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Trial = tuple[int, float, Mapping[str, Any]]  # its number from 1, its score, the values it tried


def trials(frames: Frames) -> dict[str, list[Trial]]:
    """Objective -> its trials in order, as the record lists them; those without a score are left out."""
    found: dict[str, list[Trial]] = {}
    for entry in frames.record.get("tuning") or ():
        if not isinstance(entry, Mapping):
            continue
        mine = found.setdefault(arm_name(entry.get("objective")), [])
        score, place, values = number(entry.get("score")), number(entry.get("trial")), entry.get("values")
        if score == score and place == place:
            mine.append((int(place) + 1, score, values if isinstance(values, Mapping) else {}))
    return {arm: sorted(mine, key=lambda t: t[0]) for arm, mine in found.items() if mine}


def rows(frames: Frames) -> list[dict[str, Any]]:
    """For a table: objective, trials, best score, the trial it was found at, and the values chosen."""
    made = []
    for arm, found in trials(frames).items():
        place, score, values = max(found, key=lambda t: t[1])
        chosen = ", ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in values.items())
        made.append({"arm": arm, "trials": len(found), "best": score, "at": place, "values": chosen})
    return made


def figure(frames: Frames, size: tuple[int, int], name: str) -> str:
    """The best score so far over the number of trials, a step line for each objective; "" without any trial."""
    found = trials(frames)
    if not found:
        return ""
    from matplotlib.ticker import MaxNLocator

    looks = styles([*(arm for arm in KNOWN if arm in found), *found])
    with svg.drawing(name, 13):
        made = svg.figure(*size)
        ax = made.subplots()
        tips: dict[str, tuple[str, str]] = {}
        for arm, mine in found.items():
            _arm(ax, arm, mine, looks[arm], tips)
        ax.set_xlim(0.5, max(mine[-1][0] for mine in found.values()) + 0.5)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel("tuning budget spent, in trials")
        score_axis(ax, "best score so far")
        ax.legend([looks[arm].handle() for arm in found], [short(arm) for arm in found], frameon=False, fontsize=11)
        return svg.write(made, name, "best score so far over the number of trials, by objective", tips)


def _arm(ax: Axes, arm: str, mine: list[Trial], look: Style, tips: dict[str, tuple[str, str]]) -> None:
    best = [max(score for _, score, _ in mine[: i + 1]) for i in range(len(mine))]
    ax.step([t for t, _, _ in mine], best, where="post", color=look.colour, ls=look.dashes, lw=2, zorder=3)
    for place, score, values in mine:
        gid = f"tip-{len(tips)}"
        said = ", ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in values.items())
        tips[gid] = (f"{arm}, trial {place}: {points(score)}\n{said}", "")
        ax.plot(place, score, look.marker, ms=5, color=look.colour, alpha=0.6, mew=0, gid=gid, zorder=4)
