"""Jobs of commands, of which nothing is carried out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from workbench.execution.study import Job, job_of
from workbench.spec.experiment import grid
from workbench.spec.run_spec import RunSpec

# Settings that a scale has for some objectives, in place of `presets.OBJECTIVES`.
OBJECTIVES = {"nano": {"rtd": {"optim.lr": 3e-3, "options.weight": 7.0}, "bert-mlm": {"optim.lr": 2e-3}}}


def run_job(name: str, base: RunSpec, words: Sequence[str] = (), match: str | None = None, seeds: int = 1) -> Job:
    """What `workbench run NAME` makes of its words."""
    job = job_of(grid(name, {}, match, base), base, seeds, words)
    return job if job.several_arms else replace(job, experiment=replace(job.experiment, match=None))


def rates(job: Job) -> dict[str, float]:
    return {spec.objective: spec.optim.lr for spec in job.specs}
