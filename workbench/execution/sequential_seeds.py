"""`--seeds auto`: seeds are added in blocks until every declared comparison is decided, or cannot be within the limit.

The plan, which is the numbers of seeds at which results are looked at, is written to the experiment's record before
the first run, and each look is written there before anything follows from it. So a repeated command continues with the
same plan, and looks at no other number of seeds. The statistics are those of `report.statistics.group_sequential`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.errors import InputError
from workbench.execution import study_runner
from workbench.execution.one_run import Wanted
from workbench.execution.study import Job, Priced, bound_runs
from workbench.execution.study_runner import Outcome, Session
from workbench.report.comparison import leaderboards
from workbench.report.formatting import listing
from workbench.report.formatting import seeds as count
from workbench.report.load import study_tables
from workbench.report.results import Leaderboard
from workbench.report.statistics.group_sequential import Look, plan_of, schedule
from workbench.report.statistics.paired_comparison import LEAST_DF
from workbench.spec.experiment import arm_text
from workbench.spec.host import Host
from workbench.spec.parts import Budget
from workbench.spec.stages import ResolvedSpec
from workbench.store.run_directory import now
from workbench.training.plan import with_parents

log = logging.getLogger("workbench")
MOST_SEEDS = 12  # unless --most-seeds is given


@dataclass(frozen=True)
class Limit:
    """The limit of added seeds: a number of seeds, and a budget for all runs together."""

    seeds: int = MOST_SEEDS
    compute: Budget | None = None


def check(job: Job) -> None:
    """Raise InputError if no contrast is declared among the runs of a job."""
    if not job.declared:
        raise InputError(
            f"--seeds auto adds seeds until the comparisons in CONTRASTS are decided, and {job.experiment.name} "
            f"declares none among these runs; declare some, or give a number of --seeds"
        )


def most_seeds(job: Job, limit: Limit, host: Host, workers: int) -> int:
    """Return the largest number of seeds within the limit. Raises InputError if they are too few to compare arms."""
    one = [spec for spec in job.specs if spec.seed == job.base.seed]
    priced = [each for each in job.priced[0] if each[0].seed == job.base.seed]
    cost = 0.0 if limit.compute is None else spending(priced, limit.compute, host, workers)
    most = limit.seeds if limit.compute is None else min(limit.seeds, int(limit.compute.amount / cost))
    arms = len({spec.model_copy(update={"budget": Budget(steps=1)}).arm for spec in one})
    if most < 2 or (arms - 1) * (most - 1) < LEAST_DF:
        spent = f" (each seed of all arms takes {cost:.3g} {limit.compute.unit})" if limit.compute else ""
        raise InputError(
            f"--seeds auto: the limit leaves {count([most])} of {arms} arms{spent}, which show no difference, however "
            f"large; raise --most-seeds or --most-compute"
        )
    return most


def spending(priced: Sequence[Priced], limit: Budget, host: Host, workers: int) -> float:
    """Return the cost of all these runs in the unit of the limit; seconds are estimated from a few timed steps."""
    if limit.unit == "seconds":
        from workbench.bench.estimate import training_seconds

        return sum(training_seconds(with_parents(priced), host)) / workers
    if limit.unit == "flops":
        return float(sum(plan.flops[spec.budget.convention] for spec, plan in priced))
    return float(sum(plan.tokens if limit.unit == "tokens" else plan.steps for _, plan in priced))


def whole(job: Job, limit: Limit, host: Host, workers: int) -> Job:
    """Return the job with the largest number of seeds of its plan, and log at which numbers of seeds it looks."""
    check(job)
    most = most_seeds(job, limit, host, workers)
    numbers = listing([*map(str, schedule(most))])
    log.warning("--seeds auto looks at the results of %s seeds; this plan has all %d of them", numbers, most)
    specs = tuple(spec for spec in job.specs if spec.seed < job.base.seed + most)
    return job if specs == job.specs else replace(job, specs=specs)


def execute(job: Job, limit: Limit, root: Path, host: Host, workers: int = 1, out: Path | None = None) -> Outcome:
    """Carry out runs, seed by seed, until the plan ends, and write the report.

    Raises InputError before anything is spent.
    """
    _ = job.priced
    check(job)

    def looks(session: Session, todo: list[str]) -> Iterator[tuple[Sequence[ResolvedSpec], dict[str, Any]]]:
        """Yield the specs of the next number of seeds as long as a comparison is undecided."""
        seeds = _agreed(session, limit, most_seeds(job, limit, host, workers))
        for index, number in enumerate(seeds):
            yield [spec for spec in job.specs if spec.seed < job.base.seed + number], {}
            if not _settled(session, todo, number) or "open" not in _look(session, index).status.values():
                return

    return study_runner.execute(job, root, host, workers, out, looks)


def _agreed(session: Session, limit: Limit, most: int) -> tuple[int, ...]:
    """Return the numbers of seeds at which to look, and write a new plan to the record. Raises InputError."""
    job, compute = session.job, limit.compute and {limit.compute.unit: limit.compute.amount}
    given = {"most_seeds": limit.seeds, "most_compute": compute, "first": job.base.seed}
    record = next((one for one in session.store.experiments() if one.name == session.record), None)
    if record is not None and (design := record.design):
        if any(design.get(key) != value for key, value in given.items()):
            spent = " ".join(f"{unit}={amount:g}" for unit, amount in (design.get("most_compute") or {}).items())
            raise InputError(
                f"--seeds auto: {session.record} was planned with --most-seeds {design.get('most_seeds')}"
                f"{f' and --most-compute {spent}' if spent else ''} from seed {design.get('first')}, which later "
                f"commands cannot change; give the same options, or another --runs"
            )
        plan = plan_of({"design": design, "looks": record.looks})
        if plan is None:
            raise InputError(f"--seeds auto: the design of {session.record} cannot be used; move the record away")
        return plan.seeds
    seeds = schedule(most)
    planned = {"seeds": list(seeds), "measure": _measure(session), "made": now(), **given}
    specs = [spec for spec in job.specs if spec.seed < job.base.seed + most]
    for row in study_runner.contrasts_of(session, bound_runs(job, specs, session.prepared)[0]):
        if row["seen"]:  # a plan made after a look at scores would not control the error rate
            raise InputError(
                f"--seeds auto: {row['seen']} seeds of {arm_text(row['a'])} and {arm_text(row['b'])} are trained "
                f"already, so their scores may have been seen; give another --runs, or fresh seeds with --set seed=N"
            )
    study_runner.enroll(session, [spec for spec in specs if spec.seed < job.base.seed + seeds[0]], design=planned)
    return seeds


def _measure(session: Session) -> str:
    """Return the suite whose scores decide: the suite of the first name in --tasks."""
    first = session.base.tasks.names[0] if session.base.tasks.names else "none"
    if not session.suite.tasks:
        raise InputError("--seeds auto needs scores, and --tasks none gives none; name tasks with --tasks")
    words = {first.lower(), Path(first).stem.lower()}
    named = (task.suite for task in session.suite.tasks if words & {task.suite.lower(), task.name.lower()})
    return next(named, session.suite.tasks[0].suite)


def _settled(session: Session, run_ids: Sequence[str], count: int) -> bool:
    """Return whether all runs have ended, since a look must not be taken at a part of the runs."""
    wanted = Wanted(session.base.tasks, session.suite, None)
    states = {run_id: study_runner.state_of(session.store.get(run_id), wanted)[0] for run_id in run_ids}
    waiting = [run_id for run_id, state in states.items() if state not in study_runner.SETTLED]
    if waiting:
        log.warning(
            "the look at %d seeds needs %d runs that are not done, such as %s (%s); give the same command again",
            count, len(waiting), waiting[0], states[waiting[0]],
        )  # fmt: skip
    return not waiting


def _look(session: Session, index: int) -> Look:
    """Return the look at this index of the plan, after it is written to the record if it is a new one."""
    record = session.store.experiment(session.record)
    seeds = record.design["seeds"][index]
    results = study_tables.read_study(session.store, session.record, verify=False)
    rows = [look for look in record.looks if look.get("seeds") in record.design["seeds"][:index]]
    known = {**results.record, "looks": [*rows, {"seeds": seeds}]}
    look = look_at(leaderboards(replace(results, record=known)), record.design["measure"])
    if all(row.get("seeds") != seeds for row in record.looks):
        stands = [
            {"a": a, "b": b, "status": look.status[a, b], "difference": one.estimate.mean, "adjusted": one.adjusted}
            for (a, b), one in look.compared.items()
        ]
        row = {"at": now(), "seeds": look.seeds, "share": look.share, "found": stands}
        session.store.extend_experiment(replace(record, looks=[row]))
    log.warning("%s", sentence(look))
    return look


def look_at(results: Sequence[Leaderboard], measure: str) -> Look:
    """Return the last look at the measure that decides. Raises InputError if it has no comparison."""
    board = next((board for board in results if board.suite == measure and board.looks), None)
    if board is None:
        raise InputError(f"--seeds auto: no declared comparison has scores of {measure}; see workbench status")
    return board.looks[-1]


def sentence(look: Look) -> str:
    """Return the results of a look in one line."""
    stands: dict[str, list[str]] = {}
    for (a, b), status in look.status.items():
        stands.setdefault(status, []).append(f"{a} and {b}")
    return f"look at {look.seeds} seeds: " + "; ".join(f"{status}: {listing(each)}" for status, each in stands.items())
