"""Figure of a plan: the published scores over compute, and the compute of the runs that are planned."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.report.figures import plots, svg
from workbench.report.figures.arm_styles import log_range, log_ticks, score_axis, styles
from workbench.report.figures.strips import Tips
from workbench.report.formatting import power, short
from workbench.spec.published import POINTS

SIZE = (920, 520)  # CSS pixels
LABEL = "training FLOPs, paper convention (log scale)"


def figure(flops: Mapping[str, float]) -> str:
    """Return the figure as one `svg` element. `flops` are those of each arm under the paper's convention, above 0.

    Published models are open marks at their mean score on GLUE, as in figure 1 of Clark et al. 2020. An arm has no
    score yet, so it is a line across the figure, with its mark at the lower end.
    """
    tips: Tips = Tips()
    looks = styles(flops)
    with svg.drawing("planned", 13):
        picture = svg.figure(*SIZE)
        ax = picture.subplots()
        ax.set_xscale("log")
        low, high = log_range([*flops.values(), *(point.flops for point in POINTS)])
        ax.set_xlim(low / 2, high)  # names of ELECTRA's points are to their left
        plots.published_marks(ax, POINTS, True, tips)
        bottom, top = ax.get_ylim()
        ax.set_ylim(bottom, top)
        for arm, amount in flops.items():
            look, gid = looks[arm], f"tip-{len(tips)}"
            tips[gid] = (f"{arm}, planned: {power(amount)} FLOPs", "")
            ax.axvline(amount, color=look.colour, ls=look.dashes, lw=1, zorder=1)
            ax.plot(amount, bottom, look.marker, ms=9, color=look.colour, mew=0, gid=gid, zorder=4, clip_on=False)
        ax.legend([looks[arm].handle() for arm in flops], [short(arm) for arm in flops], frameon=False, ncols=5,
                  loc="lower center", bbox_to_anchor=(0.5, 1.0))  # fmt: skip
        log_ticks(ax, low / 2, high, 7)
        ax.set_xlabel(LABEL)
        score_axis(ax, "GLUE")
        label = "published scores on GLUE against training FLOPs, and the training FLOPs of the planned arms"
        return svg.write(picture, "planned", label, tips)
