"""Carrying out runs one at a time: training, measuring missing scores, and waiting for the runs of other processes.

With --streams, the runs of this process are trained several at a time first, and then measured one at a time.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import objectives, progress
from workbench.data.corpus import Corpus, corpus_of
from workbench.data.prepare import Prepared, check, counted
from workbench.errors import (
    DAMAGE,
    DamagedRun,
    Diverged,
    InputError,
    Interrupted,
    LeaseHeld,
    LeaseLost,
    ParentFailed,
    RankLost,
    one_line,
    plural,
    remedy,
)
from workbench.execution.devices import host_of_each, refuse, scoring_together, together
from workbench.execution.workers import watching
from workbench.process import NOTED, heed, release_memory
from workbench.spec import loss_floors
from workbench.spec.host import Host, instructions
from workbench.spec.loss_floors import frequencies
from workbench.spec.parts import TasksSpec
from workbench.spec.run_spec import RunSpec
from workbench.spec.stages import BoundRun, ResolvedSpec
from workbench.store import checkpoint
from workbench.store.atomic import DISK
from workbench.store.environment import arithmetic, changes, environment
from workbench.store.redact import redact
from workbench.store.run_store import RunDir, RunStore
from workbench.store.validation import check_fields, inside
from workbench.tasks.common.contract import FINE_TUNING, Measure, Model, Suite, expected, keep, take
from workbench.trackers import Mirror
from workbench.training.plan import Plan, Point, plan, plan_of, step_of, usable

if TYPE_CHECKING:
    from torch import nn

    from workbench.tasks.common.cost import Series


log = logging.getLogger("workbench")
WAIT = 1.0  # seconds between checks of runs that other processes carry out


def carry_out_all(
    store: RunStore, run_ids: Sequence[str], wanted: Wanted, host: Host, since: str,
    plans: Mapping[str, Plan] | None = None,
) -> None:  # fmt: skip
    """Carry out all runs, except those that other processes carry out, and return when all are settled.

    A failure is recorded and the next run begins; a failure recorded after the time `since` is not tried again. A full
    disk or a signal ends the command. `plans` are plans by run id.

    Each worker looks at every run of the command, so the first look costs little: runs with a lease are left for later,
    and of complete runs damage is found by the command that writes the report.
    """
    if host.streams > 1 and wanted.scored:
        _train_together(store, run_ids, wanted, host, since, plans)
    left, looked, waited = list(_spread(run_ids) if len(run_ids) >= 200 else run_ids), False, False
    while left:
        leased = []
        for run_id in left:
            if noted := NOTED.get():
                raise Interrupted(noted[0])
            run = store.get(run_id)
            has_lease = not looked and os.path.lexists(run.path / "lease")
            if not looked and (has_lease or complete(run, wanted)):
                leased += [run_id] if has_lease else []
                continue
            try:
                for each, own in _unsettled(run, wanted, since):
                    with each.lease(patience=0):
                        # another process may have carried it out before we got the lease
                        if not settled(each, own, since):
                            carry_out(each, own, host, since, (plans or {}).get(each.run_id))
            except LeaseHeld:
                leased.append(run_id)
            except LeaseLost as error:
                log.warning("%s is left to its new owner: %s", run.run_id, error)
                leased.append(run_id)
            except DamagedRun as error:
                DAMAGE.warning("%s", error)
        if looked and leased == left:
            if not wanted.scored:
                from workbench.training.concurrent_runs import TURNS

                turns = TURNS.get()  # of other threads of this process, of which one may still train
                if turns is None or not turns.idle(WAIT):
                    return  # other processes carry out the rest; it is waited for before scoring
            if not waited and wanted.scored:
                log.warning("waiting for %s that other processes carry out", plural(len(left), "run"))
            waited = True
            if wanted.scored:
                time.sleep(WAIT)
        left, looked = leased, True


def _train_together(
    store: RunStore, run_ids: Sequence[str], wanted: Wanted, host: Host, since: str, plans: Mapping[str, Plan] | None
) -> None:
    """Train runs that are not trained, several at the same time in threads of this process, and take no scores."""
    todo = [run_id for run_id in run_ids if not store.get(run_id).trained]
    if not todo:
        return
    from workbench.training.concurrent_runs import in_streams

    runs = [store.get(run_id) for run_id in run_ids]
    train = partial(carry_out_all, store, todo, replace(wanted, scored=False), host, since, plans)
    with watching(runs, ()) if progress.terminal() else contextlib.nullcontext(lambda: None) as look:
        in_streams(train, min(host.streams, len(todo)), host.resolved_device(), look)


def _spread(todo: Sequence[str]) -> Iterator[str]:
    """Yield runs in order, but each hundredth of many in an order of its own, so that workers rarely try the same."""
    size = max(1, len(todo) // 100)
    for start in range(0, len(todo), size):
        part = list(todo[start : start + size])
        yield from random.sample(part, len(part))


def _unsettled(run: RunDir, wanted: Wanted, since: str) -> Iterator[tuple[RunDir, Wanted]]:
    """Yield a run that is not settled, after its parents, with the scores it must have; warn of damaged runs."""
    if damage := run.damage:
        DAMAGE.warning("%s is damaged: %s; %s", run.path, damage, remedy(run.path))
        return
    if settled(run, wanted, since):
        return
    parent = None if run.trained else parent_of(run)
    if parent is not None:
        yield from _unsettled(parent, replace(wanted, tasks=parent.spec().tasks, suite=Suite(())), since)
    yield run, wanted


def settled(run: RunDir, wanted: Wanted, since: str) -> bool:
    """Return whether nothing is left to do: a run is complete, diverged, or failed after the time `since`."""
    if run.trained:
        return not _untried(run, wanted, since)
    error = run.error()
    return error is not None and (error["kind"] == "diverged" or error["time"] >= since)


def carry_out(run: RunDir, wanted: Wanted, host: Host, since: str, planned: Plan | None = None) -> None:
    """Train a run up to the exported encoder and done.json if it is not trained, then take its missing scores.

    A failure is recorded, of training in error.json and of a measurement in a file of its own.
    """
    from workbench.training import loop
    from workbench.training.distributed import ALONE
    from workbench.training.plan import Snapshots

    run.clear_error()
    # An untrained encoder has no copy of its own: its scores are in the summaries of trained runs.
    tracker = None if run.spec().budget.steps == 0 else host.track
    with nullcontext() if tracker is None else contextlib.closing(Mirror(str(tracker), run)) as copied:
        if not run.trained:
            with _noted(run.run_id, run.fail, run.path / "error.log"):
                prepared = wanted.prepared
                assert prepared is not None
                several = host.devices > 1
                each = host_of_each(host) if several else host
                spec, parent = run.spec().placed(host.places), parent_of(run)
                corpus, planned = _prepared_training(run, spec, prepared, each, parent, planned)
                kept = Snapshots(run, spec, planned, prepared.tokenizer, wanted.points(spec, planned))
                processes = together(run, each) if several else nullcontext(ALONE)
                with progress.training(run.run_id) as bar, processes as ranks:
                    model = loop.train(run, spec, planned, corpus, each, run.check, bar, copied, parent, kept, ranks)
                _finish(run, spec, planned, corpus, prepared, model)
        if run.trained and copied is not None:
            copied.news()
        if run.trained and wanted.scored:
            measure(run, wanted, host, since)
            release_memory()  # scores may need several times the memory of training


@contextlib.contextmanager
def _noted(
    what: str, note: Callable[..., None], trace: Path, expected: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Record and log a failure of the block; only wrong input, disk errors, signals and a lost lease are raised again.

    `note` records a failure, with its traceback in the file `trace`, which the warning names; `expected` errors
    need none.
    """
    plain: tuple[type[Exception], ...] = (ParentFailed, Diverged, RankLost, *expected)
    try:
        yield
    except DamagedRun:
        raise
    except plain as error:
        kind = "diverged" if isinstance(error, Diverged) else "failed"
        note(kind, str(error), step=getattr(error, "step", None))
        log.warning("%s %s: %s", what, kind, error)
    except (InputError, KeyboardInterrupt, Interrupted, LeaseLost):
        raise
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in DISK:
            raise
        heed()  # the error may be the consequence of a signal
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        message = redact(one_line(error))
        if not isinstance(error, Exception):
            message = f"{message} was raised at {place}, which would have ended the whole command"
        note("failed", message, where=place, trace=traceback.format_exc())
        log.warning("%s failed: %s; see %s", what, message, trace)


def _prepared_training(
    run: RunDir, spec: ResolvedSpec, prepared: Prepared, host: Host, parent: RunDir | None, planned: Plan | None
) -> tuple[Corpus, Plan]:
    """Check what the training of a run needs, write its plan and environment, and return its text and plan."""
    from workbench import cpu
    from workbench.training import loop

    if parent is not None and (parent.damage or not parent.trained):
        raise ParentFailed(f"its parent {parent.run_id} {parent.state}: {parent.note}")
    check(prepared, full=True)
    corpus = corpus_of(prepared, spec)
    if spec.source:
        floors(spec, corpus, {})  # a fault in a user's function is found before training
    if (run.path / "plan.json").is_file():
        planned = plan_of(run)
    else:
        refuse(spec, host)
        if planned is None:
            timed = loop.seconds_per_step(spec, corpus, host) if spec.budget.unit == "seconds" else None
            planned = plan(spec, timed, plan_of(parent) if parent is not None else None)
        run.write_json("plan.json", asdict(planned))
    cpu.prepare(host.threads, host.plain, host.resolved_device())
    _write_environment(run, spec, host)
    if spec.source or spec.encoder.source:
        for name, source in objectives.source_files(spec).items():
            run.write(name, source.read_bytes())
    return corpus, planned


def _finish(
    run: RunDir, spec: ResolvedSpec, plan_of_run: Plan, corpus: Corpus, prepared: Prepared, model: nn.Module
) -> None:
    from workbench.models.export import export, export_heads

    facts = {"steps": plan_of_run.steps, "tokens": plan_of_run.tokens, "flops": plan_of_run.flops}
    check(prepared)  # the tokenizer is exported from it
    with run.staged("encoder") as folder:
        export(model.encoder, prepared.tokenizer, folder, spec, facts)  # type: ignore[arg-type]
    with run.staged("heads") as folder:
        export_heads(model, folder)
    run.finish(facts | judged(run, spec, corpus))


def judged(run: RunDir, spec: RunSpec, corpus: Corpus) -> dict[str, Any]:
    """Return the losses that token frequencies alone reach, and warn of losses of a trained run that are no better."""
    rows = run.metrics()
    reached = floors(spec, corpus, loss_floors.mean_rates(rows)) if rows else {}
    warnings = [each.sentence() for each in loss_floors.floor_checks(rows, reached) if each.flagged]
    if warnings:
        others = f" (and {plural(len(warnings) - 1, 'other value')}, as workbench status says)" if warnings[1:] else ""
        log.warning("%s: %s%s", run.run_id, warnings[0], others)
    return {"floors": reached, "warnings": warnings}


def floors(spec: RunSpec, corpus: Corpus, rates: Mapping[str, float]) -> dict[str, float]:
    """Return the losses that token frequencies alone reach, by the objective's `floors`. Raises TypeError."""
    module = objectives.load(spec)
    if not hasattr(module, "floors"):
        return {}
    values = dict(module.floors(frequencies(corpus.counts(), spec, rates)))
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(value, (int, float)):
            raise TypeError(f"floors(words) of {objectives.file_of(module)} returns {value!r:.40} for {name!r:.40}")
    return values


def parent_of(run: RunDir) -> RunDir | None:
    """Return the run from which this one starts, in the same store, or None. Its folder is made if it is new."""
    parent = run.spec().parent()
    return None if parent is None else RunStore(run.path.parent).open(BoundRun(parent))


def _kernels(host: Host, precision: str) -> str:
    """Return the kernels of pre-training, which round differently: torch, or on a CPU compiled, tiles or avx512."""
    import torch

    from workbench.cpu import compiled

    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    if host.plain or host.compile or host.resolved_device() != "cpu" or not compiled.available(dtype):
        return "torch"
    return compiled.products(dtype) or "compiled"


def _write_environment(run: RunDir, spec: RunSpec, host: Host) -> None:
    """Write env.json. If a continued run has another environment, the changes are logged and kept in the file."""
    from workbench.cpu import compiled

    precision = host.resolved_precision(spec.encoder.hidden)
    if precision == "bf16" != host.precision and host.resolved_device() == "cpu":
        progress.warn_once("training is in bf16, because this CPU multiplies it fast; --precision fp32 trains in fp32")
    computation = {
        "micro_batch": host.rows_at_once(spec.batch.size),
        "plain": host.plain, "compile": host.compile, "kernels": _kernels(host, precision), "devices": host.devices,
        "shard": host.shard, "streams": host.streams, "instructions": instructions(), "places": spec.places(),
        **({"kernels_fault": fault} if (fault := compiled.fault()) else {}),
    }  # fmt: skip
    facts = environment(host.command or sys.argv, device=host.resolved_device(), precision=precision) | computation
    facts["arithmetic"] = arithmetic(facts)
    before = facts
    if (run.path / "env.json").is_file():
        before = run.read_json("env.json")
        with usable(run):
            check_fields("env.json", before, {"versions": dict, "machine": dict})
    changed = changes(before, facts) if checkpoint.steps(run.path / "checkpoints") else []
    for each in changed:
        each["at"] = facts["started"]
        log.warning(
            "%s continues with %s %s instead of %s, so its numbers will differ in the last digits from those of a run "
            "that was never stopped", run.run_id, each["key"], each["to"], each["from"],
        )  # fmt: skip
    earlier = before.get("changes")
    run.write_json("env.json", facts | {"changes": [*(earlier if isinstance(earlier, list) else ()), *changed]})


def measure(run: RunDir, wanted: Wanted, host: Host, since: str) -> None:
    """Take the missing scores of a run, except those that failed after the time `since`."""
    from workbench.tasks.common.fine_tuning import Unfinished

    run.want(name for _, _, name in wanted.expected(run))
    missing = _untried(run, wanted, since)
    if not missing:
        return
    digests = {place: run.weight_digests(place) for place in {place_of(name) for _, _, name in missing}}
    checked = set[str]()
    with progress.measuring(run.run_id, len(missing)) as bar:
        for task, seed, name in missing:
            place = place_of(name)
            step_text = f", step {step_of(place):,}" if place else ""
            what = f"{task.act} {run.run_id} on {task.name} (seed {seed}{step_text})"
            note = partial(_note_score, run, name, task, seed)
            with _noted(what, note, run.path / run.failure_log(name), (InputError,)):
                if place not in checked:
                    run.check_weights("encoder", place)
                    checked.add(place)
                folder = run.path / place / "encoder"
                state = Unfinished(run, name, digests[place])
                with scoring_together(run, f"{place}encoder", task, wanted.tasks, host) as ranks:
                    own = host_of_each(host) if ranks.count > 1 else host
                    model = Model(folder, wanted.tasks, seed, partial(bar.step, task.name), state, ranks)
                    score = take(task, model, own)
                keep(run, name, score, digests[place])
                state.delete()
                run.clear_failure(name)
                bar.scored(task.name, None if place else score.value)


def _untried(run: RunDir, wanted: Wanted, since: str) -> list[tuple[Measure, int, str]]:
    """Return the missing scores, except those that failed after the time `since`."""
    missing = [(each, run.failure(each[2])) for each in wanted.missing(run)]
    return [each for each, failure in missing if failure is None or failure["time"] < since]


def _note_score(
    run: RunDir, name: str, task: Measure, seed: int, kind: str, message: str, trace: str = "", **_: object
) -> None:
    run.fail_score(name, task.name, seed, kind, message, trace, task.act)


def complete(run: RunDir, wanted: Wanted) -> bool:
    """Return whether a run is trained and has all wanted scores. A damaged run is not complete."""
    try:
        return run.trained and not any(True for _ in wanted.missing(run))
    except DamagedRun:
        return False


# ---- the scores that a run must have ----


@dataclass(frozen=True)
class Wanted:
    """The scores that a command requests.

    Without `prepared` (the token shards), only the final weights are scored. If `scored` is False, a run counts as
    complete without scores; it keeps its weights at the points, to be scored later.
    """

    tasks: TasksSpec
    suite: Suite
    prepared: Prepared | None
    scored: bool = True

    @property
    def during_training(self) -> bool:
        """Whether some measure may also be taken during training."""
        return self.prepared is not None and not {*map(attrgetter("act"), self.suite.tasks)} <= {FINE_TUNING}

    def points(self, spec: RunSpec, plan: Plan) -> list[Point]:
        """Return the points of a run at which some measure is taken."""
        points = {point for one in self.series(spec, plan) for point in one.points} if self.during_training else set()
        return sorted(points, key=attrgetter("step"))

    def expected(self, run: RunDir) -> Iterator[tuple[Measure, int, str]]:
        """Yield the measure, seed and name of each score that a trained run must have; scores of the end come first."""
        if not self.scored:
            return
        yield from expected(self.suite, self.tasks)
        saved = {step_of(place): place for place in run.points()}
        if not saved or not self.during_training:
            return
        measurable = {place for place in saved.values() if run.has_weights(place)}
        for series in self.series(run.spec(), plan_of(run)):
            for place in (saved[point.step] for point in series.points if point.step in saved):
                for measure, seed, name in expected(Suite(series.measures), self.tasks):
                    if place in measurable or (run.path / inside("scores", place + name)).is_file():
                        yield measure, seed, place + name

    def missing(self, run: RunDir) -> Iterator[tuple[Measure, int, str]]:
        """Yield the expected scores that do not exist yet."""
        return (each for each in self.expected(run) if not (run.path / inside("scores", each[2])).is_file())

    def unmeasured(self, run: RunDir) -> int:
        """Return how many requested points of a trained run have neither weights nor all their scores."""
        if not self.during_training or not run.trained:
            return 0
        requested: set[tuple[int, str]] = set()
        for series in self.series(run.spec(), plan_of(run)):
            names = [name for _, _, name in expected(Suite(series.measures), self.tasks)]
            requested.update(itertools.product((point.step for point in series.points), names))
        available = {(step_of(name), name.rpartition("/")[2]) for _, _, name in self.expected(run) if place_of(name)}
        return len({step for step, _ in requested - available})

    def series(self, spec: RunSpec, plan: Plan) -> list[Series]:
        """Return the points of training at which each suite is scored, for a run with this spec and plan."""
        from workbench.tasks.common.cost import series

        if self.prepared is None:
            return []
        return series(counted(spec, self.prepared), plan, self.tasks, self.suite, self.prepared.tokenizer)


def place_of(name: str) -> str:
    """Return the folder of a score's point, such as "points/00000100/", or "" for a score of the run's end."""
    before, slash, _ = name.rpartition("/")
    return before + slash
