"""From words to specs: which runs a command asks for, and how much each of them may spend."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from workbench import objectives
from workbench.data.prepare import Prepared, bind
from workbench.errors import InputError, suggest
from workbench.progress import counted
from workbench.spec import contrasts, presets
from workbench.spec.contrasts import Contrast
from workbench.spec.experiment import EQUAL_WITHIN, Experiment
from workbench.spec.parts import Budget
from workbench.spec.run_spec import RunSpec, value_at
from workbench.spec.stages import BoundRun, ResolvedSpec
from workbench.spec.words_seen import MOST_EPOCHS
from workbench.training.plan import Plan, amount_in, plan

log = logging.getLogger("workbench")
Priced = tuple[ResolvedSpec, Plan]


@dataclass(frozen=True)
class Job:
    """What a command asks for, before any data is read: `specs` are the runs, `base` is what they have in common.

    `declared` are the contrasts whose two arms are among these runs, `left_out` the others.
    """

    experiment: Experiment
    base: RunSpec
    specs: tuple[ResolvedSpec, ...]
    declared: tuple[Declared, ...] = ()
    left_out: tuple[str, ...] = ()

    def warn(self) -> None:
        """Name the contrasts that are left out on stderr, once the command is known to be one that can be done."""
        if self.left_out:
            log.warning(
                "%s declares %d contrasts that are not compared, since an arm of each is not among these runs: %s",
                self.experiment.name, len(self.left_out), "; ".join(self.left_out),
            )  # fmt: skip

    @cached_property
    def _plans(self) -> tuple[list[Priced], list[Match]]:
        specs, matches = equal(self.experiment, self.specs)
        try:
            return [(spec, plan(spec)) for spec in counted(specs, "planning runs")], matches
        except InputError as error:
            if all(match.unit in match.given for match in matches):
                raise
            raise InputError(f"{error} ({'; '.join(match.sentence() for match in matches)})") from None


def plans(job: Job) -> tuple[list[Priced], list[Match]]:
    """Return every run's plan, and the amounts they share: made once for a job. Nothing is read or written.

    Raises InputError.
    """
    return job._plans


@dataclass(frozen=True)
class Declared:
    """One contrast and the names of the specs that it compares, seed by seed, as they are before data is bound."""

    contrast: Contrast
    runs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Match:
    """One equal amount: what `reference`, the first cell, spends in the budget `given` is `amount` of `unit` for all.

    FLOPs are counted under `convention`.
    """

    unit: str
    amount: float
    convention: str
    given: str
    reference: str

    def sentence(self) -> str:
        unit = f"FLOPs ({self.convention} convention)" if self.unit == "flops" else self.unit
        return f"every run gets {self.amount:.6g} {unit}, which {self.reference} spends in {self.given}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def job_of(
    found: Experiment, base: RunSpec, seeds: int, words: Sequence[str], given: Collection[str] = ()
) -> Job:  # fmt: skip
    """The runs of an experiment; `words` take the place of the values on its objective axis. Raises InputError.

    `given` are the keys that were set for all runs, in which an objective's own preset has no say.
    """
    names = [objectives.find(each) for each in words]
    if len({name for name, _ in names}) < len(names):
        raise InputError(f"--objective names {', '.join(name for name, _ in names)}: each may be given once")
    variants = [one for one in found.variants if not names or one.get("objective") in (None, *dict(names))]
    if not names:
        names = [objectives.find(str(each)) for each in found.axes.get("objective", (base.objective,))]
    chosen = {"objective": [name for name, _ in names]}
    declared = _with_typed(found, [name for name, _ in names])
    found = replace(
        found, axes={**found.axes, **chosen} if found.axes else chosen, variants=variants, contrasts=declared
    )
    sources = dict(names) | dict(objectives.find(str(one["objective"])) for one in variants if "objective" in one)
    specs = [spec.replace(source=sources[spec.objective]) for spec in found.runs(base, seeds)]
    keys = {*given, *found.axes, *(key for variant in found.variants for key in variant)}
    runs = list(_with_presets(specs, keys))
    return Job(found, base, distinct(runs), *_declared(found, runs))


def _with_typed(found: Experiment, names: Sequence[str]) -> tuple[Contrast, ...]:
    """Return the contrasts of an experiment that compares these objectives.

    Where contrasts name objectives, one that the experiment's file does not have is compared with every other.
    """
    declared = [Contrast(_by_name(each.a), _by_name(each.b), each.label) for each in found.contrasts]
    if not any("objective" in side for each in declared for side in (each.a, each.b)):
        return tuple(declared)
    own = {_by_name({"objective": value})["objective"] for value in found.axes.get("objective", ())}
    for place, name in enumerate(names):
        others = [other for other in names[:place] if name not in own or other not in own]
        declared += [Contrast({"objective": name}, {"objective": other}) for other in others]
    return tuple(declared)


def _by_name(arm: contrasts.Cell) -> contrasts.Cell:
    """Return the arm with an objective that is given as a file called by the name that its runs have."""
    word = str(arm.get("objective", ""))
    return {**arm, "objective": objectives.find(word)[0]} if word.endswith(".py") else arm


def _declared(found: Experiment, runs: Sequence[ResolvedSpec]) -> tuple[tuple[Declared, ...], tuple[str, ...]]:
    """Return the contrasts with their runs, and those left out since an arm of them is not among the runs.

    `runs` come seed by seed in the order of the cells. Raises InputError where both arms of a contrast are one run.
    """
    cells, kept, missing = list(found.cells()), [], []
    for contrast in found.contrasts:
        pairs = list(contrasts.expand(contrast, cells, found.axes))
        missing += [] if pairs else [str(contrast)]
        for one, two in pairs:
            ids = [(runs[i + one].name, runs[i + two].name) for i in range(0, len(runs), len(cells))]
            if any(a == b for a, b in ids):
                raise InputError(f"{found.name} compares {contrast}, which are the same runs under these settings")
            kept.append(Declared(_whole(found, contrast, cells[one], cells[two]), tuple(ids)))
    return tuple(kept), tuple(missing)


def _whole(found: Experiment, contrast: Contrast, one: contrasts.Cell, two: contrasts.Cell) -> Contrast:
    """Return the contrast with the values of further axes that both of its arms have."""
    varying = {key for key, values in found.axes.items() if len(values) > 1}
    a, b = (
        {key: value for key, value in cell.items() if key in side or key in varying}
        for cell, side in ((one, contrast.a), (two, contrast.b))
    )
    return Contrast(a, b, contrast.label)


def _with_presets(specs: list[RunSpec], given: Collection[str]) -> Iterator[ResolvedSpec]:
    """Each with what its objective's preset says, and with those options alone that its objective has.

    `--set options.copy_loss=1` is meant for the objective that knows it.
    """
    known = known_options(specs, [key for spec in specs for key in spec.options])
    for spec in specs:
        row = presets.of_objective(spec, {*given, *(f"options.{key}" for key in spec.options)})
        arm = spec.changed(row) if row else spec
        mine = {key: value for key, value in arm.options.items() if key in known[spec.objective]}
        yield objectives.with_options(arm.replace(options=mine))


def known_options(specs: Sequence[RunSpec], given: Iterable[str]) -> dict[str, set[str]]:
    """Return the names of every objective's options. Raises InputError if a `given` name belongs to none of them."""
    known = {spec.objective: set(objectives.load(spec).Options.model_fields) for spec in specs}
    for key in dict.fromkeys(given):
        if not any(key in fields for fields in known.values()):
            every = sorted({f"options.{field}" for fields in known.values() for field in fields})
            raise InputError(f"unknown key 'options.{key}': no objective of this command has it{suggest(key, every)}")
    return known


def distinct(specs: Iterable[ResolvedSpec]) -> tuple[ResolvedSpec, ...]:
    """Each run once: two cells may differ in words only, as in the width of a generator that has no weights."""
    return tuple({spec.name: spec for spec in specs}.values())


def distinct_runs(runs: Iterable[BoundRun]) -> list[BoundRun]:
    """Return each run once, in their order."""
    return list({run.run_id: run for run in runs}.values())


def one_arm_as_given(job: Job) -> Job:
    """Return the job, without a match where all its runs are seeds of one arm: its budget stays in the unit given."""
    arms = {spec.replace(seed=0).name for spec in job.specs}
    return job if len(arms) > 1 else replace(job, experiment=replace(job.experiment, match=None))


def check_epochs(priced: Iterable[Priced], most: float | None) -> None:
    """Raise InputError where a run would see its text more than `most` times.

    Where no limit is given, more epochs than BabyLM allows its entries are said.
    """
    spec, found = max(priced, key=lambda each: each[1].epochs or 0)
    if found.epochs is None or found.epochs <= (MOST_EPOCHS if most is None else most):
        return
    seen = (
        f"{spec.objective} sees the {spec.data.words:,} words of {', '.join(spec.data.corpus)} {found.epochs:.4g} times"
    )
    if most is not None:
        raise InputError(f"{seen}, more than --most-epochs {most:g}; lower the budget, or give more text")
    log.warning(
        "%s; an entry to BabyLM's challenge may do so %d times (--most-epochs 10 refuses more)", seen, MOST_EPOCHS
    )


def flops_ratio(priced: Iterable[Priced]) -> float | None:
    """Return the largest FLOPs of an arm over the smallest at one budget, under the convention of the budget.

    None where no two arms have one budget, and where their FLOPs are not known yet, as with budgets in seconds.
    """
    levels: dict[Budget, dict[str, float]] = {}
    for spec, found in priced:
        arm = spec.replace(seed=0).name
        levels.setdefault(spec.budget, {})[arm] = float(found.flops[spec.budget.convention])
    several = [tuple(spent.values()) for spent in levels.values() if len(spent) > 1]
    if not several or any(min(spent) <= 0 for spent in several):
        return None
    return max(max(spent) / min(spent) for spent in several)


def is_equal(ratio: float | None) -> bool:
    """Return whether arms with this ratio of FLOPs may be called equal in compute."""
    return ratio is not None and ratio <= 1 + EQUAL_WITHIN


def equal(found: Experiment, specs: Sequence[ResolvedSpec]) -> tuple[list[ResolvedSpec], list[Match]]:
    """The specs with their budgets in the unit that the experiment matches. Raises InputError.

    Of the runs with one budget the first is the reference: what it spends, all of them get. No steps stay no steps.
    """
    if found.match is None:
        return list(specs), []
    levels: dict[Budget, Match] = {}
    for spec in specs:
        if spec.budget not in levels and spec.budget.steps != 0:
            levels[spec.budget] = _match(found, spec, found.match)
    # A run's own budget stays as it is where it is in this unit already.
    return [
        spec.replace(budget=_budget(levels[spec.budget]))
        if spec.budget.unit != found.match and spec.budget in levels
        else spec
        for spec in specs
    ], list(levels.values())


def bound_runs(
    found: Experiment, specs: Sequence[ResolvedSpec], prepared: Prepared
) -> tuple[dict[str, BoundRun], list[Match]]:
    """Return the run of each spec, by the name of the spec, and the amounts that the runs share. Raises InputError.

    Specs that differ in nothing but what the text decides, such as the size of a vocabulary, have one run.
    """
    own = {spec.name: bind(spec, prepared) for spec in specs}
    apart = {spec.name: spec for spec in own.values()}
    matched, matches = equal(found, list(apart.values()))
    runs = dict(zip(apart, map(BoundRun, matched), strict=True))
    return {name: runs[spec.name] for name, spec in own.items()}, matches


def _match(found: Experiment, spec: ResolvedSpec, unit: str) -> Match:
    given = spec.budget
    reference = ", ".join(f"{key}={_word(value_at(spec, key))}" for key in found.axis.split(","))
    amount = given.amount
    if unit != given.unit:
        if "seconds" in (unit, given.unit):
            raise InputError(
                f"a budget in {given.unit} cannot be matched in {unit}: how many steps a second holds is only known "
                f"once the runs are timed; give --budget {unit}=... or --match {given.unit}"
            )
        amount = _spent(spec, unit)
    return Match(unit, amount, given.convention, f"{given.unit}={given.amount:g}", reference)


def _spent(spec: ResolvedSpec, unit: str) -> float:
    """What a run spends, so that the same amount as a budget gives it the same number of steps."""
    own = plan(spec)
    if unit == "steps":
        return own.steps
    amount = float(amount_in(unit, spec, own.tokens, own.flops))
    # A float may have been rounded down. A larger amount does not help: a parent that gets its share of the budget in
    # another unit may leave fewer steps, however the amount is rounded.
    same = plan(spec.replace(budget={unit: amount, "convention": spec.budget.convention})).steps >= own.steps
    return amount if same else math.nextafter(amount, math.inf)


def _budget(match: Match) -> dict[str, Any]:
    amount = int(match.amount) if match.unit == "steps" else match.amount
    return {match.unit: amount, "convention": match.convention}


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def plan_rows(priced: Sequence[Priced]) -> list[dict[str, Any]]:
    """One row a run, as the table and --json show it."""
    return [
        {
            "objective": spec.objective, "seed": spec.seed, "steps": plan.steps, "tokens": plan.tokens,
            "words": plan.words, "epochs": plan.epochs,
            "warmup_steps": plan.warmup_steps, "flops": plan.flops, "parameters": plan.parameters,
            "memory_bytes": plan.memory_bytes,
        }
        for spec, plan in priced
    ]  # fmt: skip
