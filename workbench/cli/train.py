"""Commands that start runs or prepare them: run, sweep, worker, evaluate, data prepare."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec

import typer

from workbench.cli.options import (
    AsJson,
    BudgetText,
    Compile,
    Corpora,
    Device,
    Devices,
    DryRun,
    EvaluateAt,
    Launcher,
    MatchText,
    MicroBatch,
    MostCompute,
    MostEpochs,
    MostSeeds,
    Objectives,
    Out,
    Plain,
    Precision,
    Runs,
    SaveEvery,
    Scale,
    Seeds,
    Sets,
    Shard,
    Tasks,
    Threads,
    Track,
    Workers,
    emit,
    number_option,
    typed_path,
)
from workbench.errors import InputError
from workbench.execution.cluster.job_options import launch_of
from workbench.execution.request import (
    Request,
    Trials,
    base_spec,
    carry_out_job,
    carry_out_search,
    host_of,
    run_job,
    scores_of_encoders,
    search_jobs,
    sweep_job,
    writable,
)
from workbench.memory import FOR_TEXT, check_address_space
from workbench.progress import say
from workbench.signals import end_with_parent
from workbench.spec.host import Host, follows, launched

if TYPE_CHECKING:
    from workbench.execution.auto_seeds import Limit
    from workbench.execution.run_list import Job, Priced


P = ParamSpec("P")


def by_first(command: Callable[P, None]) -> Callable[P, None]:
    """Return a command that the first process of `torchrun` carries out, while the others compute their parts."""

    @functools.wraps(command)
    def by_rank(*args: P.args, **kwargs: P.kwargs) -> None:
        if launched() == 1:
            command(*args, **kwargs)
            return
        from workbench.execution.several_devices.devices import dismiss
        from workbench.execution.several_devices.followers import follow_all

        if follows():
            follow_all()
            return
        try:
            command(*args, **kwargs)
        finally:
            dismiss()

    return by_rank


@by_first
def run(
    experiment: Annotated[str, typer.Argument(help="Name or file of an experiment, such as ablation.")],
    objective: Objectives = None,
    set_: Sets = None,
    scale: Scale = None,
    corpus: Corpora = None,
    tasks: Tasks = None,
    evaluate_at: EvaluateAt = None,
    budget: BudgetText = None,
    match: MatchText = None,
    seeds: Seeds = None,
    most_seeds: MostSeeds = None,
    most_compute: MostCompute = None,
    most_epochs: MostEpochs = None,
    runs: Runs = Path("runs"),
    out: Out = None,
    workers: Workers = 1,
    device: Device = "auto",
    devices: Devices = None,
    shard: Shard = False,
    launcher: Launcher = "local",
    precision: Precision = "auto",
    micro_batch: MicroBatch = None,
    threads: Threads = None,
    plain: Plain = False,
    compile_: Compile = False,
    save_every: SaveEvery = None,
    track: Track = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Pre-train, fine-tune and report every run of an experiment; the same command again resumes it.

    All runs get the same FLOPs: a --budget in steps or tokens (such as the default of scale small) is the budget of
    the first objective, and every other objective gets as many FLOPs as that spends, in its own number of steps.
    """
    settings, launch = launch_of(launcher, set_ or ())
    host = host_of(device, precision, micro_batch, threads, compile_, save_every, track, plain, devices, shard, launch)
    request = Request(
        objective or (), settings, scale, corpus or (), tasks, evaluate_at, budget, match, seeds, most_seeds,
        most_compute, most_epochs, own_process=True,
    )  # fmt: skip
    job, limit = run_job(request, experiment)
    _carry_out(job, runs, host, workers, out, dry_run, as_json, limit)


@by_first
def sweep_(
    axis: Annotated[
        str | None, typer.Argument(help="Name or file of an experiment, such as generator-size; or tune.")
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            help="Values to compare, as tying=none,all (all combinations), or with --trials the space to "
            "search, as optim.lr=1e-4..1e-3:log; repeatable."
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100_000,
            help="Number of trials with which --over is searched, for each cell. No trial is pruned: a "
            "run that is stopped early has less compute than the others, which biases the comparison.",
        ),
    ] = None,
    sampler: Annotated[str, typer.Option(help="For a search: tpe, random or qmc (quasi-random).")] = "tpe",
    tuning_seeds: Annotated[int, typer.Option(min=1, max=1000, help="For tune: pre-training seeds of each trial.")] = 1,
    storage: Annotated[
        str | None, typer.Option(help="Storage of Optuna's copy of the trials (default: a journal in the run store).")
    ] = None,
    match: MatchText = None,
    objective: Objectives = None,
    set_: Sets = None,
    scale: Scale = None,
    corpus: Corpora = None,
    tasks: Tasks = None,
    evaluate_at: EvaluateAt = None,
    budget: BudgetText = None,
    seeds: Seeds = None,
    most_seeds: MostSeeds = None,
    most_compute: MostCompute = None,
    most_epochs: MostEpochs = None,
    runs: Runs = Path("runs"),
    out: Out = None,
    workers: Workers = 1,
    device: Device = "auto",
    devices: Devices = None,
    shard: Shard = False,
    launcher: Launcher = "local",
    precision: Precision = "auto",
    micro_batch: MicroBatch = None,
    threads: Threads = None,
    plain: Plain = False,
    compile_: Compile = False,
    save_every: SaveEvery = None,
    track: Track = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Compare settings at equal compute: of an experiment, of --over, or of both; the same command resumes it.

    A --budget in another unit than --match is the budget of the first cell; all others get as much of --match as that
    cell spends.

    tune searches in the same way for the settings of every --objective (its learning rate, and --over), by scores on
    held-out training rows, and then reports the best ones on other seeds, by scores on the test rows.
    """
    settings, launch = launch_of(launcher, set_ or ())
    host = host_of(device, precision, micro_batch, threads, compile_, save_every, track, plain, devices, shard, launch)
    request = Request(
        objective or (), settings, scale, corpus or (), tasks, evaluate_at, budget, match, seeds, most_seeds,
        most_compute, most_epochs, own_process=True,
    )  # fmt: skip
    from workbench.spec.axes import parse_over

    space = parse_over(over or [])
    search_options = Trials(trials, sampler, tuning_seeds, storage)
    if not search_options.searches(axis):
        job, limit = sweep_job(request, axis, space)
        _carry_out(job, runs, host, workers, out, dry_run, as_json, limit)
        return
    jobs, search, count = search_jobs(request, axis, space, search_options)
    if dry_run:
        _print_plan(jobs[0], runs, host, workers, out, as_json)
        return
    outcome = carry_out_search(jobs, search, count, runs, host, workers, out)
    emit(outcome.to_json() if as_json else outcome.summary(), as_json, kept=True)
    raise typer.Exit(outcome.exit_code)


def _carry_out(
    job: Job, runs: Path, host: Host, workers: int, out: Path | None, dry_run: bool, as_json: bool, limit: Limit | None
) -> None:
    """Print the plan of a job, or carry the job out: as it is, or with seeds added up to a limit."""
    if dry_run:
        _print_plan(job, runs, host, workers, out, as_json, limit)
        return
    outcome = carry_out_job(job, limit, runs, host, workers, out)
    emit(outcome.to_json() if as_json else outcome.summary(), as_json, kept=True)
    raise typer.Exit(outcome.exit_code)


def _print_plan(
    job: Job, runs: Path, host: Host, workers: int, out: Path | None, as_json: bool, limit: Limit | None = None
) -> None:
    """Print the plan of a job, with all seeds up to a limit, and draw it if there is a folder `out`.

    The runs that are trained already are those of the store `runs`.
    """
    from workbench.cli import terminal
    from workbench.data.prepare import already
    from workbench.execution import auto_seeds, experiment_runner
    from workbench.execution.run_list import plans

    experiment_runner.check(host, job.specs)
    job = auto_seeds.whole(job, limit, host, workers) if limit else job
    priced, matches = plans(job)
    job.warn()
    text = experiment_runner.text_facts(experiment_runner.prepare(job.base)[1]) if job.base.data.words else {}
    prepared = already(job.base)
    if prepared is not None:
        experiment_runner.check_losses(job.specs, prepared, host)
    sentence, rows = experiment_runner.planned_points(job, prepared)
    tuning, fine_tunings = experiment_runner.planned_tuning(job, prepared, host, workers)
    trained = experiment_runner.trained_already(job, prepared, runs)
    if as_json:
        costs = {"points": rows, "fine_tuning": fine_tunings}
        emit(terminal.plan_json(job, priced, matches, text, trained) | costs, as_json)
    else:
        table = terminal.plan_table(job, priced, matches, host, workers, text, trained)
        emit("\n".join([table, *filter(None, (tuning, sentence))]), as_json)
    if out is not None:
        say(f"figure: {_draw_plan(job, priced, out)}")


def _draw_plan(job: Job, priced: Sequence[Priced], out: Path) -> Path:
    """Draw the compute of the planned arms beside the published scores, in the folder `out`; return the figure's path.

    Raises InputError if the compute is not known yet.
    """
    from workbench.report import write_plan
    from workbench.report.load.arm_names import arm_names
    from workbench.spec.run_spec import flat

    writable(out)
    settings = {spec.name: flat(spec.model_dump()) for spec, _ in priced}
    names = arm_names(job.experiment.axis, [{"run_id": name, "role": "arm"} for name in settings], settings)
    flops = {names[spec.name]: float(plan.flops["paper"]) for spec, plan in priced}
    if not all(flops.values()):
        raise InputError(f"--out {out}: runs with a budget in seconds have no FLOPs yet; give another --budget")
    return write_plan(flops, out)


def evaluate(
    encoder: Annotated[
        list[str], typer.Argument(help="Folders of encoders in Hugging Face format, or names of models on the hub.")
    ],
    set_: Sets = None,
    scale: Scale = None,
    tasks: Tasks = None,
    runs: Runs = Path("runs"),
    flops: Annotated[
        float | None,
        number_option(1, 1e30, "Training FLOPs that are stated of the model (paper convention)."),
    ] = None,
    allow_bin: Annotated[
        bool, typer.Option("--allow-bin", help="Read pytorch_model.bin, by a reader that runs no code of the file.")
    ] = False,
    device: Device = "auto",
    precision: Precision = "auto",
    launcher: Launcher = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, max=1000, help="With --launcher slurm: jobs at a time (default: all models).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure models that others trained on tasks; print their scores and keep them in the run store.

    There each is a run of the kind "published", which reports show beside those that were trained here. The same
    command again takes only what is missing. The folder of a run's encoder is measured too, and nothing is kept of it.
    Without --scale, the settings are those of the encoder's run, or for a model that others trained those of the scale
    nearest in size, and are printed.
    """
    settings, launch = launch_of(launcher, set_ or ())
    host = host_of(device, precision, launch=launch)
    from workbench.cli import terminal

    scores, failed = scores_of_encoders(
        encoder, scale, settings, tasks, host, runs, flops, allow_bin, own_process=True, workers=workers
    )
    emit(scores if as_json else terminal.table(terminal.score_rows(scores)), as_json, kept=True)
    raise typer.Exit(1 if failed else 0)


def submit(
    name: Annotated[
        str, typer.Argument(help="Name of an experiment, or of a run (a part of it that no other run has).")
    ],
    out: Annotated[
        Path,
        typer.Option(callback=typed_path, help="Zip file to write; its card is written beside it, as .json and .md."),
    ],
    runs: Runs = Path("runs"),
    arm: Annotated[
        str | None, typer.Option(help="Arm of the experiment; its run with the best mean on dev is submitted.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Fine-tuning seed (default: of each task the best one on dev).")
    ] = None,
    ensemble: Annotated[
        int, typer.Option(min=1, max=1000, help="Average the N fine-tuning seeds of each task that are best on dev.")
    ] = 1,
    glue: Annotated[
        str | None,
        typer.Option("--glue", help="Folder of GLUE with its test files, or its name on the hub (default: the run's)."),
    ] = None,
    wnli_majority: Annotated[
        bool, typer.Option("--wnli-majority", help="Predict WNLI's most frequent training label; the card says so.")
    ] = False,
    partial: Annotated[bool, typer.Option("--partial", help="Leave out files that cannot be made.")] = False,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Write predictions on GLUE's test sets as the zip that its server takes, and a card that says how they came about.

    The fine-tuning of each score is carried out again, and must give the recorded score on dev. A command that was
    interrupted goes on where it was.
    """
    host = host_of(device, precision, threads=threads)
    from workbench.cli import terminal
    from workbench.execution.glue_submission import submit as submission
    from workbench.execution.glue_submission.choice import SeedChoice, source_of
    from workbench.store.run_store import RunStore

    choice = SeedChoice(seed, ensemble)
    writable(out.parent)
    source = source_of(RunStore.existing(runs), name, arm)
    card = submission.submit(source, out, choice, glue, wnli_majority, partial, host)
    emit(card.to_json() if as_json else f"{terminal.table(submission.table_rows(card))}\n{out}", as_json, kept=True)


def worker(assignment: Annotated[Path, typer.Argument(help="The assignment file that run or sweep wrote.")]) -> None:
    """Carry out the remaining runs of an assignment, beside other workers, as long as its parent process exists."""
    from workbench.execution import experiment_runner
    from workbench.execution.workers import Assignment

    given = Assignment.read(assignment)
    end_with_parent(given.parent)
    check_address_space()
    raise typer.Exit(1 if experiment_runner.work(given) else 0)


def rank() -> None:
    """Compute the part of one device in the runs of the process that started this one."""
    from workbench.execution.several_devices.followers import follow_all

    check_address_space()
    follow_all()


def encode_slices(
    plan: Annotated[Path, typer.Argument(help="The plan that data prepare wrote.")],
    parent: Annotated[int, typer.Option(min=0, help="Process whose end ends this one; 0 for none.")] = 0,
) -> None:
    """Encode the slices of a text that no other process encodes, until all are there."""
    from workbench.data.preprocessing import Plan, encode_missing

    given = Plan.read(plan)
    end_with_parent(parent)
    check_address_space(FOR_TEXT, "preparing a text")
    encode_missing(given)


def prepare(
    corpus: Corpora = None,
    scale: Scale = None,
    set_: Sets = None,
    workers: Annotated[
        int, typer.Option(min=1, max=1024, help="Processes, or jobs, that encode a text of more than 256 MiB.")
    ] = 1,
    launcher: Launcher = "local",
    as_json: AsJson = False,
) -> None:
    """Turn text into token shards in the cache, so that runs on the same text start at once.

    A text of more than 256 MiB is encoded in slices. The same command goes on after an interruption, and given on
    other machines that share the cache, it takes its part of the slices.
    """
    settings, launch = launch_of(launcher, set_ or ())
    base = base_spec(scale, settings, corpus, "none", None, own_process=True)
    from workbench.cli import terminal
    from workbench.execution import experiment_runner

    facts = experiment_runner.prepared_facts(base, workers, launch)
    emit(facts if as_json else terminal.table([facts]), as_json, kept=True)
