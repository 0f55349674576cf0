"""Commands that give information and start no run: plan-study, flops, bench, doctor, list."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.options import (
    AsJson,
    BudgetText,
    Corpora,
    Device,
    MatchText,
    Objectives,
    Plain,
    Precision,
    Runs,
    Scale,
    Sets,
    Threads,
    Workers,
    emit,
    number_option,
    typed_path,
)
from workbench.errors import InputError, suggest
from workbench.execution.request import Request, base_spec, experiment_job, host_of, rehearsed, with_words, writable


def flops(
    objective: Annotated[str, typer.Option(help="An objective's name or file.")] = "rtd",
    scale: Scale = None,
    set_: Sets = None,
    budget: BudgetText = None,
    as_json: AsJson = False,
) -> None:
    """Print the training FLOPs of one run under the three conventions, with its steps, tokens and parameters."""
    base = with_words(base_spec(scale, set_, None, None, budget, own_process=True))
    from workbench.cli import terminal
    from workbench.training.plan import price

    priced = price(base, objective)
    emit(priced.to_json() if as_json else terminal.price_table(priced, base.scale), as_json)


def plan_study(
    experiment: Annotated[str, typer.Argument(help="Name or file of an experiment, such as ablation.")],
    sd: Annotated[
        float | None,
        number_option(1e-9, 1e9, "Assumed standard deviation of paired differences, in points; no store is read."),
    ] = None,
    noise_of: Annotated[
        str | None, typer.Option(help="Experiment or record whose runs give the noise of scores (default: EXPERIMENT).")
    ] = None,
    objective: Objectives = None,
    set_: Sets = None,
    scale: Scale = None,
    corpus: Corpora = None,
    budget: BudgetText = None,
    match: MatchText = None,
    runs: Runs = Path("runs"),
    workers: Workers = 1,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Print the gap that an experiment can show with each number of seeds, and its cost here; nothing is run.

    The noise between seeds comes from the runs of a store (--runs, --noise-of), or is assumed (--sd).
    """
    if sd is not None and noise_of is not None:
        raise InputError(f"--sd {sd:g} and --noise-of {noise_of} contradict each other; keep one")
    host = host_of(device, precision, None, threads)
    from workbench.cli import study_table
    from workbench.execution import study_plan
    from workbench.store.run_store import RunStore

    request = Request(
        objective or (), set_ or (), scale, corpus or (), budget=budget, match=match, own_process=True
    )  # fmt: skip
    job, _ = experiment_job(request, experiment, {}, ())
    if sd is not None:
        noise = [study_plan.Noise("any measure", sd, "as assumed")]
    else:
        noise = study_plan.measured(RunStore.existing(runs), noise_of or job.experiment.name)
    rows = [study_plan.designs(job, one.sd, host, workers) for one in noise]
    emit(study_plan.as_json(job, noise, rows) if as_json else study_table.as_text(job, noise, rows), as_json)


def bench(
    objective: Objectives = None,
    scale: Annotated[
        list[str] | None, typer.Option(help="nano, micro, mini, small, base or large (default all); repeatable.")
    ] = None,
    set_: Sets = None,
    seconds: Annotated[float, number_option(0.1, 3600, "Length of a timed turn; at least one step.")] = 3.0,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of a timed turn, instead of --seconds.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Timed turns of each objective; the objectives take turns.")] = 3,
    device: Device = "auto",
    precision: Precision = "auto",
    micro_batch: Annotated[
        int | None, typer.Option(min=1, help="Rows computed at once (default: all rows of a step).")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads.")] = None,
    plain: Plain = False,
    compile_: Annotated[bool, typer.Option("--compile", help="Use torch.compile.")] = False,
    out: Annotated[
        Path | None, typer.Option(callback=typed_path, help="Folder for a page with charts, and the results as JSON.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the speed of every objective at every scale on this machine, and where the time of a step goes."""
    host = host_of(device, precision, micro_batch, threads, compile_, plain=plain)
    writable(out)
    from workbench import bench, progress
    from workbench.cli import terminal
    from workbench.spec.run_spec import parse_overrides

    trial = bool(rehearsed(None, 1))  # one step of the smallest encoder
    specs = bench.specs_of(objective or [], ["nano"] if trial else scale or [], parse_overrides(set_ or []))
    settings = bench.Settings(seconds, 1 if trial else steps, rehearsed(repeats, 1) or 1)
    rows = bench.bench(specs, host, settings, progress.say)
    if out is not None:
        from workbench.report import write_bench

        progress.say(f"charts: {write_bench(rows, out)}")
    emit(rows if as_json else terminal.bench_table(rows), as_json)


def doctor(as_json: AsJson = False) -> None:
    """Check what this installation can do and what it lacks; the exit code is 1 if commands would fail."""
    from workbench.bench.machine import checks
    from workbench.cli import terminal

    results = checks()
    emit(
        [check.to_json() for check in results] if as_json else terminal.table([check.to_json() for check in results]),
        as_json,
    )
    raise typer.Exit(1 if any(check.state == "problem" for check in results) else 0)


def list_(
    what: Annotated[
        str, typer.Argument(help="objectives, scales, corpora, tasks, encoders, experiments or published.")
    ],
    as_json: AsJson = False,
) -> None:
    """List the names that the options of other commands accept."""
    from workbench.cli import terminal

    if what not in terminal.LISTS:
        raise InputError(f"list {what}: there is no list of this name{suggest(what, terminal.LISTS)}")
    rows = terminal.LISTS[what]()
    emit(rows if as_json else terminal.table(rows, empty="unknown"), as_json)
