"""The plan of a study as text: a table for each measure, with a row for each number of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.cli.terminal import table
from workbench.errors import plural
from workbench.execution.run_list import Job
from workbench.execution.study_plan import Design, Noise, arms_and_family
from workbench.progress import clock
from workbench.report.statistics.paired_comparison import SHARE_IN_WORDS


def as_text(job: Job, noise: Sequence[Noise], designs: Sequence[Sequence[Design]]) -> str:
    """Return a table for each measure, with an explanation of its columns."""
    arms, _ = arms_and_family(job)
    contrasts = "; ".join(str(declared.contrast) for declared in job.declared)
    lines = [
        f"{arms} arms; "
        + (f"declared: {contrasts}" if contrasts else "no comparison is declared, so every two arms are compared"),
        "gap is the true difference, in points, that a design shows with a probability of 0.8 if all arms have the "
        "same noise; FLOPs and time are those of pre-training, without fine-tuning",
    ]
    for one, rows in zip(noise, designs, strict=True):
        lines += ["", str(one), table([_row(design, job.base.budget.convention) for design in rows]), *_moved(rows)]
    added = "'gap, auto' and the columns after it are for --seeds auto, with --most-seeds as in the column seeds"
    return "\n".join([*lines, "", added])


def _moved(designs: Sequence[Design]) -> list[str]:
    """Return the line on what another kind of arithmetic moves, for the fewest and the most seeds."""
    ends = dict.fromkeys(design for design in (designs[0], designs[-1]) if design.moved is not None)
    if not ends:
        return []
    amounts = " and ".join(f"{design.moved:.2f} points with {plural(design.seeds, 'seed')}" for design in ends)
    return [
        f"repeating the study with the same seeds on another kind of arithmetic, such as another processor, moves each "
        f"arm's mean by about {amounts} (one standard deviation; {SHARE_IN_WORDS}); the gaps contain this noise"
    ]


def _row(design: Design, convention: str) -> dict[str, Any]:
    row = {
        "seeds": design.seeds, f"FLOPs ({convention})": f"{design.flops:.3g}", "time": clock(design.seconds),
        "gap": _points(design.gap),
    }  # fmt: skip
    if design.added_gap is None or design.mean_seeds is None or design.mean_seconds is None:
        return row | dict.fromkeys(("gap, auto", "mean seeds", "mean time", "mean seeds if equal"), "-")
    return row | {
        "gap, auto": _points(design.added_gap), "mean seeds": f"{design.mean_seeds:.1f}",
        "mean time": clock(design.mean_seconds), "mean seeds if equal": f"{design.idle_seeds:.1f}",
    }  # fmt: skip


def _points(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"
