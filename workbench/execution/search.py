"""Search for settings: Optuna proposes trials, and their runs are carried out like those of any other command.

A proposal is a pure function of the trials before it. So a search that was stopped proposes the same runs when its
command is repeated, and two equal searches at the same time share them. Scores are read from run directories. Optuna's
storage is a copy for tools such as optuna-dashboard, and may be lost or damaged without harm. No run is stopped early
(pruned), since it would not have the same compute as the others.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import time
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState, create_trial

from workbench import objectives
from workbench.data.prepare import bind
from workbench.errors import InputError, LeaseHeld, message_of
from workbench.execution import study_runner
from workbench.execution.equal_models import model_of, one_model
from workbench.execution.study import Job, Match, bound_runs, job_of, known_options
from workbench.execution.study_runner import Outcome, Session
from workbench.rng import seed_of
from workbench.spec import experiment
from workbench.spec.experiment import Experiment, Range, Space, Values, changed
from workbench.spec.host import Host
from workbench.spec.run_spec import RunSpec, value_at
from workbench.spec.stages import BoundRun, ResolvedSpec
from workbench.store.atomic import disk_errors
from workbench.store.lease import acquire
from workbench.store.redact import redact

log = logging.getLogger("workbench")
SAMPLERS = ("tpe", "random", "qmc")
STARTUP = 10  # trials of TPE that are random; they do not depend on each other, so they run together
ROUND = 4  # later trials of a cell that TPE proposes at once, which run in parallel
TUNING_SEEDS = 100_000  # distance of the seeds that settings are chosen on from those that are reported
OPTION = "options."  # prefix of the keys of objectives' options
RESTART = 30.0  # seconds for which a database that does not answer is asked again at the end of a search
HELD_OUT = 0.2  # share of the training rows on which settings are chosen, so that test rows have no influence


@dataclass(frozen=True)
class Trial:
    """A point of the space that is tried on one arm. `score` is the mean over its runs, None until all have a score."""

    objective: str
    trial: int
    values: Mapping[str, Any]
    seeds: tuple[int, ...]
    run_ids: tuple[str, ...] = ()
    score: float | None = None
    failed: bool = False


@dataclass(frozen=True)
class Search:
    """The settings of a search: `trials` for each cell, each with `seeds` pre-training seeds."""

    space: Space
    trials: int
    sampler: str = "tpe"
    seeds: int = 1
    storage: str | None = None

    def __post_init__(self) -> None:
        if self.sampler not in SAMPLERS:
            raise InputError(f"--sampler {self.sampler!r} is not one of {', '.join(SAMPLERS)}")

    def words(self, base: RunSpec) -> str:
        """Return a text that is the same for equal searches; it omits the number of trials, which may be raised."""
        space = [f"{key}={x if isinstance(x, Range) else list(x)}" for key, x in sorted(self.space.items())]
        return f"{', '.join(space)}; {self.sampler}, {self.seeds} seeds, {base.budget.model_dump_json()}"


def search_job(
    experiment: Experiment, base: RunSpec, search: Search, words: Sequence[str], given: Collection[str] = ()
) -> Job:
    """Return the job of a search over every cell of an experiment, with one run of each cell. Raises InputError."""
    if not base.tasks.chosen:
        raise InputError("a search needs scores, and --tasks none gives none; name tasks with --tasks")
    axes = {key: values for key, values in experiment.axes.items() if key not in search.space}
    experiment = replace(experiment, axes=axes, contrasts=())  # the best trials are not arms declared beforehand
    job = job_of(experiment, base, 1, words, given)
    for arm, own in zip(job.specs, own_spaces(search.space, job.specs), strict=True):
        if not own:
            advice = f"leave {arm.objective} out, or search another setting"
            raise one_model("--over", list(search.space), arm.objective, "all trials", advice)
    axes = {**job.experiment.axes, **dict.fromkeys(search.space, ())}
    return replace(job, experiment=replace(job.experiment, axes=axes, search=search.words(base)))


def execute(job: Job, search: Search, root: Path, host: Host, workers: int, out: Path | None) -> Outcome:
    """Carry out all trials of every cell, and write the report on their runs. Raises as `study_runner.execute`."""
    _ = job.priced
    open_storage(search)
    return study_runner.execute(job, root, host, workers, out, Rounds(search).blocks)


def tune(
    jobs: tuple[Job, Job], search: Search, seeds: int, root: Path, host: Host, workers: int, out: Path | None
) -> Outcome:
    """Run the same search for each objective; then report the best settings of each, trained with fresh seeds."""
    searching, reporting = jobs
    base = reporting.base
    _ = searching.priced
    open_storage(search)
    rounds = Rounds(search)
    study_runner.execute(searching, root, host, workers, out, rounds.blocks, report=False)

    def best_settings(_: Session, todo: list[str]) -> Iterator[tuple[Sequence[ResolvedSpec], dict[str, Any]]]:
        """Yield every seed of the best settings of each objective."""
        chosen, seeds_reported = [], range(base.seed, base.seed + seeds)
        for name, arm in rounds.arms.items():
            able = [trial for trial in rounds.trials if trial.objective == name and trial.score is not None]
            if not able:
                raise InputError(f"no trial of {name} has a score, so no settings can be chosen; see workbench status")
            best = max(able, key=lambda trial: (trial.score, -trial.trial))
            values = ", ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in best.values.items())
            log.warning(
                "%s: %s (%.2f on held-out rows, trial %d of %d)", name, values, best.score, best.trial, search.trials
            )
            chosen.append(tried(arm, best.values, seeds_reported))
        specs = [spec for of_seed in zip(*chosen, strict=True) for spec in of_seed]
        tuning = [asdict(trial) for trial in rounds.trials]
        yield specs, {"tuning": tuning, "match": [asdict(match) for match in rounds.matches]}

    return study_runner.execute(reporting, root, host, workers, out, best_settings)


def tune_jobs(
    base: RunSpec, search: Search, words: Sequence[str], match: str | None, given: Collection[str] = ()
) -> tuple[Job, Job]:
    """Return the job that is searched and the job that is reported, which differ in seeds and in evaluation rows."""
    axes = {"objective": tuple(words) or experiment.load("ablation").axes["objective"]}
    question = "With settings tuned alike for each, which objective does best?"
    apart = base.changed({"tasks.held_out": HELD_OUT, "seed": base.seed + TUNING_SEEDS})
    searching = search_job(Experiment("tune-search", question, axes, match=match), apart, search, words, given)
    report = Experiment("tune", question, axes, match=match, search=search.words(base))
    return searching, job_of(report, base, 1, words, given)


def default_space(base: RunSpec, over: Space) -> Space:
    """Return `over` with a range for the learning rate, from a quarter to four times the default, unless it has one."""
    rate = Range(base.optim.lr / 4, base.optim.lr * 4, log=True, whole=False)
    return {"optim.lr": rate} | dict(over)


def own_spaces(space: Space, arms: Sequence[ResolvedSpec]) -> list[Space]:
    """Return the space of each arm, without the settings that make no difference to it.

    Raises InputError for options of no arm.
    """
    options = {key: key.removeprefix(OPTION) for key in space if key.startswith(OPTION)}
    known = known_options(arms, options.values())
    spaces = list[Space]()
    for arm in arms:
        own = {key: space[key] for key in space if key not in options or options[key] in known[arm.objective]}
        spaces.append({key: own[key] for key in own if _has_effect(key, own, arm)})
    return spaces


def _has_effect(key: str, space: Space, arm: ResolvedSpec) -> bool:
    """Return whether two values of a setting are different models of an arm, at any ends of the other settings."""
    ends = {name: (one.low, one.high) if isinstance(one, Range) else one for name, one in space.items()}
    others = itertools.product(*({values[0], values[-1]} for name, values in ends.items() if name != key))
    for values in others:
        point = dict(zip((name for name in ends if name != key), values, strict=True))
        try:
            models = {model_of(tried(arm, point | {key: value}, [arm.seed])[0]) for value in ends[key]}
        except InputError:  # these values are not possible together; a trial of such values says so
            return True
        if len(models) > 1 or len(ends[key]) == 1:
            return True
    return False


class Rounds:
    """The trials of a search, which are carried out in rounds until every cell has its number.

    Earlier trials are not repeated. Afterwards `trials` are all trials, `arms` the specs of the cells by name, and
    `matches` the amounts that the runs share.
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        self.trials: list[Trial] = []
        self.arms: dict[str, ResolvedSpec] = {}
        self.matches: list[Match] = []

    def blocks(self, session: Session, todo: list[str]) -> Iterator[tuple[Sequence[ResolvedSpec], dict[str, Any]]]:
        """Yield the specs of each round, whose scores decide the next one; `todo` then holds the runs of all trials."""
        search, experiment = self.search, session.job.experiment
        named, self.matches = bound_runs(session.job, session.job.specs, session.prepared)
        self.arms = arms = {_arm(experiment, run.spec): run.spec for run in named.values()}
        spaces = own_spaces(search.space, list(arms.values()))
        studies = {
            name: Study(replace(search, space=space), session.record) for name, space in zip(arms, spaces, strict=True)
        }
        mirror, match = Mirror(session, search), [asdict(match) for match in self.matches]
        trials = _known(session, search, arms)
        while True:
            for name in arms:
                of_arm = [trial for trial in trials if trial.objective == name]
                if all(trial.score is not None or trial.failed for trial in of_arm):
                    study = studies[name]
                    trials += study.propose(name, of_arm, study.round(len(of_arm)), arms[name].seed)
            trials = [trial if trial.run_ids else _named(session, arms, trial) for trial in trials]
            pending = [trial for trial in trials if trial.score is None and not trial.failed]
            if pending:
                specs = [spec for one in pending for spec in tried(arms[one.objective], one.values, one.seeds)]
                yield specs, {"tuning": [asdict(trial) for trial in trials], "match": match}
            trials = [_scored(session, trial) if trial in pending else trial for trial in trials]
            tuning = [asdict(trial) for trial in trials]
            study_runner.enroll(session, [], tuning=tuning, match=match)
            mirror.show(trials, patience=0 if pending else RESTART)
            if not pending:
                self.trials, todo[:] = trials, [run for trial in trials for run in trial.run_ids]
                return


def _known(session: Session, search: Search, arms: Mapping[str, ResolvedSpec]) -> list[Trial]:
    """Return the trials in the record whose values give the same runs now; others belong to another search."""
    names = [record.name for record in session.store.experiments()]
    rows = session.store.experiment(session.record).tuning if session.record in names else []
    trials = []
    for row in rows:
        trial = Trial(**row | {"seeds": tuple(row["seeds"]), "run_ids": tuple(row["run_ids"])})
        if trial.objective in arms and trial.trial < search.trials and _named(session, arms, trial) == trial:
            trials.append(replace(trial, score=None, failed=False))  # the result is read from the run directories
    return trials


def _named(session: Session, arms: Mapping[str, ResolvedSpec], trial: Trial) -> Trial:
    specs = tried(arms[trial.objective], trial.values, trial.seeds)
    return replace(trial, run_ids=tuple(BoundRun(bind(spec, session.prepared)).run_id for spec in specs))


def tried(arm: ResolvedSpec, values: Mapping[str, Any], seeds: Iterable[int]) -> list[ResolvedSpec]:
    """Return an arm with the values of a trial, each in the type of its field, for each seed. Raises InputError."""
    spec = objectives.with_options(changed(arm, values))
    return [spec.replace(seed=seed) for seed in seeds]


def _scored(session: Session, trial: Trial) -> Trial:
    scores = [study_runner.score(session, run_id) for run_id in trial.run_ids]
    present = [score for score in scores if score is not None]
    if len(present) < len(scores):
        return replace(trial, score=None, failed=True)
    return replace(trial, score=math.fsum(present) / len(present), failed=False)


def _arm(experiment: Experiment, spec: RunSpec) -> str:
    keys = dict.fromkeys(key for key, values in experiment.axes.items() if len(values) > 1)
    keys |= dict.fromkeys(key for variant in experiment.variants for key in variant)
    return ", ".join([spec.objective, *(f"{key}={value_at(spec, key)}" for key in keys if key != "objective")])


class Study:
    """Proposals of one search. Nothing is stored between calls."""

    def __init__(self, search: Search, name: str) -> None:
        self.search, self.name = search, name
        self.space = {key: _distribution(value) for key, value in search.space.items()}

    def round(self, known: int) -> int:
        """Return how many trials to propose at once, independent of the number of workers: `ROUND` for TPE."""
        alone = self.search.trials if self.search.sampler != "tpe" else STARTUP
        return max(0, min(self.search.trials - known, alone - known if known < alone else ROUND))

    def propose(self, arm: str, known: Sequence[Trial], count: int, seed: int) -> list[Trial]:
        """Return the next trials of an arm, numbered on from the known trials."""
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        tpe = self.search.sampler == "tpe"
        start = seed_of(0, "search", self.name, arm, len(known) if tpe else 0) % 2**32
        study = optuna.create_study(direction="maximize", sampler=_sampler(self.search.sampler, start))
        if tpe:
            study.add_trials([_frozen(trial, self.space) for trial in known])
            proposed = [study.ask(self.space) for _ in range(count)]
        else:  # a fixed sequence, of which these are the next ones; the first one of Optuna's QMC is random
            proposed = []
            for _ in range((self.search.sampler == "qmc") + len(known) + count):
                proposed.append(study.ask(self.space))
                study.tell(proposed[-1], 0.0)
        seeds, trials = tuple(range(seed, seed + self.search.seeds)), []
        for number, trial in enumerate(proposed[len(proposed) - count :], start=len(known)):
            values = dict(trial.params)
            for key, one in self.search.space.items():  # three digits are enough for a setting
                if isinstance(one, Range) and not one.whole:
                    values[key] = min(max(float(f"{values[key]:.3g}"), one.low), one.high)
            trials.append(Trial(arm, number, values, seeds))
        return trials


class Mirror:
    """A copy of the trials in Optuna's storage for other tools, never read back; a lease keeps equal searches apart."""

    def __init__(self, session: Session, search: Search) -> None:
        self.name, self.search = session.record, search
        folder = session.store.root / "experiments"
        self.path, self.lock = folder / f"{session.record}.optuna.log", folder / f"{session.record}.optuna.lease"
        self.space = {key: _distribution(value) for key, value in search.space.items()}

    def show(self, trials: Iterable[Trial], patience: float = 0.0) -> None:
        """Add the trials that are missing; a journal that cannot be read is written again.

        A database that does not answer is asked again for `patience` seconds; a later call adds what is missing
        then.
        """
        done = [trial for trial in trials if trial.score is not None or trial.failed]
        with disk_errors(self.path):
            self.lock.mkdir(parents=True, exist_ok=True)
        try:
            lease = acquire(self.lock, patience=2 * RESTART)
        except LeaseHeld as error:
            log.warning("the copy of the trials was not written: %s", error)
            return
        try:
            end = time.monotonic() + patience
            while True:
                try:
                    return self._add_to(self.search.storage or self.path, done)
                except Exception as error:  # Optuna raises any exception of the lines or of the database that it reads
                    if not self.search.storage:
                        break
                    if time.monotonic() >= end:
                        log.warning("the copy of the trials in --storage was not written: %s", _first_line(error))
                        return
                time.sleep(1)
            self.path.unlink(missing_ok=True)
            with disk_errors(self.path):
                self._add_to(self.path, done)
        finally:
            lease.release()

    def _add_to(self, place: str | Path, trials: Sequence[Trial]) -> None:
        with _storage(place) as storage:
            for arm in dict.fromkeys(trial.objective for trial in trials):
                name = f"{self.name}: {arm}"
                study = optuna.create_study(study_name=name, storage=storage, direction="maximize", load_if_exists=True)
                present = [list(trial.user_attrs.get("runs", ())) for trial in study.get_trials(deepcopy=False)]
                missing = [trial for trial in trials if trial.objective == arm and list(trial.run_ids) not in present]
                study.add_trials([_frozen(trial, self.space) for trial in missing])


def open_storage(search: Search) -> None:
    """Open the database of `--storage` once, before anything is spent. Raises InputError where that fails."""
    if not search.storage:
        return
    place = redact(search.storage)
    if "://" not in search.storage and os.path.lexists(search.storage) and not os.path.isfile(search.storage):
        raise InputError(
            f"--storage {place} is a folder, pipe, device or broken link; name a file, or the address of a database"
        )
    try:
        with _storage(search.storage):
            pass
    except ImportError as error:
        cause: BaseException | None = error
        while cause and not getattr(cause, "name", None):  # Optuna raises an error of its own from the one that has it
            cause = cause.__cause__ or cause.__context__
        module = getattr(cause, "name", None)
        fix = f"install the package that has the Python module {module!r}" if module else message_of(error)
        if search.storage.startswith("postgres"):
            fix = "pip install 'encoder-workbench[postgres]', and name no other driver"
        raise InputError(f"--storage {place} needs a database driver that is not installed: {fix}") from None
    except Exception as error:  # whatever the database's driver raises
        raise InputError(f"--storage {place} cannot be opened: {_first_line(error)}") from None


def database_address(place: str) -> str:
    """Return an address with psycopg as PostgreSQL's default driver, where SQLAlchemy would take psycopg2."""
    scheme, _, rest = place.partition("://")
    return f"postgresql+psycopg://{rest}" if scheme in ("postgres", "postgresql") else place


def _first_line(error: Exception) -> str:
    """Return the first line of an error, without passwords and without the advice that database libraries add."""
    lines = redact(str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextmanager
def _storage(place: str | Path) -> Iterator[BaseStorage]:
    """Yield an Optuna storage at an address or in a file; connections to a database are closed in the end."""
    if not (isinstance(place, str) and "://" in place):
        yield JournalStorage(JournalFileBackend(str(place), lock_obj=JournalFileOpenLock(str(place))))
        return
    storage = RDBStorage(database_address(place))
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna warns of experimental features, which our tests cover
        if name == "tpe":
            return optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
        if name == "qmc":
            return optuna.samplers.QMCSampler(seed=seed, scramble=True, warn_independent_sampling=False)
        return optuna.samplers.RandomSampler(seed=seed)


def _distribution(value: Range | Values) -> BaseDistribution:
    if not isinstance(value, Range):
        return CategoricalDistribution(value)
    if value.whole:
        return IntDistribution(int(value.low), int(value.high), log=value.log)
    return FloatDistribution(value.low, value.high, log=value.log)


def _frozen(trial: Trial, space: Mapping[str, BaseDistribution]) -> FrozenTrial:
    state = TrialState.FAIL if trial.failed else TrialState.RUNNING if trial.score is None else TrialState.COMPLETE
    return create_trial(
        params=dict(trial.values), distributions={key: space[key] for key in trial.values}, value=trial.score,
        state=state, user_attrs={"runs": list(trial.run_ids), "trial": trial.trial},
    )  # fmt: skip
