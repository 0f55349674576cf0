"""What a study measured, as one typed structure that the page, the CSV files, LaTeX and Python share."""

from __future__ import annotations

import math
import statistics as plain
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from workbench.report.formatting import clean, listing
from workbench.report.load.arm_names import UNTRAINED, person_name
from workbench.report.load.run_files import FINISHED
from workbench.report.load.study_tables import AMOUNTS, Frames
from workbench.report.statistics.group_sequential import NOTHING, Families, Family, Look
from workbench.report.statistics.intervals import Estimate, ItemInterval, t_interval
from workbench.report.statistics.paired_comparison import Compared, own_noises
from workbench.report.statistics.power import Noise, family_of, needed_seeds
from workbench.spec.experiment import EQUAL_WITHIN, question_text
from workbench.spec.parts import Budget
from workbench.spec.scoring import OWN_SCORERS, Column, Point

Scorers = frozenset[tuple[str, str]]  # tasks and the names of the scorers that an arm had on them
SPENT = (*AMOUNTS, "finetune_seconds")
NO_BUDGET = "none"


@dataclass(frozen=True)
class Cell:
    """One arm at one budget, or the untrained encoders: scores by pre-training seed, and mean spending.

    A cell may also be one point of training; `mark` is then its name in the schedule, "end" for the end of training.
    """

    arm: str
    budget: str
    scores: Mapping[int, float]
    runs: tuple[str, ...]
    spent: Mapping[str, float]
    gain: Compared | None = None  # with the untrained encoder of the same seed; the family is the arms at the budget
    mark: str = ""

    @property
    def estimate(self) -> Estimate:
        """The mean over pre-training seeds with its interval."""
        return t_interval([self.scores[s] for s in sorted(self.scores)])


@dataclass(frozen=True)
class Pair:
    """Two arms at one budget, the better first, corrected for the declared pairs at that budget, or for all."""

    a: str
    b: str
    compared: Compared


@dataclass(frozen=True)
class Leaderboard:
    """All results of one suite. `budgets` stand in order of compute; answer and first table are about the last.

    `missing` maps runs without a score to the counted tasks that they lack; `finetunings` are the different numbers
    of fine-tuning seeds that stand behind a run's task.
    """

    suite: str
    label: str
    tasks: tuple[str, ...]
    metrics: Mapping[str, str]
    budgets: tuple[str, ...]
    cells: tuple[Cell, ...]
    untrained: Cell | None
    pairs: Mapping[str, tuple[Pair, ...]]
    task_cells: tuple[TaskCell, ...]
    noise: Mapping[str, tuple[Noise, ...]]
    baselines: Mapping[str, Mapping[str, float]]  # name -> task -> value
    run_scores: Mapping[str, float]
    missing: Mapping[str, tuple[str, ...]]
    finetunings: tuple[int, ...]
    published: Column | None
    conventions: Mapping[str, str] = field(default_factory=dict)  # budget -> how its runs' FLOPs are counted
    families: Families = field(default_factory=dict)  # budget -> the comparisons declared beforehand
    labels: Labels = field(default_factory=dict)
    points: tuple[Cell, ...] = ()  # scores along training, where runs were measured before their end
    measured: tuple[Point, ...] = ()  # published models, with their mean over the counted tasks
    statistic: str = "mean"  # over the fine-tuning seeds of a run: mean or median (tasks.statistic)
    looks: tuple[Look, ...] = ()  # interim looks with --seeds auto: declared comparisons at the largest budget
    # budget -> two arms -> the interval of their difference over new seeds and new test items, if items were stored
    items: Mapping[str, Mapping[frozenset[str], ItemInterval]] = field(default_factory=dict)
    scorers: Mapping[str, Scorers] = field(default_factory=dict)  # arm -> task and scorer, where arms have their own
    beside: Mapping[str, Mapping[str, Estimate]] = field(default_factory=dict)  # arm -> further scorer, largest budget
    other_inputs: bool = False  # whether arms differ in the corruption that their objectives, and so scorers, learn on

    def alike(self, *arms: str) -> bool:
        """Return whether this measure treats these arms alike; without arguments, all arms at the largest budget.

        A measure by the arms' own scorers does so only if every task was scored by one and the same scorer, if that
        scorer is recorded, and if it was trained on the same corruption: the detector of RTD calls other sentences
        original after training with another generator.
        """
        if self.suite not in OWN_SCORERS:
            return True
        if self.other_inputs:
            return False
        each = [self.scorers.get(arm, frozenset()) for arm in arms or [cell.arm for cell in self.at(self.budget)]]
        tasks = [task for task, _ in each[0]] if each else []
        return len(set(each)) == 1 and len(set(tasks)) == len(tasks) > 0 and all(name for _, name in each[0])

    @property
    def budget(self) -> str:
        return self.budgets[-1]

    @property
    def family(self) -> Family:
        """The comparisons that were declared beforehand at the largest budget; without pairs if there are none."""
        return self.families.get(self.budget, NOTHING)

    def convention(self, budget: str | None = None) -> str:
        """Return the FLOP convention of a budget, by default of the largest one, from the specs of its runs."""
        return self.conventions.get(budget or self.budget, "paper")

    @property
    def arms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(c.arm for c in self.cells))

    def at(self, budget: str) -> list[Cell]:
        """Return the arms at a budget, best first."""
        return sorted((c for c in self.cells if c.budget == budget), key=lambda c: -c.estimate.mean)

    def baseline(self, name: str) -> float | None:
        """Return the mean of a baseline over the counted tasks; None if one of them lacks it."""
        values = self.baselines.get(name, {})
        return plain.fmean(values[t] for t in self.tasks) if all(t in values for t in self.tasks) else None


@dataclass(frozen=True)
class TaskCell:
    """The result of one arm at one budget on one task.

    `median` and `best` are taken over the fine-tuning seeds of a run, and averaged over the runs.
    """

    task: str
    metric: str
    arm: str
    budget: str
    estimate: Estimate
    median: float
    best: float
    finetunings: int
    gain: Compared | None  # with the untrained encoder of the same seed; the family is the arms at the budget
    runs: tuple[str, ...]


Labels = Mapping[frozenset[str], str]  # two arms -> the label of their comparison in the experiment file

# take: ahead of all others by a measure that treats all alike. higher: the same by a measure with own scorers.
# doubted: ahead, but not of words alone or of its own untrained encoder. disagree: another measure that treats all
# alike shows an arm ahead of it. undecided: not ahead of all others. exploratory: the measure was named after scores of
# the runs were known. alone: no second arm to compare it with.
Kind = Literal["take", "higher", "doubted", "disagree", "undecided", "exploratory", "alone"]


@dataclass(frozen=True)
class Verdict:
    """What one measure says of the arms at the largest budget, and its sentence of at most 30 words.

    `best` is the arm with the highest mean, `score` its mean, and `rivals` are all arms that `best` is not shown ahead
    of. `next` is the nearest of the rivals, or the second best arm if there are none. `difference` is `best` minus
    `next` in points, with its interval from `low` to `high`, which are None without an interval. `detectable` is the
    smallest true gap that this comparison shows four times in five, `needed_seeds` how many seeds would show a gap as
    large as `difference`, and `more_seconds` the time of the further seeds, by the time of the runs so far. `scorers`
    names the scorer of each arm if arms have their own. `names` are the arms as people say them.
    """

    kind: Kind
    suite: str
    measure: str
    budget: str
    alike: bool
    best: str
    score: float
    seeds: int
    names: Mapping[str, str]
    next: str = ""
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    items: int | None = None  # test items whose results are kept, with the interval if they are drawn again as well
    low_items: float | None = None
    high_items: float | None = None
    rivals: tuple[str, ...] = ()
    detectable: float | None = None
    needed_seeds: int | None = None
    more_seconds: float | None = None
    same_compute: bool = True
    absent: tuple[str, ...] = ()  # arms of the study without scores at this budget
    scorers: Mapping[str, str] = field(default_factory=dict)
    sentence: str = ""

    def __str__(self) -> str:
        return self.sentence

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return asdict(self)


def spending_ratios(board: Leaderboard, budget: str, convention: str | None = None) -> dict[str, float]:
    """Return the FLOPs of each arm at a budget over the smallest, the best arm first; empty if that is zero."""
    column = f"flops_{convention or board.convention(budget)}"
    spent = {cell.arm: cell.spent[column] for cell in board.at(budget)}
    least = min(spent.values(), default=0.0)
    return {arm: amount / least for arm, amount in spent.items()} if least > 0 else {}


def largest_flops_ratios(frames: Frames) -> dict[str, float]:
    """Return the largest mean FLOPs of an arm's finished runs over the smallest, for each budget with several arms."""
    flops_of: dict[str, dict[str, list[float]]] = {}
    for run in frames.rows("runs"):
        if run["role"] == "arm" and run["state"] in FINISHED:
            spent = float(run[f"flops_{run['convention']}"])
            flops_of.setdefault(run["budget"], {}).setdefault(run["arm"], []).append(spent)
    means = {budget: [plain.fmean(spent) for spent in arms.values()] for budget, arms in flops_of.items()}
    return {b: max(m) / min(m) if min(m) > 0 else math.inf for b, m in means.items() if len(m) > 1}


def compute_text(frames: Frames) -> str:
    """Return a clause on how much the FLOPs of the arms differ, and under which convention; "" for a single arm."""
    worst = max(largest_flops_ratios(frames).values(), default=None)
    if worst is None:
        return ""
    arms = [run for run in frames.rows("runs") if run["role"] == "arm" and run["state"] in FINISHED]
    conventions = listing(sorted({str(run["convention"]) for run in arms}))
    if worst > 1 + EQUAL_WITHIN:
        return f"not equal: FLOPs ({conventions}) of one arm are up to {worst:.2f} times those of another"
    return f"equal: the arms\u2019 FLOPs ({conventions}) differ by less than {100 * (worst - 1) + 0.05:.1f} %"


def seeds_to_decide(board: Leaderboard, budget: str, pair: Pair) -> int | None:
    """Return about how many seeds would show a gap of the measured size; None if unknown, or planned."""
    e, noise, family = pair.compared.estimate, pair.compared.noise, board.families.get(budget, NOTHING)
    if family.plan is not None or e.n < 2 or e.half is None or not noise:
        return None
    arms = {cell.arm: cell.scores for cell in board.at(budget)}
    own = own_noises(arms).get(frozenset((pair.a, pair.b)))
    return needed_seeds(e.mean, noise, len(arms), family_of(list(arms), family.pairs), own)


@dataclass(frozen=True)
class ReportOptions:
    """The options of a report, as the user set them.

    `order` adds the almost stochastic order to every comparison. `budget` is the amount of compute for which the
    report recommends an arm. With `verify`, the files of every run are compared with their hashes before they are
    read.
    """

    order: bool = False
    budget: Budget | None = None
    verify: bool = True

    def budget_under(self, convention: str) -> Budget | None:
        """Return the budget, with its FLOPs under the report's convention unless it names one itself."""
        if self.budget is None or "convention" in self.budget.model_fields_set:
            return self.budget
        return Budget.model_validate({self.budget.unit: self.budget.amount, "convention": convention})


@dataclass(frozen=True)
class Results:
    """What a study measured (`frames`), and the comparisons made of it (`boards`, one for each measure).

    The first of the `verdicts` decides. `missing` maps each unavailable task to the reason. `left_out` names what the
    data files of a report do not hold, and `kept` are the bytes of these files, which are copied as they are.
    """

    frames: Frames
    boards: tuple[Leaderboard, ...]
    verdicts: tuple[Verdict, ...]
    missing: Mapping[str, str] = field(default_factory=dict)
    options: ReportOptions = field(default_factory=ReportOptions)
    left_out: tuple[str, ...] = ()
    kept: Mapping[str, bytes] = field(default_factory=dict)

    @cached_property
    def by_verdict(self) -> tuple[Leaderboard, ...]:
        """Return the boards in the order of the verdicts, the measure that decides first."""
        by_suite = {board.suite: board for board in self.boards}
        return tuple(by_suite[verdict.suite] for verdict in self.verdicts)

    @cached_property
    def question(self) -> str:
        """The question, with "at equal compute" only if the arms spent the same, else with the unit that was equal."""
        ratios, text = largest_flops_ratios(self.frames), str(self.frames.record.get("question") or "")
        apart = [budget for budget, ratio in ratios.items() if not ratio <= 1 + EQUAL_WITHIN]
        wording = question_text(text, bool(ratios) and not apart)
        if apart:
            rounding = ", in whole steps" if any("FLOPs" in budget for budget in apart) else ""
            return f"{wording} (not at equal compute: every run got {listing(apart)}{rounding})"
        runs = [run for run in self.frames.rows("runs") if run["role"] == "arm" and run["state"] in FINISHED]
        if not ratios and len({run["arm"] for run in runs}) > 1:
            return f"{wording} (not at equal compute: no two arms had one budget)"
        return wording

    @cached_property
    def titles(self) -> Mapping[str, str]:
        """Return the name of each arm that people say; two arms never share one."""
        arms = dict.fromkeys(str(row["arm"]) for row in self.frames.rows("runs"))
        titles = {arm: clean(person_name(self.frames.axis, arm)) for arm in arms}
        titles |= {UNTRAINED: "Untrained encoders"} if UNTRAINED in titles else {}
        counts = list(titles.values())
        return {arm: title if counts.count(title) == 1 else clean(arm) for arm, title in titles.items()}

    @cached_property
    def arms(self) -> tuple[str, ...]:
        """Return the arms in the order of the study: of its record, or by value on a numeric axis, words last."""
        names = dict.fromkeys(str(row["arm"]) for row in self.frames.rows("runs") if row["role"] == "arm")
        if not self.ordered:
            return tuple(names)
        return tuple(sorted(names, key=lambda arm: math.inf if (value := axis_value(arm)) is None else value))

    @cached_property
    def ordered(self) -> bool:
        """Return whether the axis has an order: all arms are numbers, but for generators without a size."""
        if self.frames.axis == "objective":
            return False
        names = {str(row["arm"]) for row in self.frames.rows("runs") if row["role"] == "arm"}
        return sum(axis_value(arm) is not None for arm in names) >= max(2, len(names) / 2)


def axis_value(arm: str) -> float | None:
    """Return the place of an arm on a numeric axis; None for a word."""
    try:
        return float(arm.split(",")[0])
    except ValueError:
        return None
