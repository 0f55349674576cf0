"""An experiment from its job to its report: plan, prepare data, train and fine-tune what is missing, and write.

Every step begins with a look at the run directories, so that a repeated command continues, and any number of workers
share the runs through leases.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

from workbench import objectives, tasks
from workbench.data.corpus import corpus_of
from workbench.data.prepare import Prepared, bind, prepare
from workbench.errors import DAMAGE, DamagedRun, remedy
from workbench.execution import devices, one_run, slurm
from workbench.execution.one_run import Wanted
from workbench.execution.study import Job, bound_runs, distinct_runs, planned_run, stay_local
from workbench.execution.workers import Assignment, share
from workbench.progress import say
from workbench.spec.host import Host
from workbench.spec.parts import Budget
from workbench.spec.run_spec import RunSpec, digest, merge, parse
from workbench.spec.stages import BoundRun, ResolvedSpec
from workbench.store.environment import code_version
from workbench.store.redact import redact_words
from workbench.store.run_directory import now
from workbench.store.run_store import ExperimentRecord, RunDir, RunStore, of_each, refuse_other_report
from workbench.tasks import Suite
from workbench.tasks.common import cost
from workbench.tasks.common.contract import score_digest
from workbench.training.plan import Plan, plan, plan_from_json

log = logging.getLogger("workbench")
SETTLED = ("done", "diverged")  # states of runs that do not change when the command is repeated
# The settings on which the initial weights of an encoder and their scores depend. The batch size changes neither, but
# it has always been part of the names of baselines.
INITIAL = {"encoder", "data", "seed", "scale", "tasks", "batch"}


@dataclass(frozen=True)
class Outcome:
    """The result of a command: the state and the note of each run by its id, and the path of the report."""

    record: str
    runs: dict[str, tuple[str, str]]
    report: Path | None
    store: Path
    verdict: Mapping[str, Any] = field(default_factory=dict)  # of the report, as plain data (`comparison.verdict`)

    @property
    def exit_code(self) -> int:
        """1 if some run is not done, else 0."""
        return int(any(state not in ("done", "trained") for state, _ in self.runs.values()))

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as plain data."""
        rows = [{"run_id": run, "state": state, "note": note} for run, (state, note) in self.runs.items()]
        return {
            "record": self.record, "runs": rows, "store": str(self.store),
            "report": str(self.report) if self.report else None, "verdict": dict(self.verdict),
        }  # fmt: skip

    def summary(self) -> str:
        """Return the outcome as lines for a terminal: counts, runs that are not done, and the report."""
        from workbench.report import verdict_line

        left = {run: row for run, row in self.runs.items() if row[0] not in ("done", "trained")}
        lines = [f"{len(self.runs) - len(left)} of {len(self.runs)} runs are done in {self.store}"]
        lines += [f"  {state}: {run}" + (f": {note}" if note else "") for run, (state, note) in left.items()]
        if doubtful := sum(state == "done" and bool(note) for state, note in self.runs.values()):
            verb = "has a loss that is" if doubtful == 1 else "have losses that are"
            lines.append(f"{doubtful} of them {verb} no better than token frequencies alone give; workbench status "
                         f"--runs {self.store} names them")  # fmt: skip
        lines += [f"verdict: {verdict_line(self.verdict)}"] if self.verdict else []
        return "\n".join([*lines, f"report: {self.report}" if self.report else "no report was written"])


def text_facts(prepared: Prepared) -> dict[str, Any]:
    """Return the counts of the text for plans and records: words, tokens, documents, and words of each source."""
    return {"words": prepared.words, "tokens": prepared.tokens, "documents": prepared.documents,
            "sources": dict(prepared.sources)}  # fmt: skip


def untrained(run: BoundRun) -> BoundRun:
    """Return the baseline of a run: the same encoder with its initial weights, which all objectives of a seed share."""
    # Causal objectives share another one, because sentences are scored there by what comes next, and not by masks.
    settings = merge(run.spec.model_dump(include=INITIAL), dict.fromkeys(("data.pairs", "data.copies")))
    name = "causal-lm" if objectives.is_causal(run.spec) else "bert-mlm"
    return BoundRun(objectives.with_options(parse(settings | {"objective": name, "budget": {"steps": 0}})))


def baselines_of(runs: Iterable[BoundRun]) -> list[BoundRun]:
    """Return the untrained encoders of these runs; runs that differ in their batch alone share one."""
    by_weights = dict[str, BoundRun]()
    for baseline in map(untrained, runs):
        by_weights.setdefault(digest(baseline.spec.identity() | {"batch": None}), baseline)
    return list(by_weights.values())


@dataclass(frozen=True)
class Session:
    """A job with its store, prepared data and tasks, and the host and number of workers that carry it out."""

    job: Job
    store: RunStore
    base: RunSpec
    prepared: Prepared
    suite: Suite
    host: Host
    workers: int

    @cached_property
    def wanted(self) -> Wanted:
        """The scores that every run of the job must have."""
        return Wanted(self.base.tasks, self.suite, self.prepared)

    @cached_property
    def record(self) -> str:
        """The name of the experiment's record in the store."""
        names = [*map(attrgetter("name"), self.suite.tasks), *self.suite.missing]
        return self.job.experiment.record_name(self.base, names)


# Yields blocks: specs that are carried out together, and further fields of the study's record. A study that depends on
# results, such as a search, reads the scores of one block's runs before it yields the next block.
Blocks = Callable[[Session, list[str]], Iterable[tuple[Sequence[ResolvedSpec], dict[str, Any]]]]


def execute(
    job: Job, root: Path, host: Host, workers: int = 1, out: Path | None = None, blocks: Blocks | None = None,
    report: bool = True,
) -> Outcome:  # fmt: skip
    """Carry out a job from its data to its report: its runs and their baselines, all at once or by `blocks`.

    Raises InputError before anything is spent, OSError if the disk fails, and Interrupted on signals.
    """
    _ = job.priced  # a budget or warm-up that cannot be met fails before any data is read
    session = begin(job, root, host, workers)
    page = out or Path("reports") / session.record
    todo: list[str] = []
    for specs, facts in [(job.specs, {})] if blocks is None else blocks(session, todo):
        runs, plans = enroll(session, specs, **facts), dict[str, Plan]()
        todo.clear()
        for run in runs:
            todo.append(run.run_id)
            if run.plan is not None:
                plans[run.run_id] = run.plan
        if out is None:
            refuse_other_report(page, session.store)
        if session.workers > 1 or session.host.launch is not None:
            _share(session, runs, plans)
        else:
            one_run.carry_out_all(session.store, todo, session.wanted, session.host, now("microseconds"), plans)
    return conclude(session, todo, page) if report else Outcome(session.record, {}, None, session.store.root)


def _share(session: Session, runs: Sequence[BoundRun], plans: Mapping[str, Plan]) -> None:
    todo, host = tuple(run.run_id for run in runs), session.host
    files: dict[tuple[str, str], None] = {}  # of objectives and encoders that are in no package
    for each in runs:
        run: BoundRun | None = each
        while run is not None:
            files |= {(name, str(path)): None for name, path in objectives.source_files(run.spec).items()}
            run = run.parent()
    assignment = Assignment(
        session.store.root, session.record, session.base.model_dump(mode="json"), todo, tuple(files), host,
        now("microseconds"), os.getpid(), {run_id: asdict(plan) for run_id, plan in plans.items()},
    )  # fmt: skip
    if host.launch is not None:
        left = [run_id for run_id in todo if not one_run.complete(session.store.get(run_id), session.wanted)]
        slurm.share_runs(assignment, left, session.workers)
    else:
        share(assignment, session.workers)


def check(host: Host, specs: Sequence[RunSpec]) -> None:
    """Raise InputError if one of the runs cannot be carried out on this machine."""
    from workbench.cpu import compiled
    from workbench.tasks.common import sentence_scorers

    if host.launch is None:
        host.resolved_device()
        devices.check(host)
        compiled.setting()
    else:
        slurm.check()  # jobs see the machine on which they run
    for spec in specs:
        if spec.seed == specs[0].seed:
            devices.refuse(spec, host)
            host.rows_at_once(spec.batch.size)
            sentence_scorers.check(spec)


def begin(job: Job, root: Path, host: Host, workers: int = 1) -> Session:
    """Return the session of a job. Raises InputError before the store is made, which leaves nothing behind."""
    check(host, job.specs)
    code_version()
    RunStore.check(root)
    suite = load_suite(job.base)
    prepared = prepare(job.base)
    base = bind(job.base, prepared)
    check_losses(job.specs, prepared, host)
    store = RunStore(root)
    job.warn()
    if suite.tasks and (points := points_of(job, prepared, suite)):
        say(cost.schedule_sentence(points, base.tasks.at))
    return Session(job, store, base, prepared, suite, replace(host, places=base.places()), workers)


def check_losses(specs: Sequence[ResolvedSpec], prepared: Prepared, host: Host) -> None:
    """Raise InputError if a user's objective or encoder has losses or states that cannot be used on this host."""
    from workbench.training import loop

    here = host if host.launch is None else Host(device="cpu")
    first: dict[tuple[str, str, str], ResolvedSpec] = {}
    for spec in specs:
        origin: ResolvedSpec | None = spec
        while origin is not None:
            first.setdefault((origin.objective, origin.source, origin.encoder.source), origin)
            origin = origin.parent()
    for spec in first.values():
        if spec.source or spec.encoder.source:
            bound = bind(spec, prepared)
            in_parts = host.rows_at_once(bound.batch.size) < bound.batch.size
            loop.check_losses(bound, corpus_of(prepared, bound), here, in_parts)


def points_of(job: Job, prepared: Prepared, suite: Suite) -> list[dict[str, Any]]:
    """Return the number of points during training at which each suite is measured, and their cost."""
    wanted = Wanted(job.base.tasks, suite, prepared)
    if not wanted.during_training or not job.specs:
        return []
    arms, _ = bound_runs(job, [spec for spec in job.specs if spec.seed == job.specs[0].seed], prepared)
    return cost.schedule_rows(
        wanted.series(run.spec, run.plan or plan(run.spec)) for run in distinct_runs(arms.values())
    )


def planned_points(job: Job, prepared: Prepared | None) -> tuple[str, list[dict[str, Any]]]:
    """Return the points of a job before it begins, as a sentence and as rows; no rows if its text is not prepared."""
    if not tasks.any_during_training(job.base.tasks):
        return "", []
    if prepared is None:
        return "scores during training: how many is known once the text is prepared (workbench data prepare)", []
    base = bind(job.base, prepared)
    suite = tasks.load(base.tasks, text=lambda: (base.data, prepared.folder))
    rows = points_of(job, prepared, suite)
    return cost.schedule_sentence(rows, base.tasks.at), rows


def planned_tuning(
    job: Job, prepared: Prepared | None, host: Host, workers: int = 1
) -> tuple[str, list[dict[str, Any]]]:
    """Return the time of fine-tuning here before a job begins: a sentence, and a row per task and encoder."""
    chosen = tasks.fine_tuned_only(job.base.tasks)
    if not chosen.chosen:
        return "", []
    if not tasks.local(chosen):
        return "fine-tuning time: not estimated, because tasks have to be downloaded first", []
    if prepared is None:
        return "fine-tuning time: estimated once the text is prepared (workbench data prepare)", []
    suite = tasks.read(chosen)
    named, _ = bound_runs(job, job.specs, prepared)
    runs = distinct_runs(named.values())
    encoders = [*runs, *baselines_of(runs)]
    if job.searched:
        encoders = runs * job.searched.runs + baselines_of(runs) * (job.searched.seeds + job.searched.reported)
    return cost.planned_time([run.spec for run in encoders], suite, chosen, prepared.tokenizer, host, workers)


def trained_already(job: Job, prepared: Prepared | None, root: Path) -> set[str]:
    """Return the names of the specs of which the store at `root` has trained runs; a warning names damaged ones."""
    if prepared is None or not root.is_dir():
        return set()
    named, _ = bound_runs(job, job.specs, prepared)
    runs = {name: RunDir(root / bound.run_id) for name, bound in named.items()}
    trained = {name: run for name, run in runs.items() if run.trained}
    damages = dict(zip(trained, of_each(lambda run: run.damage, trained.values()), strict=True))
    for name, damage in damages.items():
        if damage:
            DAMAGE.warning("%s is damaged: %s; %s", trained[name].path, damage, remedy(trained[name].path))
    return {name for name, damage in damages.items() if damage is None}


def enroll(session: Session, specs: Sequence[ResolvedSpec], **facts: Any) -> list[BoundRun]:
    """Add the runs of these specs and their baselines to the store and the record, and return them.

    They are in order of seeds, and for each seed the baseline is first, so that whole comparisons are complete early.
    `facts` are further fields of the record.
    """
    named, matches = bound_runs(session.job, specs, session.prepared)
    runs, baselines, untrained_ids = distinct_runs(named.values()), list[BoundRun](), list[str]()
    if session.suite.tasks:
        baselines = [planned_run(session.job, run.spec) for run in baselines_of(runs)]
        untrained_ids = [run.run_id for run in baselines]
    records = session.store.experiments()
    seeds = list[int]()
    for record in () if "design" in facts else records:  # a new plan counts its own seeds alone
        if record.name == session.record:
            seeds = seeds_before(session, record, named)
    contrasts = contrasts_of(session, named, records, seeds)
    merged = list[dict[str, Any]]()
    for cell, name in session.job.merged:
        if name in named:
            merged.append({"cell": cell, "run": named[name].run_id})
    facts = {"match": [*map(asdict, matches)], "contrasts": contrasts, "merged": merged, **facts}
    run_ids = list[str]()
    for run in runs:
        run_ids.append(run.run_id)
    if runs:  # a search also calls this without runs, to record the scores of its trials
        facts["first_score"] = first_score(session.store, run_ids)
    if runs and session.suite.tasks:
        facts["measures"] = measures_of(session, runs, records)
    experiment = session.job.experiment
    record = ExperimentRecord(
        name=session.record, experiment=experiment.name, question=experiment.question, axis=experiment.axis,
        base=session.base.model_dump(mode="json"), tasks=session.base.tasks.model_dump(mode="json"),
        runs=run_ids, untrained=untrained_ids,
        command=shlex.join(redact_words(session.host.command or ["workbench", *sys.argv[1:]])),
        text=text_facts(session.prepared), **facts,
    )  # fmt: skip
    session.store.extend_experiment(record)
    session.store.open_all([*baselines, *runs])
    return sorted([*baselines, *runs], key=attrgetter("spec.seed"))


def measures_of(
    session: Session, runs: Sequence[BoundRun], records: Sequence[ExperimentRecord]
) -> list[dict[str, Any]]:
    """Return the measures of a session, each a task under its settings, as rows of the record.

    `seen` counts the seeds for which two arms already have scores of any measure; if it is 0, the measure is
    declared beforehand. Runs of a record that declared this measure before it had scores are not counted, unless
    results decided, by a plan of looks, how many seeds that record has.
    """
    spec, rows = session.base.tasks, []
    for measure in session.suite.tasks:
        key = {"name": measure.name, "digest": score_digest(measure, spec), "statistic": spec.statistic}
        declared: set[str] = set()
        for record in records:
            if (record.name == session.record or not record.design) and any(
                row["seen"] == 0 and key.items() <= row.items() for row in record.measures
            ):
                declared.update(record.runs)
        arms: dict[int, set[str]] = {}
        for run in runs:
            if run.run_id not in declared and any(score_files(session.store.root / run.run_id)):
                arms.setdefault(run.spec.seed, set()).add(run.spec.model_copy(update={"budget": Budget(steps=1)}).arm)
        seen = sum(len(each) > 1 for each in arms.values())
        rows.append({**key, "suite": measure.suite, "declared": now(), "seen": seen})
    return rows


def score_files(folder: Path) -> Iterator[Path]:
    """Yield the files of all scores of a run, at the end of training and at points before it."""
    yield from folder.glob("scores/*.json")
    yield from folder.glob("points/*/scores/*.json")


def first_score(store: RunStore, run_ids: Iterable[str]) -> str:
    """Return the time at which the first score of these runs was written, in ISO 8601; "" if there is none."""
    times = list[float]()
    for run_id in run_ids:
        for path in score_files(store.root / run_id):
            times.append(path.stat().st_mtime)
    return datetime.fromtimestamp(min(times), UTC).isoformat(timespec="seconds") if times else ""


def seeds_before(session: Session, record: ExperimentRecord, named: Mapping[str, BoundRun]) -> list[int]:
    """Return the trained seeds of the session's record that none of these runs has, if a contrast is new to it."""
    known = [(row["a"], row["b"]) for row in record.contrasts]
    if all((dict(each.contrast.a), dict(each.contrast.b)) in known for each in session.job.declared):
        return []
    seeds = set()
    for run in (RunDir(session.store.root / run_id) for run_id in record.runs):
        with contextlib.suppress(DamagedRun):  # reports leave damaged runs out
            seeds |= {run.spec().seed} if run.trained else set()
    return sorted(seeds - {run.spec.seed for run in named.values()})


def contrasts_of(
    session: Session, named: Mapping[str, BoundRun], records: Sequence[ExperimentRecord] = (),
    seeds: Collection[int] = (),
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the declared contrasts of these runs, as rows of the record.

    `named` are the runs by the names of their specs, and `seeds` are further seeds of their arms. `seen` is the
    number of seeds for which both arms are trained by now, without the pairs that another of `records`, as of other
    --tasks, declared before both were trained: if it is 0, a contrast is declared beforehand. Records with a plan
    of looks do not count, because results decided how many seeds they have.
    """
    before, root = set[frozenset[str]](), session.store.root
    for record in records:
        if record.name != session.record and not record.design:
            for contrast in record.contrasts:
                if contrast["seen"] == 0:
                    before.update(map(frozenset, itertools.product(contrast["runs_a"], contrast["runs_b"])))
    rows = []
    for declared in session.job.declared:
        one, seen, runs_a, runs_b, pairs = declared.contrast, 0, list[str](), list[str](), list[tuple[str, str]]()
        for number, (a, b) in enumerate(declared.runs):
            if a in named and b in named:
                runs_a.append(named[a].run_id)
                runs_b.append(named[b].run_id)
                pairs.append((runs_a[-1], runs_b[-1]))
                for seed in () if number else seeds:
                    pairs.append((named[a].spec.replace(seed=seed).name, named[b].spec.replace(seed=seed).name))
        for a, b in pairs:
            if frozenset((a, b)) not in before:
                seen += (root / a / "done.json").exists() and (root / b / "done.json").exists()
        rows.append({
            "label": one.label, "a": dict(one.a), "b": dict(one.b), "runs_a": runs_a, "runs_b": runs_b,
            "declared": now(), "seen": seen,
        })  # fmt: skip
    return rows


def conclude(session: Session, todo: Sequence[str], out: Path) -> Outcome:
    """Write the report on the record, and return it with the states of these runs.

    A run of the record that is damaged is in no average there and has this state here.
    """
    folders = [session.store.get(run_id) for run_id in todo]
    states = {run.run_id: state_of(run, session.wanted) for run in folders}
    _warn_of_missing_points(folders, session.wanted)
    if all(state in SETTLED for state, _ in states.values()):
        _record_reported(session, todo)

    from workbench.report import verdict_beside, write
    from workbench.report.load.study_tables import read_and_warn

    loaded = read_and_warn(session.store, session.record)
    states |= {row["run_id"]: ("damaged", row["reason"]) for row in loaded.rows("runs") if row["state"] == "damaged"}
    page = write(session.store, session.record, out, missing=dict(session.suite.missing), loaded=loaded)
    verdict = verdict_beside(page)
    record = session.store.experiment(session.record)
    first = record.first_score or first_score(session.store, record.runs)
    judged = {"at": now(), **verdict} if verdict else record.verdict
    session.store.extend_experiment(replace(record, verdict=judged, first_score=first), record.updated)
    return Outcome(session.record, states, page, session.store.root, verdict)


def _record_reported(session: Session, run_ids: Sequence[str]) -> None:
    """Record which seeds the report shows, since adding seeds after a report makes false claims likelier."""
    record = session.store.experiment(session.record)
    if record.design or not session.suite.tasks:
        return
    budget = session.job.base.budget.model_dump(mode="json", exclude_none=True)
    before = [set(row["seeds"]) for row in record.reported if row["budget"] == budget]
    seeds = sorted({session.store.get(run_id).spec().seed for run_id in run_ids}.union(*before))
    if len(seeds) > 1:
        row = {"at": now(), "budget": budget, "seeds": seeds}
        session.store.extend_experiment(replace(record, reported=[row]))


def load_suite(base: RunSpec) -> Suite:
    """Return the requested tasks, and log those that cannot be loaded."""
    suite = tasks.load(base.tasks, text=lambda: (base.data, prepare(base).folder))
    for name, why in suite.missing.items():
        log.warning("%s is left out: %s", name, why)
    return suite


def work(assignment: Assignment) -> bool:
    """Carry out an assignment as one of its workers. Return whether one of its runs is not done at the end."""
    code_version()
    for name, file in assignment.files:
        objectives.find_file(name, file)
    store = RunStore.existing(assignment.store)
    base = parse(assignment.base)
    stay_local(base, own_process=True)
    wanted = Wanted(base.tasks, load_suite(base), prepare(base))
    plans = {run_id: plan_from_json(raw) for run_id, raw in assignment.plans.items()}
    one_run.carry_out_all(store, assignment.runs, wanted, assignment.host, assignment.since, plans)
    states = [state_of(store.get(run_id), wanted)[0] for run_id in assignment.runs]
    return any(state not in ("done", "trained", "running") for state in states)


def score(session: Session, run_id: str) -> float | None:
    """Return the mean score of a run, over fine-tuning seeds and then tasks; None if damaged, or if one is missing."""
    from workbench.tasks.common.contract import expected

    run, settings = session.store.get(run_id), session.base.tasks
    if damage := run.damage:
        DAMAGE.warning("%s is damaged, so its scores do not count: %s; %s", run.path, damage, remedy(run.path))
        return None
    if not one_run.complete(run, Wanted(settings, session.suite, None)):
        return None
    values: dict[str, list[float]] = {}
    for task, _, name in expected(session.suite, settings):
        values.setdefault(task.name, []).append(float(run.read_json(f"scores/{name}")["value"]))
    means = [math.fsum(of_task) / len(of_task) for of_task in values.values()]
    return math.fsum(means) / len(means) if means else None


def state_of(run: RunDir, wanted: Wanted) -> tuple[str, str]:
    """Return the state of a run and a note on it; "done" is a trained run with all wanted scores."""
    state = run.state
    if state in ("done", "trained"):
        if one_run.complete(run, wanted):
            return "done", "; ".join(run.warnings())
        return "unfinished", "; ".join(run.failures().values()) or "some scores are missing"
    return state, run.note


def _warn_of_missing_points(runs: Sequence[RunDir], wanted: Wanted) -> None:
    """Warn of runs that kept no weights at requested points of training, where they can never be measured."""
    without = {run.run_id: count for run in runs if not run.damage and (count := wanted.unmeasured(run))}
    if without:
        name, count = next(iter(without.items()))
        log.warning(
            "%d of %d runs have no weights at requested points, since they were trained with another --evaluate-at or "
            "the weights were deleted; scores of these points are left out: %s at %d points%s",
            len(without), len(runs), name, count, " and others" if len(without) > 1 else "",
        )  # fmt: skip
