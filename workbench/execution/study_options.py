"""From the options of a command, typed or given in Python, to specs, numbers of seeds, hosts and jobs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import tasks, trackers
from workbench.errors import InputError, plural
from workbench.options import (
    Computation,
    EvaluateOptions,
    Names,
    Output,
    RunOptions,
    Settings,
    SpecOptions,
    SweepOptions,
    text_of,
    words,
)
from workbench.process import FOR_TORCH, STACK, check_address_space
from workbench.spec import host
from workbench.spec.host import Host, launched
from workbench.spec.parts import COUNTS
from workbench.spec.presets import REHEARSAL
from workbench.spec.run_spec import RunSpec, overrides_of
from workbench.store.atomic import can_hold_files, user_path

if TYPE_CHECKING:
    from workbench.execution.search import Search
    from workbench.execution.sequential_seeds import Limit
    from workbench.execution.study import Job
    from workbench.execution.study_runner import Outcome
    from workbench.spec.experiment import Experiment, Space


log = logging.getLogger("workbench")
TUNE = "tune"  # the axis of a sweep that searches the settings of each objective
SEARCH_DEFAULTS = ("tpe", 1, None)  # --sampler, --tuning-seeds and --storage by default
DEFAULT_TRIALS = 10  # trials of a search if their number is not given
HELD_OUT = 0.02  # share of a corpus, unless it is set
SHOWN = 10  # values of an axis in a message
TRIED = (4, 4)  # steps of a run and rows of a step in a rehearsal; a run of more FLOPs per step still gets a step


def study_of(
    options: RunOptions | SweepOptions, own_process: bool = False
) -> tuple[Job, Limit | None, Callable[..., Outcome]]:
    """Return the job of a command, the limit on added seeds (None without --seeds auto), and the function to run it.

    The function takes the store's folder, the host, the number of workers and the report's folder. For a search, the
    job holds the searched runs. `own_process` is True if environment variables may be set. Raises InputError.
    """
    if isinstance(options, SweepOptions) and (options.trials is not None or options.axis == TUNE):
        from workbench.execution import search

        jobs, settings, count = search_jobs(options, own_process)
        if len(jobs) == 2:
            return jobs[0], None, partial(search.tune, jobs, settings, count)
        return jobs[0], None, partial(search.execute, jobs[0], settings)
    if (
        isinstance(options, SweepOptions)
        and (options.sampler, options.tuning_seeds, options.storage) != SEARCH_DEFAULTS
    ):
        raise InputError(
            "--sampler, --tuning-seeds and --storage belong to a search, and this sweep compares all values; give "
            "--trials N, or leave them out"
        )
    job, limit = study_job(options, own_process)
    if limit:
        from workbench.execution import sequential_seeds

        return job, limit, partial(sequential_seeds.execute, job, limit)
    from workbench.execution import study_runner

    return job, limit, partial(study_runner.execute, job)


def study_job(options: RunOptions | SweepOptions, own_process: bool = False) -> tuple[Job, Limit | None]:
    """Return the job of `run`, or of `sweep` without a search, and with --seeds auto the limit to added seeds."""
    from workbench.execution.study import check_epochs
    from workbench.spec.experiment import Range, space_of

    if isinstance(options, SweepOptions):
        space = space_of(options.over)
        ranged = next((key for key, values in space.items() if isinstance(values, Range)), None)
        if ranged:
            raise InputError(f"--over {ranged}={space[ranged]} is a range: give the number of trials with --trials N")
        job, limit = experiment_job(options, options.axis, space, names_of(options.objective), own_process)
    else:
        job, limit = experiment_job(options, options.experiment, {}, (), own_process)
        if not job.several_arms:  # the budget of one arm keeps its unit
            job = replace(job, experiment=replace(job.experiment, match=None))
    check_epochs(job, options.most_epochs)
    return job, limit


def experiment_job(
    options: SpecOptions, experiment: str | None, space: Space, words: Sequence[str], own_process: bool = False
) -> tuple[Job, Limit | None]:
    """Return the job and the limit of an experiment over a `space`, which may not vary objectives that `words` name."""
    base, settings = checked_spec(options, own_process), overrides_of(spec_settings(options.set))
    count, limit = seeds_of(options)
    from workbench.execution.study import job_of
    from workbench.spec.experiment import grid

    def at_scale(scale: str) -> RunSpec:
        settings = {key: value for key, value in (options.set or {}).items() if key != "scale"}
        spec = checked_spec(replace(options, scale=scale, set=settings), own_process)
        return spec.changed({key: getattr(base.data, key.partition(".")[2]) for key in COUNTS})

    chosen = grid(experiment, space, options.match, base, words)
    warn_of_overruled(chosen, settings)
    if chosen.scales:
        base = at_scale(chosen.scales[0])
        if os.environ.get(REHEARSAL):  # the few steps of a small scale are less than one of a large scale
            chosen = replace(chosen, match=None)
    base = with_words(base, chosen, always=options.most_epochs is not None)
    given = {*settings, *(() if options.tasks is None else ("tasks.names",))}
    return job_of(chosen, base, count, names_of(options.objective), given, at_scale), limit


def search_jobs(options: SweepOptions, own_process: bool = False) -> tuple[tuple[Job, ...], Search, int]:
    """Return the jobs of a sweep that searches a space, how it is searched, and the number of seeds that are reported.

    The axis "tune" has a second job, which reports the best settings on other seeds. Raises InputError.
    """
    from workbench.spec.experiment import grid, space_of, unit_of

    count, _ = seeds_of(options, search=True)
    axis, words = options.axis, names_of(options.objective)
    space = {
        key: tuple(None if each is None else text_of(each) for each in values) if isinstance(values, tuple) else values
        for key, values in space_of(options.over).items()
    }  # choices are texts, as Optuna's storages hold them; they take the types of their fields later
    base, settings = checked_spec(options, own_process), overrides_of(spec_settings(options.set))
    number = rehearsed(options.trials, 3) or DEFAULT_TRIALS
    given = {*settings, *(() if options.tasks is None else ("tasks.names",))}
    always = options.most_epochs is not None
    from workbench.execution.search import Search, default_space, search_job, tune_jobs
    from workbench.execution.study import Searched, check_epochs

    if axis == TUNE:
        search = Search(default_space(base, space), number, options.sampler, options.tuning_seeds, options.storage)
        unit = unit_of(options.match, None, base)
        jobs: tuple[Job, ...] = tune_jobs(with_words(base, unit=unit, always=always), search, words, unit, given)
    else:
        if not space:
            raise InputError("--trials needs --over with a space to search, as in --over optim.lr=1e-4..1e-3:log")
        search = Search(space, number, options.sampler, count, options.storage)
        experiment = grid(axis, space, options.match, base, words)
        warn_of_overruled(experiment, settings)
        if experiment.scales:
            raise InputError(
                f"{axis or '--over'} has several scales, and a search is for one; give --scale, and --over the keys to "
                "search"
            )
        jobs = (search_job(experiment, with_words(base, experiment, always=always), search, words, given),)
    check_epochs(jobs[-1], options.most_epochs)
    searched = Searched(search.trials, search.seeds, count if len(jobs) == 2 else 0)
    return (replace(jobs[0], searched=searched), *jobs[1:]), search, count


def prepared(
    options: RunOptions | SweepOptions, host: Host, job: Job, carry_out: Callable[..., Outcome]
) -> tuple[Callable[[], Outcome], AbstractContextManager[list[Outcome]]]:
    """Return what carries out a study (`study_of`), and a block that tells whom the options name. Raises InputError."""
    from workbench.execution import notification

    way, root, out = notification.way_of(options.notify), Path(options.runs), report_folder(options)
    study = partial(carry_out, root, host, options.workers, out)
    return study, nullcontext([]) if way is None else notification.told(way, root, job.experiment.name)


def report_folder(options: Output) -> Path | None:
    """Return the folder --out of a report, None by default. Raises InputError if it is in the store or not writable."""
    from workbench.store.run_store import check_outside

    out = None if options.out is None else user_path(options.out, "--out")
    named = "--out" if out else "without --out, the report's folder"
    check_outside(user_path(options.runs, "--runs"), out or Path("reports"), named)
    return None if out is None else writable(out)


def writable(out: Path, flag: str = "--out") -> Path:
    """Return a folder after a check that files can be made in it. Raises InputError otherwise."""
    if len(out.name) > 200 or not can_hold_files(out):
        raise InputError(f"nothing can be written in {str(out)[:200]!r}; give {flag} a folder that can be made")
    return out


def names_of(names: Names | None) -> tuple[str, ...]:
    """Return names as `options.checked` leaves them."""
    return tuple(map(str, names)) if isinstance(names, Sequence) else ()


def spec_settings(settings: Settings | None) -> dict[str, Any]:
    """Return the settings of --set without the options of a cluster's jobs."""
    given = dict(settings or {})
    for key in settings or {}:
        if key.startswith(host.KEY):
            del given[key]
    return given


def base_spec(options: SpecOptions, own_process: bool = False) -> RunSpec:
    """Return the spec of a command's options; `own_process` lets environment variables be set. Raises InputError."""
    from workbench.spec import presets
    from workbench.spec.run_spec import parse_budget

    overrides = overrides_of(spec_settings(options.set))
    scale_set = overrides.pop("scale", None)
    given = {
        "data.corpus": ("--corpus", names_of(options.corpus) or None), "scale": ("--scale", options.scale),
        "tasks.names": ("--tasks", None if options.tasks is None else names_of(options.tasks)),
        "tasks.at": ("--evaluate-at", options.evaluate_at),
    }  # fmt: skip
    for key, (flag, value) in given.items():
        other = scale_set if key == "scale" else overrides.get(key)
        if value is not None and other is not None and text_of(other) != text_of(value):
            raise InputError(
                f"{flag} {text_of(value)} and --set {key}={text_of(other)} contradict each other; keep one"
            )
        if value is not None and key != "scale":
            overrides[key] = value
    if options.budget is not None:
        chosen = parse_budget(options.budget)
        for key, value in overrides.items():
            if key.startswith("budget.") and key != "budget.convention":
                raise InputError(
                    f"--budget {chosen.unit}={chosen.amount:g} and --set {key}={value} contradict each other; keep one"
                )
        overrides[f"budget.{chosen.unit}"] = getattr(chosen, chosen.unit)
    if "objective" in overrides:
        raise InputError("--set objective=... is refused; give --objective NAME instead")
    scale = options.scale or scale_set or ("pair.names" in overrides and _scale_of_pair(overrides))
    base = presets.resolve(scale or "nano", overrides)
    if not base.tasks.names:
        raise InputError("--tasks names no task; name some, or give --tasks none")
    if os.environ.get(REHEARSAL):
        log.warning("%s is set: every run takes %d steps of %d rows, and its scores mean nothing", REHEARSAL, *TRIED)
        base = presets.rehearsed(base, *TRIED)

    from workbench.execution.study import stay_local

    stay_local(base, own_process)
    if base.pair is not None:
        from workbench.execution.published_runs import gone_on

        base = gone_on(base, overrides)
    if (
        "data.held_out" in overrides
        or set(base.data.corpus) == {"docs"}
        or not (base.tasks.chosen and tasks.of_corpus(base.tasks))
    ):
        return base
    log.warning("pairs are made of text that pre-training does not see: --set data.held_out=%g is in effect", HELD_OUT)
    return base.changed({"data.held_out": HELD_OUT})


def checked_spec(options: SpecOptions, own_process: bool = False) -> RunSpec:
    """Return the spec of the options (`base_spec`). Raises InputError also for a setting that no chosen task reads."""
    base = base_spec(options, own_process)
    given = overrides_of(spec_settings(options.set))
    tasks.check_settings(base.tasks, given | ({"tasks.at": options.evaluate_at} if options.evaluate_at else {}))
    return base


def _scale_of_pair(overrides: Mapping[str, Any]) -> str:
    """Return the scale whose settings suit the published pair that runs go on from."""
    from workbench.models import published_pair
    from workbench.spec import presets
    from workbench.spec.parts import PairSpec
    from workbench.spec.run_spec import parse_part

    given = {key.removeprefix("pair."): value for key, value in overrides.items() if key.startswith("pair.")}
    sizes = published_pair.settings(published_pair.find(parse_part(PairSpec, given, "pair")))
    return presets.scale_of_encoder(sizes["encoder.layers"], sizes["encoder.hidden"])


def with_words(
    base: RunSpec, experiment: Experiment | None = None, unit: str | None = None, always: bool = False
) -> Any:
    """Return the spec with the words of its text counted if a plan needs them, which prepares the text.

    Budgets and matches in words need them, and so does text in BabyLM's files. With `always` they are counted anyway,
    for a limit of epochs. Raises InputError for a task whose files are absent, before a text is prepared.
    """
    units = {base.budget.unit, unit}
    if experiment is not None:
        keys = set(experiment.axes).union(*experiment.variants)
        units |= {experiment.match, "words" if "budget.words" in keys else None}
    from workbench.data.sources import is_babylm

    if base.data.words or not (always or "words" in units or is_babylm(base.data)):
        return base
    from workbench.data.prepare import already, counted, prepare

    if already(base) is None:
        tasks.read(tasks.apart_from_text(base.tasks))  # a task whose files are absent is named before the text is read
    return counted(base, prepare(base))


def rehearsed(count: int | None, most: int) -> int | None:
    """Return the number of seeds, trials or rounds of a command: `count`, and in a rehearsal `most` at most."""
    return min(count or most, most) if os.environ.get(REHEARSAL) else count


def seeds_of(options: SpecOptions, search: bool = False) -> tuple[int, Limit | None]:
    """Return the number of seeds of a command, and with --seeds auto the limit of added seeds. Raises InputError."""
    seeds, most_seeds, most_compute = options.seeds, options.most_seeds, options.most_compute
    if not isinstance(seeds, str):
        for option, value in (("--most-seeds", most_seeds), ("--most-compute", most_compute)):
            if value is not None:
                raise InputError(
                    f"{option} {value} limits --seeds auto, which was not given; add it, or leave {option} out"
                )
        return min(seeds or 1, 2) if os.environ.get(REHEARSAL) else seeds or 1, None
    if search:
        raise InputError("--seeds auto decides declared comparisons, and a search has none; give a number of --seeds")
    if os.environ.get(REHEARSAL):
        return 2, None
    from workbench.execution.sequential_seeds import MOST_SEEDS, Limit
    from workbench.spec.run_spec import parse_budget

    compute = None if most_compute is None else parse_budget(most_compute, "--most-compute")
    return most_seeds or MOST_SEEDS, Limit(most_seeds or MOST_SEEDS, compute)


def warn_of_overruled(experiment: Experiment, settings: Mapping[str, Any]) -> None:
    """Log a warning for each setting of --set that an axis of the experiment overrules."""
    for key, value in settings.items():
        values = experiment.axes.get(key, ())
        if {*map(str, values)} - {str(value)}:
            used = ", ".join(map(str, values[:SHOWN])) or "a range"
            used += f" and {len(values) - SHOWN:,} others" if len(values) > SHOWN else ""
            log.warning(
                "--set %s=%s has no effect on %s, whose runs have %s=%s; leave it out, or give --over %s=%s to a sweep",
                key, value, experiment.name, key, used, key, value,
            )  # fmt: skip


def host_of(options: Any) -> Host:
    """Return the host of the options of a command. Raises InputError for a device or a tracker that is not here."""
    from workbench.execution.slurm import job_options

    given: dict[str, Any] = {}
    for each in fields(Computation):
        if hasattr(options, each.name):
            given[each.name] = getattr(options, each.name)
    jobs = job_options(getattr(options, "launcher", "local"), getattr(options, "set", None))
    if (tracker := given.get("track")) is not None:
        given["track"] = trackers.find(str(tracker))
    if given.get("devices") is None:
        given["devices"] = launched()
    host = Host(**given, launch=jobs)
    if host.plain and host.compile:
        raise InputError("--plain and --compile contradict each other, since --plain uses no faster code; keep one")
    more = "" if host.threads is None else f" with {plural(host.threads, 'thread')}"
    check_address_space(FOR_TORCH + STACK * (host.threads or 0), f"torch{more}")
    if host.device != "auto" and jobs is None:
        host.resolved_device()
    return host


def scores_of_encoders(options: EvaluateOptions, own_process: bool = False) -> tuple[list[dict[str, Any]], int]:
    """Measure models on tasks, and return their scores and the number of those that failed. Raises InputError."""
    host, workers, names, root = host_of(options), options.workers, names_of(options.encoder), Path(options.runs)
    if workers is not None and host.launch is None:
        raise InputError(f"--workers {workers} is the number of jobs at a time; add --launcher slurm, or leave it out")
    if options.flops is not None and len(names) > 1:
        raise InputError(
            f"--flops {options.flops:g} is stated of one model, and {len(names)} are named; evaluate it by itself"
        )
    from workbench.execution import published_runs, study_runner
    from workbench.models import families
    from workbench.store.run_store import RunStore
    from workbench.tasks.common.contract import expected

    RunStore.check(root)
    if family := (options.set or {}).get("encoder.family"):
        families.PLUGS.find(str(family))  # the file of an encoder in our own layout
    models = published_runs.models(names, options.allow_bin)
    for model in models:
        _check_origin(model.folder)
    bases = [base_spec(_fine_tuning_options(model.folder, options), own_process) for model in models]
    tasks.check_settings(bases[0].tasks, overrides_of(spec_settings(options.set)))
    if not bases[0].tasks.chosen:
        raise InputError("evaluate prints scores, and --tasks none gives none; name tasks with --tasks")
    # Settings decide how tasks are learned and from how many rows, and not which they are.
    suites = {rows: study_runner.load_suite(base) for rows, base in {b.tasks.rows: b for b in bases}.items()}
    suite = suites[bases[0].tasks.rows]
    if host.launch is not None:
        from workbench.execution import slurm

        given = words(replace(options, launcher="local", workers=None, set=spec_settings(options.set)))
        measured = slurm.measure_models([model.name for model in models], given, root, host.launch, workers)
        return measured, sum(len(list(expected(suite, base.tasks))) for base in bases) - len(measured)
    rows, failed = list[dict[str, Any]](), 0
    for model, base in zip(models, bases, strict=True):
        scores, lost = published_runs.measure(model, suites[base.tasks.rows], base, host, root, options.flops)
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
        run.check_weights("encoder", place)
    except DamagedRun as error:
        fault = str(error).partition("; move")[0]
        raise DamagedRun(f"{fault}; to evaluate it as it is, copy the folder {encoder} out of the run") from None


def _fine_tuning_options(encoder: Path, options: EvaluateOptions) -> SpecOptions:
    """Return the options of fine-tuning an encoder: given ones, then its own run's, then those of the nearest scale."""
    from workbench.spec import presets
    from workbench.tasks.common.encoder_folders import encoder_facts

    settings, scale = dict(options.set or {}), options.scale
    if scale is None and "scale" not in settings and "recipe" not in settings:
        facts = encoder_facts(encoder)
        if facts.origin is not None:
            own = {f"tasks.{key}": value for key, value in facts.origin.tasks.items() if value is not None}
            scale = facts.origin.scale
        else:
            own = {"tasks.seeds": presets.SCALES["nano"]["tasks.seeds"]}
            scale = presets.scale_of_encoder(facts.layers, facts.hidden)
        settings = own | settings
    # Most of the models have no text of their own to make pairs of, and no head to score them with.
    default = None if "tasks.names" in settings else ("probes",)
    return SpecOptions(tasks=default if options.tasks is None else options.tasks, scale=scale, set=settings)
