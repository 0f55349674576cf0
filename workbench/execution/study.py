"""Runs of a command: the spec of each, the budget that it may spend, and the contrasts that are declared."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

from workbench import objectives, tasks
from workbench.data import sources
from workbench.data.prepare import Prepared, bind
from workbench.errors import InputError, plural, suggest
from workbench.models import families
from workbench.progress import counted
from workbench.registry import is_path
from workbench.spec import presets
from workbench.spec.experiment import EQUAL_WITHIN, Cell, Contrast, Experiment, expand
from workbench.spec.parts import Budget, EncoderSpec
from workbench.spec.run_spec import RunSpec, parse_part, value_at
from workbench.spec.stages import BoundRun, ResolvedSpec
from workbench.store.redact import refuse_secrets_in
from workbench.training.plan import Plan, amount_in, plan, sized, spending

log = logging.getLogger("workbench")
Priced = tuple[ResolvedSpec, Plan]
NEXT = "linear:next"  # the task of the default ones that every objective can do
MOST_EPOCHS = 10  # allowed in the BabyLM challenge


class Searched(NamedTuple):
    """How many runs a search trains for each arm, of which its plan shows one."""

    trials: int
    seeds: int  # of each trial
    reported: int  # seeds of the best settings, which are trained afterwards; 0 if the trials are what is reported

    @property
    def runs(self) -> int:
        """The runs of an arm, trials and reported ones."""
        return self.trials * self.seeds + self.reported


@dataclass(frozen=True)
class Job:
    """The work of a command before any data is read: `specs` are the runs, `base` has the settings of all of them.

    `declared` are the contrasts whose two arms are both among these runs, `left_out` are the other contrasts. `merged`
    are the cells that are the same model as an earlier one, each with the name of its run. A search trains several
    runs in place of each of `specs`.
    """

    experiment: Experiment
    base: RunSpec
    specs: tuple[ResolvedSpec, ...]
    declared: tuple[Declared, ...] = ()
    left_out: tuple[str, ...] = ()
    merged: tuple[tuple[dict[str, Any], str], ...] = ()
    searched: Searched | None = None
    planned: dict[str, BoundRun] = field(default_factory=dict, compare=False, repr=False)  # by the names of their specs

    @property
    def several_arms(self) -> bool:
        """Whether there are runs of one seed, which are of different arms."""
        return len(self.specs) > 1 and self.specs[0].seed == self.specs[1].seed

    def warn(self) -> None:
        """Log the contrasts that are left out, unless the command has a single arm."""
        if self.left_out and self.several_arms:
            log.warning(
                "%s: %s %s not compared, since these runs lack an arm of each: %s", self.experiment.name,
                plural(len(self.left_out), "declared contrast"), "is" if len(self.left_out) == 1 else "are",
                "; ".join(self.left_out),
            )  # fmt: skip

    @cached_property
    def priced(self) -> tuple[list[Priced], list[Match]]:
        """Every run with its matched budget and its plan, and the amounts that all runs get. Raises InputError."""
        specs, matches = equal(self.experiment, self.specs)
        priced = list[Priced]()
        try:
            for spec in counted(specs, "planning runs"):
                priced.append((spec, sized(spec, spending(spec))))
        except InputError as error:
            if all(match.unit in match.given for match in matches):
                raise
            raise InputError(f"{error} ({'; '.join(match.sentence() for match in matches)})") from None
        return priced, matches


@dataclass(frozen=True)
class Declared:
    """One contrast, and for each seed the names of the two specs that it compares, before data is bound to them."""

    contrast: Contrast
    runs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Match:
    """An amount that every run of a budget spends: `amount` in `unit`, with FLOPs counted under `convention`.

    `given` is the budget of the command, and `reference` is the first cell, which spends this amount within it.
    """

    unit: str
    amount: float
    convention: str
    given: str
    reference: str

    def sentence(self) -> str:
        """Return the amount and its origin in one sentence, for plans and reports."""
        unit = f"FLOPs ({self.convention} convention)" if self.unit == "flops" else self.unit
        amount = f"every run gets {self.amount:.6g} {unit}"
        is_given = self.given.partition("=")[0] == self.unit
        return amount if is_given else f"{amount}, which {self.reference} spends in {self.given}"


def job_of(
    experiment: Experiment, base: RunSpec, seeds: int, words: Sequence[str], given: Collection[str] = (),
    at_scale: Callable[[str], RunSpec] = presets.resolve,
) -> Job:  # fmt: skip
    """Return the job of an experiment. `words` name objectives, and replace the values of its objective axis.

    `given` are the keys that were set for all runs, which the presets of objectives do not change. `at_scale` returns
    the base spec of a scale, for an experiment over scales. Raises InputError.
    """
    refuse_secrets_in([experiment.axes, *experiment.variants], f"experiment {experiment.name}:")
    experiment, base, of_families = _with_families(experiment, base)
    names, sources, variants = list[str](), dict[str, str](), list[Mapping[str, Any]]()
    for each in words or experiment.axes.get("objective", (base.objective,)):
        name, sources[name] = objectives.find(str(each))
        names.append(name)
    if words and len(sources) < len(names):
        raise InputError(f"--objective names {', '.join(names)}: give each objective once")
    for variant in experiment.variants:
        if not words or variant.get("objective") in (None, *names):
            variants.append(variant)
            if "objective" in variant:
                sources |= [objectives.find(str(variant["objective"]))]
    axes = {**experiment.axes, "objective": names}
    experiment = replace(experiment, axes=axes, variants=variants, contrasts=_with_typed(experiment, names))
    specs, given_options = list[RunSpec](), dict[str, Any]()
    for spec in experiment.runs(base, seeds, at_scale):
        given_options |= spec.options
        source = of_families.get(spec.encoder.family, spec.encoder.source)
        encoder = spec.encoder.model_copy(update={"source": source})
        specs.append(spec.model_copy(update={"source": sources[spec.objective], "encoder": encoder}))
    known = known_options(specs, given_options)
    runs, cells = list[ResolvedSpec](), list(experiment.cells())
    for spec, cell in zip(specs, cells * seeds, strict=True):
        # Without the options that only other objectives have: `--set options.copy_loss=1` changes those that have it.
        preset = presets.of_objective(spec, {*given, *cell})
        arm = spec.changed(preset) if preset else spec
        options = dict(arm.options)
        for key in options.keys() - known[spec.objective]:
            del options[key]
        runs.append(objectives.with_options(arm.model_copy(update={"options": options})))
    if "tasks.names" not in given and (names := _that_score_nothing(runs)):
        log.warning("%s has no score(ids, attention) for pairs, so the tasks are %s alone", ", ".join(names), NEXT)
        alone = {"tasks.names": (NEXT,)}
        base, runs = base.changed(alone), [spec.changed(alone) for spec in runs]
    merged = list[tuple[dict[str, Any], str]]()
    if len(cells) > len(names):
        from workbench.execution.equal_models import first_of_each, varied

        first = first_of_each(experiment, cells, runs[: len(cells)])
        for cell, same in zip(cells, first, strict=True):
            if cell != cells[same]:
                merged.append((varied(experiment, cell), runs[same].name))
        runs = [runs[start + place] for start in range(0, len(runs), len(cells)) for place in first]
    run_names = [*map(attrgetter("name"), runs)]
    distinct = dict(zip(run_names, runs, strict=True))
    return Job(experiment, base, tuple(distinct.values()), *_declared(experiment, run_names), tuple(merged))


def _that_score_nothing(specs: Sequence[RunSpec]) -> list[str]:
    """Return the objectives that score no sentences, and so have no result on the default tasks' minimal pairs."""
    classes = {spec.objective: objectives.load(spec).Objective for spec in specs}
    return [name for name, each in classes.items() if not (hasattr(each, "score") or hasattr(each, "scorers"))]


def _with_families(experiment: Experiment, base: RunSpec) -> tuple[Experiment, RunSpec, dict[str, str]]:
    """Return the experiment and the base spec with the names of families in place of files, and the files' hashes."""
    key, axes, named, sources = "encoder.family", dict(experiment.axes), dict[str, str](), dict[str, str]()
    words, variants = [*axes.get(key, ())], list[Mapping[str, Any]]()
    for variant in experiment.variants:
        words += [variant[key]] if key in variant else []
    words = list(dict.fromkeys(map(str, words if base.encoder.source else [*words, base.encoder.family])))
    for word in words:
        encoder = families.resolved(EncoderSpec(family=word))
        if encoder.family in sources:
            raise InputError(f"{key} names {encoder.family} twice, in {', '.join(words)}; rename one of the files")
        named[word], sources[encoder.family] = encoder.family, encoder.source
    if key in axes:
        axes[key] = tuple(named[str(word)] for word in axes[key])
    else:
        base = base.model_copy(update={"encoder": families.resolved(base.encoder)})
    for variant in experiment.variants:
        variants.append({**variant, key: named[str(variant[key])]} if key in variant else variant)
    return replace(experiment, axes=axes, variants=variants), base, sources


def _with_typed(experiment: Experiment, names: Sequence[str]) -> tuple[Contrast, ...]:
    """Return the contrasts of an experiment, and contrasts of each typed objective that its file lacks."""
    declared, of_objectives, own = list[Contrast](), False, set[str]()
    for each in experiment.contrasts:
        declared.append(Contrast(_by_name(each.a), _by_name(each.b), each.label))
        of_objectives |= "objective" in {**each.a, **each.b}
    for value in experiment.axes.get("objective", ()):
        own.add(_by_name({"objective": value})["objective"])
    if of_objectives:
        for place, name in enumerate(names):
            for other in names[:place]:
                if not {name, other} <= own:
                    declared.append(Contrast({"objective": name}, {"objective": other}))
    return tuple(declared)


def _by_name(arm: Cell) -> Cell:
    """Return the arm with the names of objective and encoder, as in run ids, if they are given as files."""
    named = dict(arm)
    for key, plugs in (("objective", objectives.PLUGS), ("encoder.family", families.PLUGS)):
        if is_path(str(arm.get(key, ""))):
            named[key] = plugs.find(str(arm[key]))[0]
    return named


def _declared(experiment: Experiment, run_names: Sequence[str]) -> tuple[tuple[Declared, ...], tuple[str, ...]]:
    """Return the contrasts with runs, and the contrasts without; the names are ordered by seed, then by cell."""
    cells, compared, missing = list(experiment.cells()), [], []
    for contrast in experiment.contrasts:
        pairs = list(expand(contrast, cells, experiment.axes))
        missing += [] if pairs else [str(contrast)]
        for one, two in pairs:
            ids = tuple(zip(run_names[one :: len(cells)], run_names[two :: len(cells)], strict=True))
            if ids[0][0] == ids[0][1]:  # in every seed
                raise InputError(f"{experiment.name} compares {contrast}, which are the same runs under these settings")
            arms: tuple[dict[str, Any], dict[str, Any]] = {}, {}  # with their values on all axes that vary
            for arm, cell, side in ((arms[0], cells[one], contrast.a), (arms[1], cells[two], contrast.b)):
                for key, value in cell.items():
                    if key in side or len(experiment.axes.get(key, ())) > 1:
                        arm[key] = value
            compared.append(Declared(Contrast(*arms, contrast.label), ids))
    return tuple(compared), tuple(missing)


def known_options(specs: Sequence[RunSpec], given: Iterable[str]) -> dict[str, set[str]]:
    """Return the names of each objective's options. Raises InputError if no objective has an option that is `given`."""
    known = dict[str, set[str]]()
    for spec in specs:
        known[spec.objective] = set(objectives.load(spec).Options.model_fields)
    for key in dict.fromkeys(given):
        if not any(key in fields for fields in known.values()):
            every = sorted({f"options.{field}" for fields in known.values() for field in fields})
            what = f"it{suggest(key, every)}" if every else "options"
            raise InputError(f"unknown key 'options.{key}': no objective of this command has {what}")
    return known


def distinct_runs(runs: Iterable[BoundRun]) -> list[BoundRun]:
    """Return each run once, in the order of their first occurrence."""
    by_id = dict[str, BoundRun]()
    for run in runs:
        by_id[run.run_id] = run
    return list(by_id.values())


def check_epochs(job: Job, most: float | None) -> None:
    """Raise InputError if a run reads its text more than `most` times; warn beyond BabyLM's limit if none is given."""
    if not job.base.data.words:
        return
    spec, worst = max(job.priced[0], key=lambda each: each[1].epochs or 0)
    if worst.epochs is None or worst.epochs <= (MOST_EPOCHS if most is None else most):
        return
    seen = (
        f"{spec.objective} sees the {spec.data.words:,} words of {', '.join(spec.data.corpus)} {worst.epochs:.4g} times"
    )
    if most is not None:
        raise InputError(f"{seen}, more than --most-epochs {most:g}; lower the budget, or give more text")
    log.warning(
        "%s; an entry to BabyLM's challenge may do so %d times (--most-epochs 10 refuses more)", seen, MOST_EPOCHS
    )


def flops_ratio(priced: Iterable[Priced]) -> float | None:
    """Return the largest ratio of FLOPs of two arms at one budget; None without two arms or known FLOPs."""
    levels: dict[Budget, dict[str, float]] = {}
    for spec, run_plan in priced:
        levels.setdefault(spec.budget, {})[spec.arm] = float(run_plan.flops[spec.budget.convention])
    compared = [tuple(spent.values()) for spent in levels.values() if len(spent) > 1]
    if not compared or any(min(spent) <= 0 for spent in compared):
        return None
    return max(max(spent) / min(spent) for spent in compared)


def is_equal(ratio: float | None) -> bool:
    """Return whether arms with this ratio of FLOPs may be called equal in compute."""
    return ratio is not None and ratio <= 1 + EQUAL_WITHIN


def equal(experiment: Experiment, specs: Sequence[ResolvedSpec]) -> tuple[list[ResolvedSpec], list[Match]]:
    """Return the specs with their budgets in the unit that the experiment matches, and the amounts. Raises InputError.

    The first of the runs with one budget is the reference: all of them get the amount that it spends. A budget of no
    steps stays as it is.
    """
    if experiment.match is None:
        return list(specs), []
    matched, levels, arms = [], dict[tuple[Budget, str], Match](), dict[tuple[Budget, str], set[str]]()
    for spec in specs:
        # Two scales may have the same number of steps and spend very different amounts on them.
        own_budget = bool(experiment.scales) and spec.budget == presets.budget_of(spec.scale)
        level = spec.budget, spec.scale if own_budget else ""
        if level not in levels and spec.budget.steps != 0:
            levels[level] = _match(experiment, spec, experiment.match)
        if experiment.scales:
            arms.setdefault(level, set()).add(spec.arm)
        convert = level in levels and spec.budget.unit != experiment.match
        matched.append(_with_budget(spec, levels[level]) if convert else spec)
    if not experiment.scales:
        return matched, list(levels.values())
    # Of a scale with a budget of its own and one arm, there is nothing to tell.
    return matched, [match for level, match in levels.items() if len(arms[level]) > 1]


def bound_runs(job: Job, specs: Sequence[ResolvedSpec], prepared: Prepared) -> tuple[dict[str, BoundRun], list[Match]]:
    """Return the planned run of each spec by the spec's name, and the amounts that all runs get. Raises InputError."""
    priced, matches = job.priced
    matched, bound, as_priced = dict[str, ResolvedSpec](), list[ResolvedSpec](), True
    for spec, (with_budget, _) in zip(job.specs, priced, strict=True):
        matched[spec.name] = with_budget
    for spec in specs:
        as_priced = as_priced and spec.name in matched and spec.encoder.vocab == prepared.vocab
    for spec in specs:
        bound.append(bind(matched[spec.name] if as_priced else spec, prepared))
    if not as_priced:  # other sizes, or other runs
        bound, matches = equal(job.experiment, bound)
    runs = dict[str, BoundRun]()
    for spec, with_text in zip(specs, bound, strict=True):
        runs[spec.name] = planned_run(job, with_text)
    return runs, matches


def planned_run(job: Job, spec: ResolvedSpec) -> BoundRun:
    """Return the run of a bound spec with its plan, which is made at the first call for the job."""
    if spec.name not in job.planned:
        job.planned[spec.name] = BoundRun(spec, None if spec.budget.unit == "seconds" else plan(spec))
    return job.planned[spec.name]


def _match(experiment: Experiment, spec: ResolvedSpec, unit: str) -> Match:
    given, reference, amount = spec.budget, [], spec.budget.amount
    for key in experiment.axis.split(","):
        value = value_at(spec, key)
        if value is None and key.startswith("options."):  # which this objective lacks
            continue
        reference.append(f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}")
    if unit != given.unit:
        if "seconds" in (unit, given.unit):
            raise InputError(
                f"a budget in {given.unit} cannot be matched in {unit}: the number of steps per second is only known "
                f"once the runs are timed; give --budget {unit}=... or --match {given.unit}"
            )
        amount = _spent(spec, unit)
    return Match(unit, amount, given.convention, f"{given.unit}={given.amount:g}", ", ".join(reference))


def _spent(spec: ResolvedSpec, unit: str) -> float:
    """Return what a run spends, as an amount that leads to the same number of steps when it is given as a budget."""
    own = spending(spec)
    if unit == "steps":
        return own.steps
    amount = float(amount_in(unit, spec, own.tokens, own.flops))
    # Rounding to a float may have cut the last step: then the next larger float is the amount. It need not help if a
    # parent gets its share of the budget in another unit, whose own rounding may also cost a step.
    same = spending(_with_budget(spec, Match(unit, amount, spec.budget.convention, "", ""))).steps >= own.steps
    return amount if same else math.nextafter(amount, math.inf)


def _with_budget(spec: ResolvedSpec, match: Match) -> ResolvedSpec:
    amount = int(match.amount) if match.unit == "steps" else match.amount
    budget = {match.unit: amount, "convention": match.convention}
    if spec.start is not None:  # the budgets of a run and its parent are checked together
        return spec.replace(budget=budget)
    return spec.model_copy(update={"budget": parse_part(Budget, budget, "budget")})


def plan_rows(priced: Sequence[Priced]) -> list[dict[str, Any]]:
    """Return one row for each run, for tables of plans and for --json."""
    return [
        {
            "objective": spec.objective, "seed": spec.seed, "steps": plan.steps, "tokens": plan.tokens,
            "words": plan.words, "epochs": plan.epochs,
            "warmup_steps": plan.warmup_steps, "flops": plan.flops, "parameters": plan.parameters,
            "memory_bytes": plan.memory_bytes,
        }
        for spec, plan in priced
    ]  # fmt: skip


def stay_local(base: RunSpec, own_process: bool) -> None:
    """Forbid libraries to access the hub if corpus, tokenizer and tasks are all local; called before they are loaded.

    Only a command in its own process may set environment variables. Raises InputError for a corpus that is nowhere.
    """
    if not sources.local(base.data):
        named = tuple(name for name in base.data.corpus if name not in sources.BUILT_IN)  # always local
        if named:
            sources.resolve(base.data.model_copy(update={"corpus": named}))
    elif own_process and (not base.tasks.chosen or tasks.local(base.tasks)):
        os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
