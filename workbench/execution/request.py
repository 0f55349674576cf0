"""From the options of a command, or the arguments of a call in Python, to specs, numbers of seeds and jobs."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import InputError, plural
from workbench.memory import FOR_TORCH, STACK, check_address_space
from workbench.spec.host import Host, launched
from workbench.spec.parts import COUNTS
from workbench.store.atomic import can_hold_files, user_path

if TYPE_CHECKING:
    from workbench.execution.auto_seeds import Limit
    from workbench.execution.experiment_runner import Outcome
    from workbench.execution.run_list import Job
    from workbench.execution.search import Search
    from workbench.spec.experiment import Experiment
    from workbench.spec.launch import Launch
    from workbench.spec.parts import Budget
    from workbench.spec.run_spec import RunSpec

log = logging.getLogger("workbench")
TUNE = "tune"  # the axis of a sweep that searches the settings of each objective
DEFAULT_TRIALS = 10  # trials of a search if their number is not given
HELD_OUT = 0.02  # share of a corpus, unless it is set
REHEARSAL = "WORKBENCH_REHEARSAL"  # environment variable: try a whole command quickly before it takes a night
SHOWN = 10  # values of an axis in a message
TRIED = (4, 4)  # steps of a run and rows of a step in a rehearsal; a run of more FLOPs per step still gets a step


@dataclass(frozen=True)
class Request:
    """The options by which a command selects runs, under the names of the options of `workbench run`.

    `settings` are those of --set, such as ("optim.lr=5e-4",). For a field that is None, the value is that of the
    experiment, the scale or the objective.
    """

    objectives: Sequence[str] = ()
    settings: Sequence[str] = ()
    scale: str | None = None
    corpus: Sequence[str] = ()
    tasks: str | None = None
    evaluate_at: str | None = None
    budget: str | None = None
    match: str | None = None
    seeds: str | None = None
    most_seeds: int | None = None
    most_compute: str | None = None
    most_epochs: float | None = None
    own_process: bool = False  # whether the process is this command's own, so that environment variables may be set

    def spec(self) -> RunSpec:
        """Return the spec that all runs have in common. Raises InputError."""
        base = base_spec(
            self.scale, self.settings, self.corpus, self.tasks, self.budget, self.evaluate_at, self.own_process
        )
        _check_tasks(base, self.settings, self.evaluate_at)
        return base

    def at_scale(self, scale: str) -> RunSpec:
        """Return what `spec` returns, with another scale for what is not given. Raises InputError."""
        settings = [each for each in self.settings if each.partition("=")[0].strip() != "scale"]
        return replace(self, scale=scale, settings=settings).spec()


@dataclass(frozen=True)
class Trials:
    """How a sweep searches its space; fields are named as the options of `workbench sweep`."""

    trials: int | None = None
    sampler: str = "tpe"
    tuning_seeds: int = 1
    storage: str | None = None

    def __post_init__(self) -> None:
        for name, value, most in (("trials", self.trials, 100_000), ("tuning_seeds", self.tuning_seeds, 1000)):
            if value is not None and (not isinstance(value, int) or not 1 <= value <= most):
                raise InputError(f"{name}={value!r} is not a whole number from 1 to {most:,}")

    def searches(self, axis: str | None) -> bool:
        """Return whether a sweep of this axis is a search, instead of a comparison of all values.

        Raises InputError if it is none and there are settings of a search.
        """
        search = self.trials is not None or axis == TUNE
        if not search and self != Trials():
            raise InputError(
                "--sampler, --tuning-seeds and --storage belong to a search, and this sweep compares all values; give "
                "--trials N, or leave them out"
            )
        return search


def run_job(request: Request, experiment: str) -> tuple[Job, Limit | None]:
    """Return the job of `workbench run`, and with --seeds auto the limit to added seeds. Raises InputError."""
    from workbench.execution.run_list import one_arm_as_given

    job, limit = experiment_job(request, experiment, {}, ())
    job = one_arm_as_given(job)
    refuse_epochs(job, request.most_epochs)
    return job, limit


def sweep_job(request: Request, axis: str | None, space: dict[str, Any]) -> tuple[Job, Limit | None]:
    """Return the job and the limit of `workbench sweep` without a search: the experiment `axis` over a `space`."""
    from workbench.spec.axes import Range

    ranges = [key for key, values in space.items() if isinstance(values, Range)]
    if ranges:
        raise InputError(f"--over {ranges[0]}={space[ranges[0]]} is a range: give the number of trials with --trials N")
    job, limit = experiment_job(request, axis, space, request.objectives)
    refuse_epochs(job, request.most_epochs)
    return job, limit


def experiment_job(
    request: Request, experiment: str | None, space: dict[str, Any], words: Sequence[str]
) -> tuple[Job, Limit | None]:
    """Return the job and the limit of an experiment over a `space`, which may not vary objectives that `words` name."""
    base = request.spec()
    count, limit = seeds_of(request.seeds, request.most_seeds, request.most_compute)
    from workbench.execution.run_list import job_of
    from workbench.spec.axes import grid

    chosen = grid(experiment, space, request.match, base, words)
    warn_of_overruled(chosen, request.settings)
    if chosen.scales:
        base = request.at_scale(chosen.scales[0])
        if os.environ.get(REHEARSAL):  # the few steps of a small scale are less than one of a large scale
            chosen = replace(chosen, match=None)
    base = with_words(base, chosen, always=request.most_epochs is not None)
    of_text = {key: getattr(base.data, key.partition(".")[2]) for key in COUNTS}
    return job_of(
        chosen, base, count, request.objectives, given_keys(request.settings),
        lambda scale: request.at_scale(scale).changed(of_text),
    ), limit  # fmt: skip


def search_jobs(
    request: Request, axis: str | None, space: dict[str, Any], trials: Trials
) -> tuple[tuple[Job, ...], Search, int]:
    """Return the jobs of a sweep that searches a space, how it is searched, and the number of seeds that are reported.

    `axis` is an experiment whose cells are searched each by itself; "tune" searches the settings of each objective, and
    has a second job, which reports the best ones on other seeds. Raises InputError.
    """
    count, _ = seeds_of(request.seeds, request.most_seeds, request.most_compute, search=True)
    base, words = request.spec(), request.objectives
    number, given = rehearsed(trials.trials, 3) or DEFAULT_TRIALS, given_keys(request.settings)
    always = request.most_epochs is not None
    from workbench.execution.search import Search, default_space, search_job, tune_jobs
    from workbench.spec.axes import grid, unit_of

    if axis == TUNE:
        search = Search(default_space(base, space), number, trials.sampler, trials.tuning_seeds, trials.storage)
        unit = unit_of(request.match, None, base)
        jobs: tuple[Job, ...] = tune_jobs(with_words(base, unit=unit, always=always), search, words, unit, given)
    else:
        if not space:
            raise InputError("--trials needs --over with a space to search, as in --over optim.lr=1e-4..1e-3:log")
        search = Search(space, number, trials.sampler, count, trials.storage)
        experiment = grid(axis, space, request.match, base, words)
        warn_of_overruled(experiment, request.settings)
        if experiment.scales:
            raise InputError(
                f"{axis or '--over'} has several scales, and a search is for one; give --scale, and --over the keys to "
                "search"
            )
        jobs = (search_job(experiment, with_words(base, experiment, always=always), search, words, given),)
    refuse_epochs(jobs[-1], request.most_epochs)
    return jobs, search, count


def carry_out_search(
    jobs: tuple[Job, ...], search: Search, seeds: int, root: Path, host: Host, workers: int = 1, out: Path | None = None
) -> Outcome:
    """Carry out the jobs of `search_jobs`. Raises InputError before anything is spent."""
    from workbench.execution.search import execute, tune

    out = report_folder(out, root)
    if len(jobs) == 2:
        return tune((jobs[0], jobs[1]), search, seeds, root, host, workers, out)
    return execute(jobs[0], search, root, host, workers, out)


def refuse_epochs(job: Job, most: float | None) -> None:
    """Raise InputError if a run would see its text more than `most` times, when the words of the text are counted."""
    from workbench.execution.run_list import check_epochs, plans

    if job.base.data.words:
        check_epochs(plans(job)[0], most)


def carry_out_job(
    job: Job, limit: Limit | None, root: Path, host: Host, workers: int = 1, out: Path | None = None
) -> Outcome:
    """Carry out a job as it is, or with seeds added up to a limit. Raises InputError before anything is spent."""
    from workbench.execution import auto_seeds, experiment_runner

    out = report_folder(out, root)
    if limit:
        return auto_seeds.execute(job, limit, root, host, workers, out)
    return experiment_runner.execute(job, root, host, workers, out)


def report_folder(out: Path | None, store: Path) -> Path | None:
    """Return the folder `out` of a report after a check that it can be written and lies outside of the store.

    Without `out` this is the default, a folder in `reports`. Raises InputError.
    """
    from workbench.store.run_store import check_outside

    out = None if out is None else user_path(out, "--out")
    named = "--out" if out else "without --out, the report's folder"
    check_outside(user_path(store, "--runs"), out or Path("reports"), named)
    return writable(out)


def writable(out: Path | None, flag: str = "--out") -> Path | None:
    """Return a folder after a check that files can be made in it. Raises InputError otherwise."""
    if out is None:
        return None
    if len(out.name) > 200 or not can_hold_files(out):
        raise InputError(f"nothing can be written in {str(out)[:200]!r}; give {flag} a folder that can be made")
    return out


def base_spec(
    scale: str | None, sets: Sequence[str] | None, corpus: Sequence[str] | None, tasks: str | None, budget: str | None,
    evaluate_at: str | None = None, own_process: bool = False,
) -> RunSpec:  # fmt: skip
    """Return the spec that the options of a command describe. Raises InputError if two of them contradict each other.

    `own_process` is true if the process is a command's own, so that environment variables may be set.
    """
    from workbench.spec import presets
    from workbench.spec.run_spec import parse_budget, parse_overrides

    overrides = parse_overrides(sets or [])
    scale_set = overrides.pop("scale", None)
    given = {"data.corpus": ",".join(corpus) if corpus else None, "tasks.names": tasks, "scale": scale}
    given["tasks.at"] = evaluate_at
    options = {
        "data.corpus": "--corpus", "tasks.names": "--tasks", "scale": "--scale", "tasks.at": "--evaluate-at",
    }  # fmt: skip
    for key, value in given.items():
        other = scale_set if key == "scale" else overrides.get(key)
        if value is not None and other is not None and other != value:
            raise InputError(f"{options[key]} {value} and --set {key}={other} contradict each other; keep one")
        if value is not None and key != "scale":
            overrides[key] = value
    if budget is not None:
        clash = next((key for key in overrides if key.startswith("budget.") and key != "budget.convention"), None)
        if clash:
            raise InputError(f"--budget {budget} and --set {clash}={overrides[clash]} contradict each other; keep one")
        chosen = parse_budget(budget)
        overrides[f"budget.{chosen.unit}"] = getattr(chosen, chosen.unit)
    if "objective" in overrides:
        raise InputError("--set objective=... is refused; give --objective NAME instead")
    scale = scale or scale_set or _scale_of_pair(overrides)
    base = presets.resolve(scale or "nano", overrides)
    if not base.tasks.names:
        raise InputError("--tasks names no task; name some, or give --tasks none")
    if os.environ.get(REHEARSAL):
        log.warning("%s is set: every run takes %d steps of %d rows, and its scores mean nothing", REHEARSAL, *TRIED)
        base = presets.rehearsed(base, *TRIED)
    from workbench.execution.offline import stay_local

    stay_local(base, own_process)
    if base.pair is not None:
        from workbench.execution.published_runs import gone_on

        base = gone_on(base, overrides)
    return _with_held_out(base, "data.held_out" in overrides)


def _check_tasks(base: RunSpec, sets: Sequence[str], evaluate_at: str | None = None) -> None:
    """Raise InputError if a table that --tasks names is missing, or a setting is given that no chosen task reads."""
    from workbench.spec.run_spec import parse_overrides
    from workbench.tasks import check_settings

    given = parse_overrides(sets) | ({} if evaluate_at is None else {"tasks.at": evaluate_at})
    check_settings(base.tasks, given)


def _scale_of_pair(overrides: Mapping[str, Any]) -> str | None:
    """Return the scale whose settings suit the published pair that runs go on from; None if they go on from none."""
    if "pair.names" not in overrides:
        return None
    from workbench.models import published_pair
    from workbench.spec import presets
    from workbench.spec.parts import PairSpec
    from workbench.spec.run_spec import parse_part

    given = {key.removeprefix("pair."): value for key, value in overrides.items() if key.startswith("pair.")}
    sizes = published_pair.settings(published_pair.find(parse_part(PairSpec, given, "pair")))
    return presets.scale_of_encoder(sizes["encoder.layers"], sizes["encoder.hidden"])


def _with_held_out(base: RunSpec, given: bool) -> RunSpec:
    """Return the spec with a part of its text held out if minimal pairs need one, unless its share is `given`."""
    from workbench import tasks

    if given or set(base.data.corpus) == {"docs"} or not tasks.of_corpus(base.tasks):
        return base
    log.warning("pairs are made of text that pre-training does not see: --set data.held_out=%g is in effect", HELD_OUT)
    return base.changed({"data.held_out": HELD_OUT})


def with_words(
    base: RunSpec, experiment: Experiment | None = None, unit: str | None = None, always: bool = False
) -> Any:
    """Return the spec with the words of its text counted if a plan needs them, which prepares the text.

    Budgets and matches in words need them, and so does text in BabyLM's files. With `always` they are counted anyway,
    for a limit of epochs. Raises InputError for a task whose files are absent, before a text is prepared.
    """
    keys = [key for row in (experiment.axes, *experiment.variants) for key in row] if experiment else []
    units = (base.budget.unit, unit, experiment and experiment.match, *(key.removeprefix("budget.") for key in keys))
    from workbench.data.sources import is_babylm

    if base.data.words or not (always or "words" in units or is_babylm(base.data)):
        return base
    from workbench import tasks
    from workbench.data.prepare import already, counted, prepare

    if already(base) is None:
        tasks.read(tasks.apart_from_text(base.tasks))  # a task whose files are absent is named before the text is read
    return counted(base, prepare(base))


def given_keys(sets: Sequence[str] | None) -> set[str]:
    """Return the keys that --set names, which take precedence over the presets of objectives."""
    from workbench.spec.run_spec import parse_overrides

    return set(parse_overrides(sets or []))


def rehearsed(count: int | None, most: int) -> int | None:
    """Return the number of seeds, trials or rounds of a command: `count`, and in a rehearsal `most` at most."""
    return min(count or most, most) if os.environ.get(REHEARSAL) else count


def seeds_of(
    seeds: str | None, most_seeds: int | None, most_compute: str | None, search: bool = False
) -> tuple[int, Limit | None]:
    """Return the number of seeds of a command, and with --seeds auto the limit up to which seeds are added.

    Raises InputError if the options do not fit together.
    """
    if seeds != "auto":
        for option, value in (("--most-seeds", most_seeds), ("--most-compute", most_compute)):
            if value is not None:
                raise InputError(
                    f"{option} {value} limits --seeds auto, which was not given; add it, or leave {option} out"
                )
        if seeds is not None and not (seeds.isascii() and seeds.isdigit() and 1 <= int(seeds[:9]) <= 1000):
            raise InputError(f"--seeds {seeds[:80]!r} is neither a number from 1 to 1000 nor auto")
        return rehearsed(int(seeds or 1), 2) or 1, None
    if search:
        raise InputError("--seeds auto decides declared comparisons, and a search has none; give a number of --seeds")
    if os.environ.get(REHEARSAL):
        return 2, None
    from workbench.execution.auto_seeds import MOST_SEEDS, Limit

    return most_seeds or MOST_SEEDS, Limit(most_seeds or MOST_SEEDS, compute_of(most_compute))


def compute_of(text: str | None) -> Budget | None:
    """Return the budget that --most-compute gives for all runs together. Raises InputError."""
    from workbench.spec.run_spec import parse_budget

    try:
        return parse_budget(text) if text else None
    except InputError as error:
        raise InputError(str(error).replace("--budget", "--most-compute")) from None


def warn_of_overruled(experiment: Experiment, sets: Sequence[str] | None) -> None:
    """Log a warning for each --set that an axis of the experiment overrules."""
    from workbench.spec.run_spec import parse_overrides

    for key, value in parse_overrides(sets or []).items():
        values = experiment.axes.get(key, (value,))
        if any(str(each) != str(value) for each in values):
            used = ", ".join(map(str, values[:SHOWN])) or "a range"
            used += f" and {len(values) - SHOWN:,} others" if len(values) > SHOWN else ""
            log.warning(
                "--set %s=%s has no effect on %s, whose runs have %s=%s; leave it out, or give --over %s=%s to a sweep",
                key, value, experiment.name, key, used, key, value,
            )  # fmt: skip


def host_of(
    device: str = "auto", precision: str = "auto", micro_batch: int | None = None, threads: int | None = None,
    compile_: bool = False, save_every: int | None = None, track: str | None = None, plain: bool = False,
    devices: int | None = None, shard: bool = False, launch: Launch | None = None,
) -> Host:  # fmt: skip
    """Return the host of these options. Raises InputError for an unknown value, or a device that is not here."""
    if precision not in ("auto", "fp32", "bf16"):
        raise InputError(f"--precision {precision!r} is not one of auto, fp32 and bf16")
    if track not in (None, "wandb"):
        raise InputError(f"--track {track!r} is unknown; the only tracker is wandb")
    if devices is not None and not (isinstance(devices, int) and 1 <= devices <= 1024):
        raise InputError(f"devices={devices!r} is not a whole number from 1 to 1024")
    host = Host(
        device=device, precision=precision, compile=compile_, threads=threads, micro_batch=micro_batch,  # type: ignore[arg-type]
        save_every=save_every, track=track, plain=plain, devices=launched() if devices is None else devices,
        shard=shard, launch=launch,
    )  # fmt: skip
    if plain and compile_:
        raise InputError("--plain and --compile contradict each other, since --plain uses no faster code; keep one")
    more = "" if threads is None else f" with {plural(threads, 'thread')}"
    check_address_space(FOR_TORCH + STACK * (threads or 0), f"torch{more}")
    if device != "auto" and launch is None:
        host.resolved_device()
    return host


def scores_of_encoders(
    names: Sequence[str], scale: str | None, sets: Sequence[str], tasks: str | None, host: Host,
    root: Path | None = None, flops: float | None = None, allow_bin: bool = False, own_process: bool = False,
    workers: int | None = None,
) -> tuple[list[dict[str, Any]], int]:  # fmt: skip
    """Measure models on tasks, and return their scores and the number of those that failed.

    `names` are folders, or names on the hub. With `root`, the scores are written into that store. `flops` are the
    training FLOPs that are stated of the only model. With the options of jobs in `host`, each model is measured by a
    job of a cluster, at most `workers` at a time. Raises InputError before anything is measured.
    """
    if workers is not None and host.launch is None:
        raise InputError(f"--workers {workers} is the number of jobs at a time; add --launcher slurm, or leave it out")
    if flops is not None and len(names) > 1:
        raise InputError(f"--flops {flops:g} is stated of one model, and {len(names)} are named; evaluate it by itself")
    if root is not None:
        from workbench.store.run_store import RunStore

        RunStore.check(root)
    from workbench.execution import experiment_runner, published_runs
    from workbench.tasks.common.contract import expected

    models = published_runs.models(names, allow_bin)
    for model in models:
        _check_origin(model.folder)
    chosen = [_fine_tuning_scale(model.folder, scale, sets) for model in models]
    bases = [base_spec(*each, None, tasks, None, own_process=own_process) for each in chosen]
    _check_tasks(bases[0], sets)
    if not bases[0].tasks.chosen:
        raise InputError("evaluate prints scores, and --tasks none gives none; name tasks with --tasks")
    # Settings decide how tasks are learned and from how many rows, and not which they are.
    suites = {rows: experiment_runner.load_suite(base) for rows, base in {b.tasks.rows: b for b in bases}.items()}
    suite = suites[bases[0].tasks.rows]
    if host.launch is not None:
        from workbench.execution.cluster import jobs_of_models

        assert root is not None, "the command that has --launcher has --runs"
        options = jobs_of_models.options(scale, sets, tasks, host, root, flops, allow_bin)
        measured = jobs_of_models.measure([model.name for model in models], options, root, host.launch, workers)
        return measured, sum(len(list(expected(suite, base.tasks))) for base in bases) - len(measured)
    store = RunStore(root) if root is not None and suite.tasks else None
    rows: list[dict[str, Any]] = []
    failed = 0
    for model, base in zip(models, bases, strict=True):
        scores, lost = published_runs.measure(model, suites[base.tasks.rows], base, host, store, flops)
        rows, failed = rows + scores, failed + lost
    return rows, failed


def _check_origin(encoder: Path) -> None:
    """Raise DamagedRun if an encoder lies in a run, of its end or of a point, and was changed since it was written."""
    from workbench.errors import DamagedRun
    from workbench.store.run_directory import home_of

    folder = Path(os.path.realpath(encoder))
    run, place = home_of(folder)
    record = run.path / place / ("point.json" if place else "done.json")
    if folder.name != "encoder" or not record.exists() or not (run.path / "spec.json").exists():
        return
    try:
        run.check_encoder(place)
    except DamagedRun as error:
        fault = str(error).partition("; move")[0]
        raise DamagedRun(f"{fault}; to evaluate it as it is, copy the folder {encoder} out of the run") from None


def _fine_tuning_scale(encoder: Path, scale: str | None, sets: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """Return the scale and the --set options to fine-tune an encoder with.

    If neither scale nor recipe is given, an encoder that was trained here is measured with the settings of its run, and
    the scale of any other follows from its size. Options that are given take precedence.
    """
    from workbench.spec import presets
    from workbench.spec.run_spec import parse_overrides

    overrides = parse_overrides(sets)
    if scale is not None or "scale" in overrides or "recipe" in overrides:
        return scale, sets
    from workbench.tasks.common.encoder_folders import encoder_facts

    facts = encoder_facts(encoder)
    if facts.origin is not None:
        own = {f"tasks.{key}": value for key, value in facts.origin.tasks.items() if value is not None}
        return facts.origin.scale, [*sets, *(f"{key}={own[key]}" for key in own if key not in overrides)]
    if "tasks.seeds" not in overrides:
        sets = [*sets, f"tasks.seeds={presets.SCALES['nano']['tasks.seeds']}"]
    return presets.scale_of_encoder(facts.layers, facts.hidden), sets
