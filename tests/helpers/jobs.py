"""Jobs of commands, of which nothing is carried out."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.execution.study import Job, job_of, one_arm_as_given
from workbench.spec.experiment import grid
from workbench.spec.run_spec import RunSpec

# Settings that a scale has for some objectives, in place of `presets.OBJECTIVES`.
OBJECTIVES = {"nano": {"rtd": {"optim.lr": 3e-3, "options.weight": 7.0}, "bert-mlm": {"optim.lr": 2e-3}}}


def run_job(name: str, base: RunSpec, words: Sequence[str] = (), match: str | None = None, seeds: int = 1) -> Job:
    """What `workbench run NAME` makes of its words."""
    return one_arm_as_given(job_of(grid(name, {}, match, base), base, seeds, words))


def rates(job: Job) -> dict[str, float]:
    return {spec.objective: spec.optim.lr for spec in job.specs}
