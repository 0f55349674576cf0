"""How far the losses of each arm fell below what token frequencies alone reach, with intervals over seeds."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.report.formatting import listing, seeds
from workbench.report.load.frames import Frames
from workbench.report.load.run_files import FINISHED
from workbench.report.statistics.paired_comparison import Estimate, t_interval
from workbench.spec import loss_floors
from workbench.spec.loss_floors import FloorCheck


@dataclass(frozen=True)
class Reached:
    """One metric of one arm at one budget: the result of each run, by run id."""

    arm: str
    budget: str
    metric: str
    runs: dict[str, FloorCheck]

    @property
    def value(self) -> Estimate:
        """Return the mean over seeds of the mean over the last tenth of training, with its t interval."""
        return t_interval([check.value for check in self.runs.values()])

    @property
    def floor(self) -> float:
        """Return the value that token frequencies alone reach, the mean over runs.

        It differs a little between runs, because their rates of replaced tokens do.
        """
        return t_interval([check.floor for check in self.runs.values()]).mean

    @property
    def flagged(self) -> list[str]:
        """Return the runs that are no better than token frequencies alone."""
        return [run_id for run_id, check in self.runs.items() if check.flagged]

    @property
    def slight(self) -> str:
        """Return the clause on a gain that is too small to count; "" if some flagged run has no gain at all."""
        flagged = [self.runs[run_id] for run_id in self.flagged]
        return flagged[0].too_little if flagged and all(check.slight for check in flagged) else ""

    @property
    def within(self) -> float | None:
        """Return the widest of the runs' own intervals (half the width) over the last tenth of training."""
        return max((check.half for check in self.runs.values() if check.half is not None), default=None)

    @property
    def label(self) -> str:
        """Return the name of the metric in words."""
        return loss_floors.name(self.metric)

    @property
    def verdict(self) -> str:
        """Return the result for this metric, as the cell of a table."""
        if not self.flagged:
            return "better"
        better = "hardly better" if self.slight else "no better"
        return better if len(self.flagged) == len(self.runs) else f"{better} in {len(self.flagged)} of them"

    def phrase(self) -> str:
        """Return the warning about the flagged runs, as a clause."""
        value, among = self.value, len(self.runs)
        half = f" ± {value.half:.3f} over {seeds([among])}" if value.half is not None else ""
        better = "hardly better" if self.slight else "no better"
        some = "" if len(self.flagged) == among else f"{better} in {len(self.flagged)} of {seeds([among])}"
        notes = "; ".join(note for note in (some, self.slight) if note)
        return (
            f"{self.label} is {value.mean:.3f}{half}, and token frequencies alone give {self.floor:.3f}"
            f"{f' ({notes})' if notes else ''}"
        )


def reached(frames: Frames) -> list[Reached]:
    """Return every metric with a floor, for each arm and budget whose training is over.

    A damaged run enters no average of scores, but its logged metrics are used here.
    """
    groups: dict[tuple[str, str, str], dict[str, FloorCheck]] = {}
    for run in frames.rows("runs"):
        if run["state"] not in (*FINISHED, "damaged") or run["run_id"] not in frames.logged:
            continue
        for check in loss_floors.floor_checks(frames.logged[run["run_id"]], frames.floors.get(run["run_id"], {})):
            groups.setdefault((run["arm"], run["budget"], check.metric), {})[run["run_id"]] = check
    return [Reached(*key, runs) for key, runs in groups.items()]


def sentences(frames: Frames) -> list[str]:
    """Return a sentence for each arm and budget with a run that is no better than token frequencies alone."""
    arms: dict[tuple[str, str], list[Reached]] = {}
    for each in reached(frames):
        if each.flagged:
            arms.setdefault((each.arm, each.budget), []).append(each)
    return [_sentence(arm, budget, flagged) for (arm, budget), flagged in arms.items()]


def _sentence(arm: str, budget: str, flagged: list[Reached]) -> str:
    """Return the sentence on the flagged metrics of one arm; an arm with a metric that all runs miss is named whole."""
    better = "hardly" if all(each.slight for each in flagged) else "no"
    some = "" if any(len(each.flagged) == len(each.runs) for each in flagged) else " in some seeds"
    phrases = listing([each.phrase() for each in flagged])
    return f"{arm} at {budget} is{some} {better} better than token frequencies alone: {phrases}."
