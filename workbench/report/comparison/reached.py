"""How far each arm's losses got beyond what token frequencies alone reach, with intervals over training and seeds."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.report.load.frames import Frames
from workbench.report.load.run_files import FINISHED
from workbench.report.statistics.paired_comparison import Estimate, t_interval
from workbench.report.words import listing, seeds
from workbench.spec import collapse
from workbench.spec.collapse import Reach


@dataclass(frozen=True)
class Reached:
    """One metric of one arm at one budget: how far each run got, by run id."""

    arm: str
    budget: str
    metric: str
    runs: dict[str, Reach]

    @property
    def value(self) -> Estimate:
        """The mean over pre-training seeds of the mean over the last tenth of training, with its t interval."""
        return t_interval([reach.value for reach in self.runs.values()])

    @property
    def floor(self) -> float:
        """What token frequencies alone give: the mean over the runs, whose rates of replaced tokens differ a little."""
        return t_interval([reach.floor for reach in self.runs.values()]).mean

    @property
    def flagged(self) -> list[str]:
        """The runs that are no better than that."""
        return [run_id for run_id, reach in self.runs.items() if reach.flagged]

    @property
    def within(self) -> float | None:
        """The widest of the runs' own intervals over the last tenth of training."""
        return max((reach.half for reach in self.runs.values() if reach.half is not None), default=None)

    @property
    def label(self) -> str:
        return collapse.name(self.metric)

    @property
    def verdict(self) -> str:
        """Return what may be said of this metric, for a cell of a table."""
        if not self.flagged:
            return "better"
        return "no better" if len(self.flagged) == len(self.runs) else f"no better in {len(self.flagged)} of them"

    def phrase(self) -> str:
        """Return what a reader must know of the flagged runs."""
        value, among = self.value, len(self.runs)
        half = f" ± {value.half:.3f} over {seeds([among])}" if value.half is not None else ""
        which = "" if len(self.flagged) == among else f", in {len(self.flagged)} of {seeds([among])}"
        return f"{self.label} is {value.mean:.3f}{half} where {self.floor:.3f} takes no order of words{which}"


def reached(frames: Frames) -> list[Reached]:
    """Return every metric that has a floor, for each arm and budget whose training is over.

    A run that is damaged is in no average of scores, but what it logged is looked at.
    """
    found: dict[tuple[str, str, str], dict[str, Reach]] = {}
    for run in frames.rows("runs"):
        if run["state"] not in (*FINISHED, "damaged") or run["run_id"] not in frames.logged:
            continue
        for reach in collapse.reaches(frames.logged[run["run_id"]], frames.floors.get(run["run_id"], {})):
            found.setdefault((run["arm"], run["budget"], reach.metric), {})[run["run_id"]] = reach
    return [Reached(*key, runs) for key, runs in found.items()]


def sentences(frames: Frames) -> list[str]:
    """Return one sentence for each arm and budget with a run that is no better than token frequencies."""
    arms: dict[tuple[str, str], list[str]] = {}
    for each in reached(frames):
        if each.flagged:
            arms.setdefault((each.arm, each.budget), []).append(each.phrase())
    return [
        f"{arm} at {budget} has not left what token frequencies alone reach: {listing(phrases)}."
        for (arm, budget), phrases in arms.items()
    ]
